/* SPDX-License-Identifier: MIT */
#include "device_facts.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "tool.h"

typedef enum fact_kind { FACT_U32, FACT_U64, FACT_F64 } fact_kind;

static const struct {
    const char *name;
    size_t offset;
    fact_kind kind;
} names[] = {
    {"compute_capability", offsetof(strata_device_facts, compute_capability), FACT_U32},
    {"memory_bytes", offsetof(strata_device_facts, memory_bytes), FACT_U64},
    {"shared_memory_bytes", offsetof(strata_device_facts, shared_memory_bytes), FACT_U64},
    {"alignment_bytes", offsetof(strata_device_facts, alignment_bytes), FACT_U64},
    {"link_bytes_per_second", offsetof(strata_device_facts, link_bytes_per_second), FACT_F64},
    {"link_latency_seconds", offsetof(strata_device_facts, link_latency_seconds), FACT_F64},
    {"memory_bytes_per_second", offsetof(strata_device_facts, memory_bytes_per_second), FACT_F64},
    {"dense_flops", offsetof(strata_device_facts, dense_flops), FACT_F64},
    {"attention_flops", offsetof(strata_device_facts, attention_flops), FACT_F64},
    {"direct_flops", offsetof(strata_device_facts, path_flops[0]), FACT_F64},
    {"fused_flops", offsetof(strata_device_facts, path_flops[1]), FACT_F64},
    {"mmq_flops", offsetof(strata_device_facts, path_flops[2]), FACT_F64},
    {"fp16_flops", offsetof(strata_device_facts, path_flops[3]), FACT_F64},
};

bool parse_rate(const char *text, double *out)
{
    char *end;
    double value;
    if (!isdigit((unsigned char)text[0]) && text[0] != '.')
        return false;
    value = strtod(text, &end);
    if (*end || !isfinite(value) || value < 0)
        return false;
    *out = value;
    return true;
}

static bool set_fact(strata_device_facts *facts, const char *name, const char *text)
{
    double value;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *at = (char *)facts + names[i].offset;
        uint32_t small;
        uint64_t large;
        if (strcmp(name, names[i].name) != 0)
            continue;
        if (!parse_rate(text, &value) ||
            (names[i].kind != FACT_F64 && value >= (names[i].kind == FACT_U32 ? 4e9 : 1e18)))
            return false;
        small = names[i].kind == FACT_U32 ? (uint32_t)value : 0;
        large = names[i].kind == FACT_U64 ? (uint64_t)value : 0;
        if (names[i].kind == FACT_U32)
            memcpy(at, &small, sizeof small);
        else if (names[i].kind == FACT_U64)
            memcpy(at, &large, sizeof large);
        else
            memcpy(at, &value, sizeof value);
        return true;
    }
    return false;
}

/* "name = number" with spaces anywhere; an empty line is good too. */
static bool read_line(char *line, strata_device_facts *facts)
{
    char name[64], number[64];
    int used = 0;
    line[strcspn(line, "#\r")] = '\0';
    if (line[strspn(line, " \t")] == '\0')
        return true;
    return sscanf(line, " %63[a-z0-9_] = %63s %n", name, number, &used) == 2 &&
           line[used] == '\0' && set_fact(facts, name, number);
}

bool device_facts_read(const char *path, bool json, strata_device_facts *facts)
{
    uint64_t bytes;
    unsigned number = 1;
    file_fault fault;
    bool good = true;
    char *text = file_read_text(path, FILE_MOST_SETTINGS_BYTES, &bytes, &fault), *next = text;
    if (!text) {
        tool_refuse(fault.status, json, "--device-facts: %s: %s", path, fault.text);
        return false;
    }
    for (; good && next; number++) {
        char *line = next;
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        good = read_line(line, facts);
        if (!good)
            tool_refuse(STRATA_ERR_INVALID_ARGUMENT, json, "%s:%u: not a device fact: %s", path,
                        number, line);
    }
    free(text);
    return good;
}
