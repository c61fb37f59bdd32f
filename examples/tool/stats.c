/* SPDX-License-Identifier: MIT */
#include "stats.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "file.h"
#include "text.h"

/* A number of the structure, by name. */
typedef struct field {
    const char *name;
    size_t offset;
    bool counts; /* it only grows */
} field;

#define COUNT(name)                                                                                \
    {                                                                                              \
#name, offsetof(strata_session_stats, name), true                                          \
    }
#define SIZE(name)                                                                                 \
    {                                                                                              \
#name, offsetof(strata_session_stats, name), false                                         \
    }

static const field fields[] = {
    COUNT(prompt_tokens),      COUNT(prompt_chunks),      COUNT(prompt_ns),
    COUNT(kernel_ns),          COUNT(blob_wait_ns),       COUNT(host_gap_ns),
    COUNT(expert_rows),        COUNT(expert_launches),    COUNT(blob_sent_bytes),
    COUNT(blob_slow_bytes),    COUNT(decode_tokens),      COUNT(decode_steps),
    COUNT(decode_ns),          COUNT(decode_hit_bytes),   COUNT(decode_place_bytes),
    COUNT(decode_fetch_bytes), COUNT(decode_admit_bytes), COUNT(blob_hit_bytes),
    COUNT(blob_dropped_bytes), COUNT(blob_vain_bytes),    COUNT(blob_filled_bytes),
    COUNT(refill_bytes),       COUNT(link_bytes),         COUNT(link_ns),
    SIZE(lock_wanted_bytes),   SIZE(lock_bytes),          SIZE(lock_refused_bytes),
    SIZE(device_bytes),        SIZE(host_bytes),          SIZE(device_runtime_bytes),
};

enum { FIELD_COUNT = sizeof fields / sizeof fields[0] };

static uint64_t value_of(const strata_session_stats *stats, const field *f)
{
    uint64_t value;
    memcpy(&value, (const char *)stats + f->offset, sizeof value);
    return value;
}

strata_session_stats stats_between(const strata_session_stats *before,
                                   const strata_session_stats *after)
{
    strata_session_stats out = *after;
    for (int i = 0; i < FIELD_COUNT; i++) {
        uint64_t value = value_of(after, &fields[i]);
        if (fields[i].counts)
            value -= value_of(before, &fields[i]);
        memcpy((char *)&out + fields[i].offset, &value, sizeof value);
    }
    return out;
}

void stats_json(json_writer *json, const strata_session_stats *stats)
{
    json_object(json, "stats");
    for (int i = 0; i < FIELD_COUNT; i++)
        json_u64(json, fields[i].name, value_of(stats, &fields[i]));
    json_end(json);
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

void stats_text(const strata_session_stats *s, FILE *out)
{
    if (s->blob_sent_bytes + s->blob_hit_bytes == 0)
        return;
    fprintf(out, "time: kernels %.1f %%, waiting for experts %.1f %%, host %.1f %%\n",
            share(s->kernel_ns, s->prompt_ns), share(s->blob_wait_ns, s->prompt_ns),
            share(s->host_gap_ns, s->prompt_ns));
    fprintf(out, "experts: sent %s", text_of_bytes(s->blob_sent_bytes).text);
    fprintf(out, ", there already %s", text_of_bytes(s->blob_hit_bytes).text);
    fprintf(out, ", left out %s", text_of_bytes(s->blob_dropped_bytes).text);
    fprintf(out, ", in vain %s", text_of_bytes(s->blob_vain_bytes).text);
    fprintf(out, "; link %.1f GB/s\n", s->link_ns ? (double)s->link_bytes / (double)s->link_ns : 0);
    if (s->lock_refused_bytes)
        fprintf(out, "page-locking of %s was refused: these experts are sent slower\n",
                text_of_bytes(s->lock_refused_bytes).text);
}

strata_status stats_wait_for_locks(const strata_session *session)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    strata_session_stats stats = {.struct_size = sizeof stats};
    strata_status status = strata_session_stats_get(session, &stats);
    while (status == STRATA_OK &&
           stats.lock_bytes + stats.lock_refused_bytes < stats.lock_wanted_bytes) {
        nanosleep(&pause, NULL);
        status = strata_session_stats_get(session, &stats);
    }
    return status;
}

bool profile_read(const char *path, bool json, void **out, uint64_t *out_bytes)
{
    file_fault fault;
    *out_bytes = 0;
    *out = file_read(path, FILE_MOST_PROFILE_BYTES, out_bytes, &fault);
    if (!*out && fault.error == ENOENT)
        return true;
    if (!*out)
        tool_refuse(fault.status, json, "%s: %s", path, fault.text);
    tool_names_file("profile", path);
    return *out != NULL;
}

void profile_write(const char *path, strata_session *session, failure *out)
{
    uint64_t bytes = 0;
    void *profile = NULL;
    file_fault fault;
    strata_status status = strata_session_profile(session, NULL, 0, &bytes);
    if (status == STRATA_OK && !(profile = malloc(bytes)))
        status = tool_own(STRATA_ERR_NO_MEMORY);
    if (status == STRATA_OK)
        status = strata_session_profile(session, profile, bytes, &bytes);
    if (status != STRATA_OK)
        failure_of_call(out, "cannot take the profile", status);
    else if (!file_save(path, profile, bytes, &fault))
        failure_of_tool(out, fault.status, "%s: %s", path, fault.text);
    free(profile);
}
