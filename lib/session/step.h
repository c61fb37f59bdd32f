/* SPDX-License-Identifier: MIT */
/*
 * A step: rows of one or several sequences that pass through all layers together. A prompt's chunk
 * is one; so is a round of decoding. Every address comes from the layout's tables, and every buffer
 * that a launch writes is asked for with its rows, so that a launch which would not fit never
 * starts.
 */
#ifndef STRATA_SESSION_STEP_H
#define STRATA_SESSION_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "session/state.h"

/* Rows of a step that belong to one sequence, one behind the other from `position` on. */
typedef struct strata__step_part {
    const int32_t *tokens;
    uint32_t sequence;
    uint32_t rows;
    uint64_t position;
} strata__step_part;

typedef struct strata__step {
    strata_session *session;
    const strata__layout_work *work;
    uint8_t *base;          /* of the region that the work lies in */
    uint8_t *host;          /* of the host region */
    uint32_t *tile_segment; /* [tiles + 1] first segment of each dense tile, then attention tile */
    uint32_t tile_capacity;
    uint32_t *flag_value;       /* of the last grouping */
    strata__timeline *timeline; /* or NULL */
    strata__feed *feed;         /* NULL: no experts are streamed */
    const strata__step_part *parts;
    uint32_t part_count;
    uint32_t rows;  /* of all parts */
    uint64_t chunk; /* of the prompt, for texts and for the halves of host buffers */
    /*
     * Decoding: every expert has an address, and the host waits for no layer's routing. Operations
     * are composed of what others do one by one.
     */
    bool is_blind;
    bool is_decode; /* of few rows, in the words of kernels.h */
    /*
     * Prompts: every expert has an address and a layer's rows are one launch. The host waits for
     * the routing of the layer before, so that it keeps within a layer of the device.
     */
    bool is_paced;
    uint64_t kv_bound; /* of positions, in what may be run again at later ones; 0: as they are */

    /* set by strata__step_begin() */
    float *x; /* the residual */
    const int32_t *tokens;
    const strata__segment *segments;      /* device */
    const strata__segment *host_segments; /* the same */
    const void *host_tokens;
    uint32_t segment_count;
    uint32_t dense_tiles;

    /* set by strata__step_layer() */
    strata__layout_launch launch;
    uint32_t expert_layer;        /* layers with experts before this one */
    uint32_t acquired_experts;    /* experts below were handed out for this layer */
    const void **pointers;        /* device [3][experts] of the layer */
    const void **host_pointers;   /* what they are copied from */
    const uint32_t *host_offsets; /* of the layer's sorted rows, once they are known */
    /* of the grouping before, which a paced step waits for, or NULL */
    const uint32_t *earlier_flag;
} strata__step;

/* Makes `host` the step's. */
void strata__step_use(strata__step *step, strata__step_host *host);

/* Uploads tokens and segments. The parts' pages must be reserved. */
strata_status strata__step_begin(strata__step *step);

/*
 * The three parts of it: tokens and segments in page-locked memory, the page table on the device
 * if it has changed, and tokens and segments on the device.
 */
strata_status strata__step_prepare(strata__step *step);
strata_status strata__step_upload_pages(strata__step *step);
strata_status strata__step_upload(const strata__step *step);

/* Makes `layer` the present one; the layer count is the final norm and the logits. */
void strata__step_layer(strata__step *step, uint32_t layer);

strata_status strata__step_embed(strata__step *step);
strata_status strata__step_attention(strata__step *step);
/* Between any two launches: blobs that may be sent by now are. */
strata_status strata__step_advance(strata__step *step);

strata_status strata__step_ffn(strata__step *step);
strata_status strata__step_experts(strata__step *step);

/*
 * Logits of rows [first, first + rows) to host memory, row after row. Waits for the device, and
 * with it for everything of the step.
 */
strata_status strata__step_logits(strata__step *step, uint32_t first, uint32_t rows, float *out);

/*
 * Enqueues the logits of rows [first, first + rows), a logit tile at most, and their copy to
 * page-locked memory. The edge configuration is the present one.
 */
strata_status strata__step_enqueue_logits(strata__step *step, uint32_t first, uint32_t rows);

/* Where row `row` of those copied is, once the device has done it. */
const float *strata__step_host_logits(const strata__step *step, uint32_t row);

/*
 * Buffers of the present layer's configuration, or of the work, by rows. The first failure stays in
 * `status`; later calls answer NULL.
 */
typedef struct strata__taker {
    const strata__step *step;
    strata_status status;
} strata__taker;

/*
 * Row `first` of a buffer that is to hold `rows` rows from there. NULL when there is no such
 * buffer.
 */
void *strata__take(strata__taker *taker, uint32_t id, uint64_t first, uint64_t rows);

/* As above; an absent buffer is a failure. */
void *strata__take_needed(strata__taker *taker, uint32_t id, uint64_t first, uint64_t rows);

/* Activation rows and their scales; `scale_id` may be absent. */
strata__rows strata__take_rows(strata__taker *taker, uint32_t id, uint32_t scale_id, uint64_t first,
                               uint64_t rows);

/* A scratch as a whole; empty when there is none. */
strata__scratch strata__take_scratch(strata__taker *taker, uint32_t id);

/* One layer's pages. */
strata__kv_view strata__step_kv(const strata__step *step);

/* Row `row` of the residual. */
float *strata__step_residual(const strata__step *step, uint32_t row);

/* The norm of rows of the residual; where it goes is the caller's to say. */
strata__norm_args strata__step_norm(const strata__step *step, const float *gain, uint32_t first,
                                    uint32_t rows);

/* Adds the product of `args` (weight, in, scratch and what is its own) to rows of the residual. */
strata_status strata__step_add_dense(const strata__step *step, strata__dense_args *args,
                                     uint32_t first, uint32_t rows);

/* A dense weight for an operation that runs before it is read. */
strata__ahead strata__step_ahead(const strata__weight *weight);
/* The projections of the layer behind this one, or as many as lie together. */
strata__ahead strata__step_next_projections(const strata__step *step);

/* Host region of a work and session region, by buffer id. NULL when there is none. */
void *strata__host_buffer(const strata__layout_work *work, uint8_t *host_base, uint32_t id);
void *strata__session_buffer(const strata_session *session, uint32_t id);

#endif
