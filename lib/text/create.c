/* SPDX-License-Identifier: MIT */
/* Makes a tokenizer from a file's vocabulary. */
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "text/tokenizer.h"

static bool is(const strata__text_string *string, const char *text)
{
    return string->bytes && strlen(text) == string->count &&
           memcmp(string->bytes, text, string->count) == 0;
}

/* For texts and names: cut to fit, printable. */
static void copy_name(char *field, uint64_t field_bytes, const strata__text_string *string)
{
    uint64_t count = string->count < field_bytes - 1 ? string->count : field_bytes - 1;
    for (uint64_t i = 0; i < count; i++) {
        char byte = string->bytes[i];
        field[i] = byte >= ' ' && byte <= '~' ? byte : '?';
    }
    field[count] = '\0';
}

static strata_status make_byte_pairs(const strata__allocator *allocator,
                                     const strata__text_source *source, strata_tokenizer *t)
{
    const strata__text_string absent = {"default", 7};
    const strata__text_string *pre = source->pre.bytes ? &source->pre : &absent;
    const strata__pattern *pattern = strata__pattern_find(pre->bytes, pre->count);
    strata_status status;
    copy_name(t->info.pre, sizeof t->info.pre, pre);
    if (!pattern)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "tokenizer.ggml.pre is \"%s\", which this library does not know",
                            t->info.pre);
    t->whole_words = pattern->whole_words;
    t->info.add_bos = source->add_bos >= 0 ? source->add_bos > 0 : pattern->add_bos;
    t->info.add_eos = source->add_eos > 0;
    status = strata__splitter_create(allocator, pattern, &t->splitter);
    if (status != STRATA_OK)
        return status;
    return strata__pairs_from_merges(allocator, source, &t->vocabulary, &t->pairs);
}

static void find_joins(const strata__text_vocabulary *v, bool *joins_space)
{
    for (uint32_t id = 0; id < v->count; id++) {
        if (v->types[id] != STRATA__TOKEN_NORMAL && v->types[id] != STRATA__TOKEN_ABSENT &&
            v->types[id] != STRATA__TOKEN_USER)
            continue;
        for (uint64_t i = v->offsets[id] + 1; i < v->offsets[id + 1]; i++)
            if (v->bytes[i] == ' ' && v->bytes[i - 1] != ' ')
                joins_space[v->bytes[i - 1]] = true;
    }
}

static strata_status make_sentencepiece(const strata__allocator *allocator,
                                        const strata__text_source *source, strata_tokenizer *t)
{
    find_joins(&t->vocabulary, t->joins_space);
    t->info.add_bos = source->add_bos != 0;
    t->info.add_eos = source->add_eos > 0;
    t->info.add_space = source->add_space_prefix != 0;
    return strata__pairs_from_scores(allocator, source, &t->vocabulary, &t->pairs);
}

static strata_status make(const strata__text_source *source, strata_tokenizer *t)
{
    const strata__allocator *allocator = &t->context->allocator;
    const bool byte_pairs = is(&source->model, "gpt2");
    strata_status status;
    copy_name(t->info.model, sizeof t->info.model, &source->model);
    if (!source->model.bytes)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "the pack names no tokenizer.ggml.model");
    if (!byte_pairs && !is(&source->model, "llama"))
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "tokenizer.ggml.model is \"%s\"; gpt2 and llama are supported",
                            t->info.model);
    status = strata__text_vocabulary_build(allocator, source, &t->vocabulary);
    if (status != STRATA_OK)
        return status;
    t->info.token_count = t->vocabulary.count;
    t->info.bos_token = (int32_t)source->bos;
    t->info.eos_token = (int32_t)source->eos;
    t->info.unknown_token = (int32_t)source->unknown;
    status = byte_pairs ? make_byte_pairs(allocator, source, t)
                        : make_sentencepiece(allocator, source, t);
    t->info.add_bos = t->info.add_bos && t->info.bos_token >= 0;
    t->info.add_eos = t->info.add_eos && t->info.eos_token >= 0;
    return status == STRATA_OK ? strata__special_build(allocator, &t->vocabulary, &t->special)
                               : status;
}

strata_status strata__text_create(strata_context *context, const strata__text_source *source,
                                  strata_tokenizer **out)
{
    strata_tokenizer *tokenizer = strata__calloc(&context->allocator, 1, sizeof *tokenizer);
    strata_status status;
    *out = NULL;
    if (!tokenizer)
        return strata__fail_memory(sizeof *tokenizer, "a tokenizer");
    tokenizer->context = strata__context_retain(context);
    status = make(source, tokenizer);
    if (status == STRATA_OK)
        *out = tokenizer;
    else
        strata__text_destroy(tokenizer);
    return status;
}

void strata__text_destroy(strata_tokenizer *tokenizer)
{
    strata_context *context;
    if (!tokenizer)
        return;
    context = tokenizer->context;
    strata__splitter_destroy(tokenizer->splitter);
    strata__special_release(&context->allocator, &tokenizer->special);
    strata__pairs_release(&context->allocator, &tokenizer->pairs);
    strata__text_vocabulary_release(&context->allocator, &tokenizer->vocabulary);
    strata__free(&context->allocator, tokenizer, sizeof *tokenizer);
    strata__context_release(context);
}

void strata__text_info(const strata_tokenizer *tokenizer, strata_tokenizer_info *out)
{
    *out = tokenizer->info;
}
