/* SPDX-License-Identifier: MIT */
#include "text.h"

#include <stdlib.h>
#include <string.h>

#include "utf8.h"

size_text text_of_bytes(uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    size_text size;
    double value = (double)bytes / 1024;
    size_t unit = 0;
    if (bytes < 1024) {
        snprintf(size.text, sizeof size.text, "%u B", (unsigned)bytes);
        return size;
    }
    while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        unit++;
    }
    snprintf(size.text, sizeof size.text, "%.1f %s", value, units[unit]);
    return size;
}

size_text text_of_count(uint64_t count, const char *thing)
{
    size_text text;
    snprintf(text.text, sizeof text.text, "%llu %s%s", (unsigned long long)count, thing,
             count == 1 ? "" : "s");
    return text;
}

/* Bytes of a character that is shown as it is: none of a control or of what is no UTF-8. */
static uint32_t shown_length(const char *bytes, uint64_t count)
{
    uint32_t length = utf8_length(bytes, count);
    unsigned char first = (unsigned char)bytes[0];
    if (length == 1 && (first < 0x20 || first == 0x7f))
        return 0;
    /* U+0080 to U+009F are controls to a terminal too. */
    return length == 2 && first == 0xc2 && (unsigned char)bytes[1] < 0xa0 ? 0 : length;
}

static void write_escaped(FILE *out, const char *bytes, uint64_t count, const char *marked)
{
    for (uint64_t i = 0; i < count;) {
        uint32_t length = shown_length(bytes + i, count - i);
        if (length == 1 && strchr(marked, bytes[i]))
            fprintf(out, "\\%c", bytes[i]);
        else if (length)
            fwrite(bytes + i, 1, length, out);
        else if (bytes[i] == '\n')
            fputs("\\n", out);
        else
            fprintf(out, "\\x%02x", (unsigned char)bytes[i]);
        i += length ? length : 1;
    }
}

void text_quote(FILE *out, const char *bytes, uint64_t count)
{
    fputc('"', out);
    write_escaped(out, bytes, count, "\"\\");
    fputc('"', out);
}

void text_show(FILE *out, const char *text)
{
    write_escaped(out, text, strlen(text), "");
}

void text_show_lines(FILE *out, const char *bytes, uint64_t count)
{
    uint64_t start = 0;
    for (uint64_t i = 0; i <= count; i++) {
        if (i < count && bytes[i] != '\n' && bytes[i] != '\t')
            continue;
        write_escaped(out, bytes + start, i - start, "");
        if (i < count)
            fputc(bytes[i], out);
        start = i + 1;
    }
}

void text_model(FILE *out, const strata_pack_info *info)
{
    text_show(out, info->architecture);
    if (info->name[0])
        fputs(", ", out);
    text_show(out, info->name);
}

/* Appends one token's text to a growing buffer; 0 on failure. */
static int append_token(const strata_pack *pack, int32_t token, char **text, uint64_t *used,
                        uint64_t *capacity)
{
    uint64_t bytes = 0;
    strata_status status =
        strata_pack_token_text(pack, (uint64_t)token, *text + *used, *capacity - *used, &bytes);
    if (status == STRATA_ERR_BUFFER_TOO_SMALL) {
        uint64_t wanted = 2 * (*used + bytes);
        char *larger = realloc(*text, wanted);
        if (!larger)
            return 0;
        *text = larger;
        *capacity = wanted;
        status =
            strata_pack_token_text(pack, (uint64_t)token, *text + *used, wanted - *used, &bytes);
    }
    if (status != STRATA_OK)
        return 0;
    *used += bytes;
    return 1;
}

char *text_of_tokens(const strata_pack *pack, const int32_t *tokens, uint64_t count,
                     uint64_t *out_bytes)
{
    uint64_t used = 0, capacity = 256;
    char *text = malloc(capacity);
    for (uint64_t i = 0; text && i < count; i++)
        if (tokens[i] < 0 || !append_token(pack, tokens[i], &text, &used, &capacity)) {
            free(text);
            return NULL;
        }
    if (text)
        *out_bytes = used;
    return text;
}
