/* SPDX-License-Identifier: MIT */
#include "parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool parse_u64(const char *text, uint64_t *out)
{
    char *end;
    unsigned long long value;
    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno || *end)
        return false;
    *out = value;
    return true;
}

bool parse_real(const char *text, double *out)
{
    char *end;
    double value;
    if (!text[0] || text[strspn(text, "0123456789.eE+-")])
        return false;
    value = strtod(text, &end);
    if (*end || end == text || value - value != 0)
        return false;
    *out = value;
    return true;
}

/* The factor that a unit stands for, 0 when it is none. */
static double unit_factor(const char *unit)
{
    static const char letters[] = "KMGT";
    double factor = 1;
    const char *letter;
    if (!unit[0] || strcmp(unit, "B") == 0)
        return 1;
    letter = strchr(letters, toupper((unsigned char)unit[0]));
    if (!letter)
        return 0;
    if (unit[1] && strcmp(unit + 1, "iB") != 0 && strcmp(unit + 1, "B") != 0)
        return 0;
    for (const char *l = letters; l <= letter; l++)
        factor *= strcmp(unit + 1, "B") == 0 ? 1000 : 1024;
    return factor;
}

bool parse_bytes(const char *text, uint64_t *out)
{
    const char *number_end = text + strspn(text, "0123456789.");
    char *end;
    double value, factor;
    if (parse_u64(text, out))
        return true;
    if (!isdigit((unsigned char)text[0]) || *number_end == '\0')
        return false;
    value = strtod(text, &end);
    if (end != number_end)
        return false;
    while (*end == ' ')
        end++;
    factor = unit_factor(end);
    if (factor == 0 || value * factor >= 9e18)
        return false;
    *out = (uint64_t)(value * factor);
    return true;
}

/* Takes one id; the text advances past it. */
static bool take_id(const char **text, int32_t *out)
{
    char *end;
    unsigned long value;
    if (!isdigit((unsigned char)**text))
        return false;
    errno = 0;
    value = strtoul(*text, &end, 10);
    if (errno || value > INT32_MAX || (*end && *end != ',' && !isspace((unsigned char)*end)))
        return false;
    *text = end;
    *out = (int32_t)value;
    return true;
}

static const char *skip_space(const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    return text;
}

/* Takes all ids; false where one is missing, with the text there. */
static bool take_ids(const char **text, token_list *out)
{
    *text = skip_space(*text);
    for (;;) {
        if (!take_id(text, &out->ids[out->count]))
            return false;
        out->count++;
        *text = skip_space(*text);
        if (!**text)
            return true;
        if (**text == ',')
            *text = skip_space(*text + 1);
    }
}

token_source parse_tokens(const char *text, token_list *out, const char **out_fault)
{
    /* An id takes at least two characters with its separator. */
    uint64_t capacity = strlen(text) / 2 + 1;
    out->count = 0;
    out->ids = malloc(capacity * sizeof *out->ids);
    if (!out->ids)
        return TOKENS_NO_MEMORY;
    if (take_ids(&text, out))
        return TOKENS_OK;
    free(out->ids);
    out->ids = NULL;
    out->count = 0;
    if (out_fault)
        *out_fault = text;
    return TOKENS_MALFORMED;
}

/* SplitMix64 (Steele, Lea and Flood, 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

token_source random_tokens(uint64_t count, uint64_t seed, uint32_t vocabulary, token_list *out)
{
    if (count == 0 || count > UINT64_MAX / sizeof *out->ids || vocabulary == 0)
        return TOKENS_MALFORMED;
    out->ids = malloc(count * sizeof *out->ids);
    if (!out->ids)
        return TOKENS_NO_MEMORY;
    out->count = count;
    for (uint64_t i = 0; i < count; i++)
        out->ids[i] = (int32_t)(next_random(&seed) % vocabulary);
    return TOKENS_OK;
}
