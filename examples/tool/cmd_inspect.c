/* SPDX-License-Identifier: MIT */
/* strata inspect: what is in a pack. */
#include <argp.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "inspect.h"
#include "option_values.h"
#include "tool.h"

enum { KEY_TENSORS = 0x200, KEY_METADATA };

static const struct argp_option option_table[] = {
    {"tensors", KEY_TENSORS, 0, 0, "List every tensor", 0},
    {"metadata", KEY_METADATA, 0, 0, "List every metadata entry", 0},
    {0},
};

typedef struct arguments {
    pack_arguments in;
    bool tensors;
    bool metadata;
} arguments;

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->in;
        return 0;
    case KEY_TENSORS:
        a->tensors = true;
        return 0;
    case KEY_METADATA:
        a->metadata = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static strata_status inspect(const strata_pack *pack, const arguments *a)
{
    inspection all;
    strata_status status = inspection_read(pack, a->in.pack, &all);
    if (status != STRATA_OK)
        return status;
    all.with_tensors = a->tensors;
    all.with_metadata = a->metadata;
    status = a->in.json ? inspection_write_json(&all, stdout) : inspection_write_text(&all, stdout);
    inspection_free(&all);
    return status;
}

int cmd_inspect(int argc, char **argv)
{
    static const struct argp_child children[] = {{&pack_argp, 0, 0, 0}, {0}};
    static const struct argp parser = {option_table,
                                       parse_option,
                                       "PACK",
                                       "Shows what a pack (a GGUF file) holds.",
                                       children,
                                       0,
                                       0};
    arguments a = {0};
    strata_context *context;
    strata_pack *pack;
    strata_status status;
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    if (!tool_open_pack(a.in.pack, a.in.json, &context, &pack))
        return TOOL_FAILED;
    status = inspect(pack, &a);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return status == STRATA_OK ? TOOL_OK : tool_fail("cannot inspect the pack", status, a.in.json);
}
