/* SPDX-License-Identifier: MIT */
#include "option_values.h"

#include <stdio.h>
#include <string.h>

#include "parse.h"

enum { KEY_JSON = 0x400 };

uint64_t option_number(const char *text, uint64_t least, uint64_t most,
                       const struct argp_state *state, const char *option)
{
    uint64_t value = 0;
    if (!parse_u64(text, &value) || value < least || value > most)
        argp_error(state, "--%s: \"%s\" is not a number from %llu to %llu", option, text,
                   (unsigned long long)least, (unsigned long long)most);
    return value;
}

double option_real(const char *text, double least, double most, const struct argp_state *state,
                   const char *option)
{
    double value = 0;
    if (!parse_real(text, &value) || value < least || value > most)
        argp_error(state, "--%s: \"%s\" is not a number from %g to %g", option, text, least, most);
    return value;
}

uint64_t option_size(const char *text, const struct argp_state *state, const char *option)
{
    uint64_t value = 0;
    if (!parse_bytes(text, &value) || value == 0)
        argp_error(state, "--%s: \"%s\" is not a size such as 12GiB, 8G or 1048576", option, text);
    return value;
}

uint32_t option_choice(const char *text, const char *const *names, const struct argp_state *state,
                       const char *option)
{
    for (uint32_t i = 0; names[i]; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    char list[128] = "";
    for (uint32_t i = 0; names[i]; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    argp_error(state, "--%s: \"%s\" is none of %s", option, text, list);
    return 0;
}

static error_t parse_pack_option(int key, char *arg, struct argp_state *state)
{
    pack_arguments *a = state->input;
    switch (key) {
    case KEY_JSON:
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->pack)
            argp_error(state, "\"%s\" is one argument too many: there is one pack", arg);
        a->pack = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->pack && !a->optional)
            argp_error(state, "name a pack");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option pack_table[] = {
    {"json", KEY_JSON, 0, 0, "One JSON object on standard output", 9},
    {0},
};

const struct argp pack_argp = {pack_table, parse_pack_option, 0, 0, 0, 0, 0};
