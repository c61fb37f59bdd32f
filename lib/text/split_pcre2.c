/* SPDX-License-Identifier: MIT */
/* The splitter on PCRE2, compiled just in time where PCRE2 can. */
#include "text/split.h"

#include <stdbool.h>
#include <stddef.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"

/* PCRE2 frees without a size: it is kept before the block. */
enum { PREFIX_BYTES = 16 };

struct strata__splitter {
    const strata__allocator *allocator;
    const strata__pattern *pattern;
    pcre2_general_context *general;
    pcre2_code *stages[STRATA__PATTERN_STAGES];
    bool compiled[STRATA__PATTERN_STAGES]; /* just in time */
    uint32_t stage_count;
};

typedef struct split_run {
    const strata__splitter *splitter;
    pcre2_match_data *match_data;
    pcre2_match_context *match_context;
    const uint8_t *text;
    strata__word_fn word_fn;
    void *user_data;
} split_run;

static void *pcre2_take(PCRE2_SIZE bytes, void *user_data)
{
    uint64_t *block;
    if (bytes > UINT64_MAX - PREFIX_BYTES)
        return NULL;
    block = strata__alloc(user_data, bytes + PREFIX_BYTES);
    if (!block)
        return NULL;
    *block = bytes + PREFIX_BYTES;
    return (uint8_t *)block + PREFIX_BYTES;
}

static void pcre2_give(void *pointer, void *user_data)
{
    uint64_t *block;
    if (!pointer)
        return;
    block = (uint64_t *)(void *)((uint8_t *)pointer - PREFIX_BYTES);
    strata__free(user_data, block, *block);
}

static strata_status compile_stage(strata__splitter *splitter, uint32_t stage)
{
    const char *expression = splitter->pattern->stages[stage];
    pcre2_compile_context *context = pcre2_compile_context_create(splitter->general);
    PCRE2_SIZE offset = 0;
    int code = 0;
    if (!context)
        return strata__fail_memory(0, "the pre-tokenizer's expressions");
    splitter->stages[stage] = pcre2_compile(
        (PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED,
        PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C, &code, &offset, context);
    pcre2_compile_context_free(context);
    if (splitter->stages[stage]) {
        splitter->compiled[stage] =
            pcre2_jit_compile(splitter->stages[stage], PCRE2_JIT_COMPLETE) == 0;
        return STRATA_OK;
    }
    if (code == PCRE2_ERROR_HEAP_FAILED)
        return strata__fail_memory(0, "the pre-tokenizer's expressions");
    return strata__fail(STRATA_ERR_INTERNAL, "pre-tokenizer %s: PCRE2 code %d at %u of \"%s\"",
                        splitter->pattern->name, code, (unsigned)offset, expression);
}

strata_status strata__splitter_create(const strata__allocator *allocator,
                                      const strata__pattern *pattern, strata__splitter **out)
{
    strata__splitter *splitter = strata__calloc(allocator, 1, sizeof *splitter);
    strata_status status = STRATA_OK;
    *out = NULL;
    if (!splitter)
        return strata__fail_memory(sizeof *splitter, "a pre-tokenizer");
    splitter->allocator = allocator;
    splitter->pattern = pattern;
    /* PCRE2 takes the pointer back as it is and the allocator is only read. */
    splitter->general =
        pcre2_general_context_create(pcre2_take, pcre2_give, (void *)(uintptr_t)allocator);
    if (!splitter->general)
        status = strata__fail_memory(0, "the pre-tokenizer's expressions");
    while (status == STRATA_OK && pattern->stages[splitter->stage_count]) {
        status = compile_stage(splitter, splitter->stage_count);
        splitter->stage_count++;
    }
    if (status == STRATA_OK)
        *out = splitter;
    else
        strata__splitter_destroy(splitter);
    return status;
}

void strata__splitter_destroy(strata__splitter *splitter)
{
    if (!splitter)
        return;
    for (uint32_t i = 0; i < splitter->stage_count; i++)
        pcre2_code_free(splitter->stages[i]);
    pcre2_general_context_free(splitter->general);
    strata__free(splitter->allocator, splitter, sizeof *splitter);
}

static strata_status match_failure(const split_run *run, uint64_t at, int code)
{
    const char *name = run->splitter->pattern->name;
    switch (code) {
    case PCRE2_ERROR_NOMEMORY:
        return strata__fail_memory(0, "matching the pre-tokenizer's expressions");
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
    case PCRE2_ERROR_HEAPLIMIT:
    case PCRE2_ERROR_JIT_STACKLIMIT:
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "pre-tokenizer %s: the text from byte %llu on takes more than PCRE2's "
                            "limits allow (code %d)",
                            name, (unsigned long long)at, code);
    default:
        return strata__fail(STRATA_ERR_INTERNAL, "pre-tokenizer %s: PCRE2 code %d at byte %llu",
                            name, code, (unsigned long long)at);
    }
}

static int match(const split_run *run, uint32_t stage, const uint8_t *text, uint64_t bytes,
                 uint64_t from)
{
    const strata__splitter *splitter = run->splitter;
    int code = PCRE2_ERROR_JIT_STACKLIMIT;
    if (splitter->compiled[stage])
        code = pcre2_jit_match(splitter->stages[stage], text, bytes, from, 0, run->match_data,
                               run->match_context);
    if (code == PCRE2_ERROR_JIT_STACKLIMIT)
        code = pcre2_match(splitter->stages[stage], text, bytes, from,
                           PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, run->match_data, run->match_context);
    return code;
}

/* Matches are pieces, and so is what lies between two of them; each goes on to the next stage. */
static strata_status cut(const split_run *run, uint32_t stage, uint64_t begin, uint64_t end)
{
    const uint8_t *text = run->text + begin;
    const uint64_t bytes = end - begin;
    uint64_t done = 0;
    strata_status status = STRATA_OK;
    if (stage == run->splitter->stage_count)
        return run->word_fn(run->user_data, begin, end);
    while (status == STRATA_OK && done < bytes) {
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(run->match_data);
        uint64_t from = bytes, to = bytes;
        int code = match(run, stage, text, bytes, done);
        if (code < 0 && code != PCRE2_ERROR_NOMATCH)
            return match_failure(run, begin + done, code);
        if (code >= 0 && range[1] > range[0]) {
            from = range[0];
            to = range[1];
        }
        if (from > done)
            status = cut(run, stage + 1, begin + done, begin + from);
        if (status == STRATA_OK && to > from)
            status = cut(run, stage + 1, begin + from, begin + to);
        done = to;
    }
    return status;
}

/* Work that a text of this length may take, linear in it. */
static uint32_t match_limit(uint64_t bytes)
{
    const uint64_t least = 10000000, per_byte = 16;
    return bytes > (UINT32_MAX - least) / per_byte ? UINT32_MAX
                                                   : (uint32_t)(least + bytes * per_byte);
}

strata_status strata__splitter_run(const strata__splitter *splitter, const uint8_t *text,
                                   uint64_t begin, uint64_t end, strata__word_fn word_fn,
                                   void *user_data)
{
    split_run run = {splitter, NULL, NULL, text, word_fn, user_data};
    strata_status status;
    run.match_data = pcre2_match_data_create(1, splitter->general);
    run.match_context = pcre2_match_context_create(splitter->general);
    if (run.match_data && run.match_context) {
        pcre2_set_match_limit(run.match_context, match_limit(end - begin));
        status = cut(&run, 0, begin, end);
    } else {
        status = strata__fail_memory(0, "matching the pre-tokenizer's expressions");
    }
    pcre2_match_context_free(run.match_context);
    pcre2_match_data_free(run.match_data);
    return status;
}
