/* SPDX-License-Identifier: MIT */
/* A session on a tiny pack, through the public API alone. */
#ifndef TEST_SUPPORT_SESSION_FIXTURE_H
#define TEST_SUPPORT_SESSION_FIXTURE_H

#include <stdint.h>

#include <strata/strata.h>

#include "support/tiny_pack.h"

typedef struct fixture {
    strata_context *context;
    strata_pack *pack;
    strata_session *session;
    strata_prefill *prefill;
    uint8_t *image;
    uint64_t image_bytes;
} fixture;

enum { FIXTURE_KV_F32, FIXTURE_KV_F16, FIXTURE_KV_Q8_0 };

/* How a session is made; zeros are good: plain loops, float32 KV, one thread. */
typedef struct fixture_options {
    uint64_t chunk_tokens;
    uint64_t context_tokens;
    uint32_t sequence_count;
    uint32_t kv;       /* FIXTURE_KV_* */
    uint32_t use_blas; /* 1: BLAS where built in */
    uint32_t threads;  /* 0: one */
    strata_expert_fn expert_fn;
    void *expert_user_data;
    const strata_context_options *context_options;
} fixture_options;

/* Fails the running test when anything goes wrong. */
void fixture_open(fixture *f, const tiny_spec *spec, const fixture_options *options);
void fixture_close(fixture *f);

/* Appends tokens to a sequence; logits of every position (or of none when logits is NULL). */
strata_status fixture_read(const fixture *f, int32_t sequence, const int32_t *tokens,
                           uint64_t count, float *logits);

/* Random ids below the vocabulary. */
void fixture_tokens(uint64_t seed, uint32_t vocabulary, int32_t *tokens, uint64_t count);

/* Fails the running test, with the detail text, unless the status is STRATA_OK. */
void fixture_ok(strata_status status);

/* Fails unless the detail text of the last failure contains `part`. */
void fixture_text_has(const char *part);

#endif
