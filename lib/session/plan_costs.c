/* SPDX-License-Identifier: MIT */
/*
 * Costs as text, which strata_costs_measure() writes:
 *
 *   strata costs 1
 *   compute_capability 90
 *   # path, format or *, GFLOP/s, rows an expert at half of that (after * only)
 *   fused * 165000 110
 *   fused IQ2_XS 132000
 */
#include "session/plan_costs.h"

#include <string.h>

#include "base/error.h"

static const char head[] = "strata costs 1";

/*
 * Of the rate of a path's formats with a scale per 32 values and nothing else: what the int8
 * products of other forms reach, measured on one device.
 */
static double int8_share(const strata__format_info *format)
{
    if (format->int8_group == 16)
        return 0.72;
    if (format->int8_group == 64)
        return 1.19;
    if (format->int8_minimum_group == 16)
        return 0.75;
    return format->int8_minimum_group ? 0.86 : 1;
}

void strata__plan_costs_default(const strata__layout_facts *facts, strata__plan_costs *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t path = 0; path < STRATA__LAYOUT_PATH_COUNT; ++path) {
        bool int8 = path == STRATA__LAYOUT_FUSED || path == STRATA__LAYOUT_MMQ;
        out->half_rows[path] = facts->path_half_rows[path];
        for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; ++id) {
            const strata__format_info *format = strata__format_find(id);
            bool share = int8 && format && format->int8_group && facts->compute_capability;
            out->flops[path][id] = facts->path_flops[path] * (share ? int8_share(format) : 1);
        }
    }
}

void strata__plan_costs_layer(const strata__plan_costs *costs, strata__layout_layer *layer)
{
    const uint32_t formats[] = {layer->gate_format, layer->up_format, layer->down_format};
    for (uint32_t path = 0; path < STRATA__LAYOUT_PATH_COUNT; ++path) {
        double rates[3];
        for (uint32_t i = 0; i < 3; ++i)
            rates[i] = costs->flops[path][formats[i] < STRATA__FORMAT_LIMIT ? formats[i] : 0];
        layer->path_flops[path] = 3 / (1 / rates[0] + 1 / rates[1] + 1 / rates[2]);
        if (rates[0] == rates[1] && rates[1] == rates[2]) /* without rounding */
            layer->path_flops[path] = rates[0];
        layer->path_half_rows[path] = costs->half_rows[path];
    }
}

/* ---------------------------------------------------------------------------------------- text */

enum { MAX_WORDS = 4 };

typedef struct word {
    const char *text;
    uint64_t length;
} word;

typedef struct line {
    word words[MAX_WORDS + 1]; /* one more, to see that there are too many */
    uint32_t count;
    uint32_t number;
} line;

static bool is(const word *w, const char *text)
{
    return strlen(text) == w->length && memcmp(w->text, text, w->length) == 0;
}

/* The next line that has words; NULL at the end. */
static const char *next_line(const char *text, line *out)
{
    out->count = 0;
    while (*text && !out->count) {
        out->number++;
        while (*text && *text != '\n') {
            uint64_t length = strcspn(text, " \t\r\n#");
            if (length && out->count <= MAX_WORDS)
                out->words[out->count++] = (word){text, length};
            text += length;
            if (*text == '#')
                text += strcspn(text, "\n");
            else if (*text && *text != '\n')
                text++;
        }
        text += *text == '\n';
    }
    return out->count ? text : NULL;
}

/* 0 to 10^9. */
static bool number(const word *w, double *out)
{
    uint64_t value = 0;
    if (w->length == 0 || w->length > 10)
        return false;
    for (uint64_t i = 0; i < w->length; ++i) {
        if (w->text[i] < '0' || w->text[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(w->text[i] - '0');
    }
    *out = (double)value;
    return value <= 1000000000;
}

static bool find_path(const word *w, uint32_t *out)
{
    for (*out = 0; *out < STRATA__LAYOUT_PATH_COUNT; ++*out)
        if (is(w, strata__layout_path_name(*out)))
            return true;
    return false;
}

static bool find_format(const word *w, uint32_t *out)
{
    for (*out = 0; *out < STRATA__FORMAT_LIMIT; ++*out)
        if (strata__format_name(*out) && is(w, strata__format_name(*out)))
            return true;
    return false;
}

/* A line of costs; `all` are those after a star, `own` those of formats. */
static bool take_line(const line *l, strata__plan_costs *all, strata__plan_costs *own)
{
    double flops, half_rows = 0;
    uint32_t path, format;
    if (l->count < 3 || !find_path(&l->words[0], &path) || !number(&l->words[2], &flops) ||
        flops == 0)
        return false;
    if (!is(&l->words[1], "*")) {
        if (l->count != 3 || !find_format(&l->words[1], &format))
            return false;
        own->flops[path][format] = flops * 1e9;
        return true;
    }
    if (l->count != 4 || !number(&l->words[3], &half_rows) || half_rows > 1e6)
        return false;
    for (format = 0; format < STRATA__FORMAT_LIMIT; ++format)
        all->flops[path][format] = flops * 1e9;
    all->half_rows[path] = half_rows;
    return true;
}

static strata_status check_capability(const line *l, uint32_t expected)
{
    double found;
    if (l->count != 2 || !is(&l->words[0], "compute_capability") || !number(&l->words[1], &found))
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "costs: line %u tells no compute_capability", l->number);
    if (found == expected)
        return STRATA_OK;
    return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                        "costs: they are of compute capability %.0f, the device has %u", found,
                        expected);
}

strata_status strata__plan_costs_parse(const char *text, uint32_t compute_capability,
                                       strata__plan_costs *inout)
{
    strata__plan_costs own = {0};
    line l = {0};
    strata_status status;
    if (strncmp(text, head, sizeof head - 1) != 0 || !strchr("\r\n", text[sizeof head - 1]))
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "costs: the first line is not \"%s\"",
                            head);
    text = next_line(text, &l);
    text = next_line(text, &l);
    if (!text)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT, "costs: no compute_capability");
    status = check_capability(&l, compute_capability);
    while (status == STRATA_OK && (text = next_line(text, &l)) != NULL)
        if (!take_line(&l, inout, &own))
            status = strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                                  "costs: line %u is not a path, a format or *, GFLOP/s up to 10^9 "
                                  "and, after *, rows up to 10^6",
                                  l.number);
    for (uint32_t path = 0; path < STRATA__LAYOUT_PATH_COUNT; ++path)
        for (uint32_t format = 0; format < STRATA__FORMAT_LIMIT; ++format)
            if (own.flops[path][format] > 0)
                inout->flops[path][format] = own.flops[path][format];
    return status;
}
