/* SPDX-License-Identifier: MIT */
#include "parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
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

static bool is_separator(char c)
{
    return c == ',' || isspace((unsigned char)c);
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
    if (errno || value > INT32_MAX || (*end && !is_separator(*end)))
        return false;
    *text = end;
    *out = (int32_t)value;
    return true;
}

token_source parse_tokens(const char *text, token_list *out)
{
    /* An id takes at least two characters with its separator. */
    uint64_t capacity = strlen(text) / 2 + 1;
    out->count = 0;
    out->ids = malloc(capacity * sizeof *out->ids);
    if (!out->ids)
        return TOKENS_NO_MEMORY;
    for (;;) {
        while (is_separator(*text))
            text++;
        if (!*text)
            break;
        if (!take_id(&text, &out->ids[out->count])) {
            out->count = 0;
            break;
        }
        out->count++;
    }
    if (out->count)
        return TOKENS_OK;
    free(out->ids);
    out->ids = NULL;
    return TOKENS_MALFORMED;
}

char *parse_read_stream(FILE *file, uint64_t *out_bytes)
{
    size_t used = 0, capacity = 1 << 16;
    char *text = malloc(capacity);
    while (text) {
        used += fread(text + used, 1, capacity - used - 1, file);
        if (used + 1 < capacity)
            break;
        char *larger = realloc(text, capacity *= 2);
        if (!larger)
            free(text);
        text = larger;
    }
    if (text && ferror(file)) {
        free(text);
        return NULL;
    }
    if (text) {
        text[used] = '\0';
        *out_bytes = used;
    }
    return text;
}

char *parse_read_file(const char *path, uint64_t *out_bytes)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    char *text;
    if (!file)
        return NULL;
    text = parse_read_stream(file, out_bytes);
    if (!standard)
        fclose(file);
    return text;
}

token_source parse_token_file(const char *path, token_list *out)
{
    token_source source = TOKENS_UNREADABLE;
    uint64_t bytes;
    char *text = parse_read_file(path, &bytes);
    if (text) /* a NUL is no separator, nor the end of a file */
        source = strlen(text) == bytes ? parse_tokens(text, out) : TOKENS_MALFORMED;
    free(text);
    return source;
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
