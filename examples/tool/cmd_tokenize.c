/* SPDX-License-Identifier: MIT */
/* strata tokenize: the tokens of a text. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "encode.h"
#include "file.h"
#include "json.h"
#include "option_values.h"
#include "text.h"
#include "tool.h"

enum { KEY_TEXT = 0x200, KEY_FILE, KEY_SPECIAL };

static const struct argp_option option_table[] = {
    {"text", KEY_TEXT, "TEXT", 0, "The text", 0},
    {"file", KEY_FILE, "FILE", 0, "The text from a file, - for standard input", 0},
    {"text-file", KEY_FILE, "FILE", OPTION_ALIAS, 0, 0},
    {"special", KEY_SPECIAL, 0, 0, "Texts of control tokens become these tokens", 0},
    {0},
};

typedef struct arguments {
    pack_arguments in;
    const char *text;
    const char *path;
    bool special;
} arguments;

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->in;
        return 0;
    case KEY_TEXT:
        a->text = arg;
        return 0;
    case KEY_FILE:
        a->path = arg;
        return 0;
    case KEY_SPECIAL:
        a->special = true;
        return 0;
    case ARGP_KEY_END:
        if (!a->text == !a->path)
            argp_error(state, "give one of --text and --file");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void write_json(const strata_pack *pack, const token_list *tokens)
{
    json_writer json;
    json_start(&json, stdout);
    json_object(&json, NULL);
    json_u64(&json, "token_count", tokens->count);
    json_array(&json, "tokens");
    for (uint64_t i = 0; i < tokens->count; i++)
        json_i64(&json, NULL, tokens->ids[i]);
    json_end(&json);
    json_array(&json, "texts");
    for (uint64_t i = 0; i < tokens->count; i++) {
        uint64_t bytes = 0;
        char *text = text_of_tokens(pack, &tokens->ids[i], 1, &bytes);
        json_bytes(&json, NULL, text ? text : "", text ? bytes : 0);
        free(text);
    }
    json_end(&json);
    json_end(&json);
}

/* A token a line, so that the ids go on to --tokens-file by cutting the first column. */
static void write_text(const strata_pack *pack, const token_list *tokens)
{
    for (uint64_t i = 0; i < tokens->count; i++) {
        uint64_t bytes = 0;
        char *text = text_of_tokens(pack, &tokens->ids[i], 1, &bytes);
        printf("%d\t", (int)tokens->ids[i]);
        text_quote(stdout, text ? text : "", text ? bytes : 0);
        putchar('\n');
        free(text);
    }
}

static int tokenize(const arguments *a, const strata_pack *pack)
{
    const char *text = a->text;
    uint64_t bytes = text ? strlen(text) : 0;
    strata_encode_options options;
    token_list tokens;
    file_fault fault;
    char *content = NULL;
    bool good;
    if (a->path) {
        text = content = file_read(a->path, FILE_MOST_TEXT_BYTES, &bytes, &fault);
        if (!content)
            return tool_refuse(fault.status, a->in.json, "%s: %s", file_name(a->path), fault.text);
    }
    strata_encode_options_init(&options, sizeof options);
    options.special = a->special;
    good = encode_text(pack, text, bytes, &options, a->in.json, &tokens);
    free(content);
    if (!good)
        return TOOL_FAILED;
    if (a->in.json)
        write_json(pack, &tokens);
    else
        write_text(pack, &tokens);
    free(tokens.ids);
    return TOOL_OK;
}

int cmd_tokenize(int argc, char **argv)
{
    static const struct argp_child children[] = {{&pack_argp, 0, 0, 0}, {0}};
    static const struct argp parser = {
        option_table, parse_option, "PACK", "Shows the tokens of a text.", children, 0, 0};
    arguments a = {0};
    strata_context *context;
    strata_pack *pack;
    int code;
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    if (!tool_open_pack(a.in.pack, a.in.json, &context, &pack))
        return TOOL_FAILED;
    code = tokenize(&a, pack);
    strata_pack_close(pack);
    strata_context_destroy(context);
    return code;
}
