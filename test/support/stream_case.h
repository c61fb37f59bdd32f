/* SPDX-License-Identifier: MIT */
/*
 * Sessions that stream a tiny pack's experts on the delaying device, beside one that has them in
 * place.
 */
#ifndef TEST_SUPPORT_STREAM_CASE_H
#define TEST_SUPPORT_STREAM_CASE_H

#include <stdint.h>

#include "device/delaying.h"
#include "session/plan.h"
#include "session/state.h"
#include "support/tiny_pack.h"

enum { STREAM_TOKENS = 96, STREAM_VOCABULARY = 96 };
enum { STREAM_LOGITS = STREAM_TOKENS * STREAM_VOCABULARY };

/* A pack, and what its logits are. */
typedef struct stream_pack {
    uint8_t *image;
    uint64_t image_bytes;
    strata_context *context;
    strata__pack *pack;
    const strata__geometry *geometry;
    const strata__layer *layers;
    uint32_t chunk_tokens;
    int32_t tokens[STREAM_TOKENS];
    float expected[STREAM_LOGITS]; /* of the CPU device, in chunks of chunk_tokens */
} stream_pack;

/*
 * `path`: of a file that the pack is written to and opened from, or NULL: it is opened in memory.
 */
void stream_pack_open(stream_pack *p, const tiny_spec *spec, uint32_t chunk_tokens,
                      const char *path);
/* The same with a context of the caller's making: its allocator. */
void stream_pack_open_in(stream_pack *p, const tiny_spec *spec, uint32_t chunk_tokens,
                         const char *path, const strata_context_options *context);
void stream_pack_close(stream_pack *p);

/* How a session streams. Zeros are good: nothing resident, a ring of two groups of one expert. */
typedef struct stream_options {
    strata__delaying_options device;
    uint32_t group_experts; /* 0: 1 */
    uint32_t ring_pieces;   /* bytes of the ring in largest experts; 0: two groups */
    uint32_t resident;      /* experts of each layer that have a place */
    uint32_t resident_step; /* this many fewer in each next layer */
    uint32_t expert_tile;
    uint32_t dense_tile;
    uint32_t fetch;             /* 1: fetched, 2: streamed, 0: as planned */
    uint64_t host_budget_bytes; /* 0: no limit */
    uint32_t borrow;            /* 1: the prompt's memory is lent by the cache */
    uint32_t register_fails;    /* 1: nothing can be page-locked where it is */
    uint32_t faults;            /* of the session's device, from its opening on */
    uint32_t experts;           /* STRATA_EXPERTS_* that the plan is asked for */
    uint64_t fault_countdown;
    uint32_t decode_rows; /* 0: the most */
    uint32_t reserved;
    const strata_session_options *session; /* more of them, or NULL */
    strata__device **out_device;           /* the session's, for faults; or NULL */
} stream_options;

/* A plan for the delaying device. */
strata_plan *stream_plan(const stream_pack *p, const stream_options *options);

/* The status of creating the session. */
strata_status stream_session(const stream_pack *p, const stream_options *options,
                             strata_session **out);

/* A prefill, the prompt, and the prefill's end; logits of all positions, or none for NULL. */
strata_status stream_read(const stream_pack *p, strata_session *session, float *logits);

/* One prompt in a prefill, with the sequence emptied before. */
strata_status stream_run(const stream_pack *p, strata_prefill *prefill, float *logits,
                         strata_progress_fn progress_fn, void *user_data);

/* A step of `rows` of the prompt's tokens from `at` on; logits: of all positions. */
strata_status stream_decode(const stream_pack *p, strata_session *session, uint64_t at,
                            uint32_t rows, float *logits);

/* Tokens [from, end) in steps of `rows`, compared with the prompt's bits. */
void stream_decode_all(const stream_pack *p, strata_session *session, uint64_t from, uint64_t end,
                       uint32_t rows, float *logits);

/* Makes a session, reads the prompt `times` times and compares every bit. */
void stream_check(const stream_pack *p, const stream_options *options, uint32_t times);

/*
 * How many blobs the expert cache calls present. Each has the pack's bytes where the cache says,
 * and no place is given twice.
 */
uint32_t stream_present(const stream_pack *p, const strata_session *session);

/* How many of them lie where prompts borrow. */
uint32_t stream_present_in_loan(const strata_session *session);

/* Waits until a refill has copied all it can; it is to be published yet. */
void stream_wait_for_refill(const strata_session *session);

void stream_ok(strata_status status);

#endif
