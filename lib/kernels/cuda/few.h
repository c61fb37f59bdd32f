/* SPDX-License-Identifier: MIT */
/*
 * Products of up to STRATA__DIRECT_ROWS rows for decoding: the launches behind the composed
 * operations, and how a product is shared out. A tile of 16 outputs is a thread block's work; its
 * values are cut in slices of 256 that the warps take in turn, and the warps' sums are added in
 * ascending order. The cut follows from the format and the inputs alone, so that a row has the same
 * bits whatever is beside it.
 */
#ifndef STRATA_KERNELS_CUDA_FEW_H
#define STRATA_KERNELS_CUDA_FEW_H

#include "base/bounds.h"
#include "kernels/cuda/products.h"

enum {
    STRATA__FEW_TILE = 16,   /* outputs */
    STRATA__FEW_SLICE = 256, /* values */
    STRATA__FEW_WARPS = 16,  /* most that share a tile's slices */
    STRATA__FEW_MAX_PAIRS = STRATA__DIRECT_ROWS * STRATA__MAX_TOP_K /* rows and their experts */
};

/*
 * How the slices of a row are shared out, and how many rows of weights are copied to shared memory
 * at once: all of a tile in one piece where it fits, else chunks of some slices, two under way.
 */
typedef struct strata__few_cut {
    uint32_t slices;
    uint32_t warps; /* that share a chunk's slices */
    uint32_t chunk; /* slices */
    uint32_t chunks;
    uint32_t stage_bytes; /* of a chunk */
    uint32_t row_inverse; /* at * row_inverse >> 32 is at / bytes of a row, within a tile */
    uint32_t pass_rows;   /* most activation rows at a time, where weights have them by passes */
} strata__few_cut;

/* Bytes of a matrix's tile: as a whole, or of each of two chunks under way; and warps. */
typedef struct strata__few_limits {
    uint32_t whole_bytes;
    uint32_t chunk_bytes;
    uint32_t warps;
} strata__few_limits;

/* One product of a launch. */
typedef struct strata__few_part {
    const uint8_t *weights;
    const float *bias;
    const float *row_factor;
    float *out;
    uint32_t outputs;
    uint32_t out_stride;
    uint32_t first_tile; /* of the launch */
    uint32_t mode;       /* strata__dense_mode, as float32 */
    float alpha;
} strata__few_part;

typedef struct strata__few_dense_args {
    strata__few_part part[STRATA__PROJECT_PARTS];
    const uint16_t *in; /* halves with a scale a row, or NULL: norm of x */
    const float *in_scale;
    const float *x;
    const float *gain;
    strata__few_cut cut;
    uint32_t parts;
    uint32_t rows;
    uint32_t inputs;
    uint32_t row_bytes;
    float eps;
} strata__few_dense_args;

typedef struct strata__few_gate_up_args {
    const void *const *blobs[2];
    const float *bias[2];
    const uint32_t *offsets;
    const uint32_t *sorted_row;
    const uint16_t *in;
    const float *in_scale;
    float *h; /* [pairs][outputs] */
    strata__few_cut cut;
    uint32_t experts;
    uint32_t rows; /* most of an expert */
    uint32_t pass_rows;
    uint32_t inputs;
    uint32_t outputs;
    uint32_t row_bytes;
    uint32_t activation;
} strata__few_gate_up_args;

typedef struct strata__few_down_args {
    const void *const *blobs;
    const float *bias;
    const float *expert_scale;
    const uint32_t *offsets;
    const uint32_t *sorted_index; /* [rows][top_k] */
    const float *weights;         /* [rows][top_k] */
    const float *h;
    float *x;
    strata__few_cut cut;
    uint32_t experts;
    uint32_t at_once; /* experts a thread block multiplies side by side */
    uint32_t rows;
    uint32_t pass_rows;
    uint32_t top_k;
    uint32_t inputs;
    uint32_t outputs;
    uint32_t row_bytes;
    float alpha;
} strata__few_down_args;

#ifdef __cplusplus
extern "C" {
#endif

/* False for formats and shapes that the kernels for few rows do not take. */
bool strata__few_takes(uint32_t format, uint32_t inputs);

bool strata__few_takes_dense(const strata__dense_args *args);

strata_status strata__few_load(const strata__cuda_state *state);
/* Kernels that may have all shared memory that the device gives a block. */
strata_status strata__few_load_kernels(const strata__cuda_state *state, const void *const *kernels,
                                       uint32_t count);
strata_status strata__few_dense_load(const strata__cuda_state *state);
strata_status strata__few_gate_up_load(const strata__cuda_state *state);
strata_status strata__few_down_load(const strata__cuda_state *state);
strata_status strata__few_route_load(void);

/* Launches; the cut and what follows from the format is filled in here. */
strata_status strata__few_dense(const strata__cuda_state *state, cudaStream_t stream,
                                uint32_t format, strata__few_dense_args *args);
strata_status strata__few_gate_up(const strata__cuda_state *state, cudaStream_t stream,
                                  uint32_t format, uint32_t pairs, strata__few_gate_up_args *args);
strata_status strata__few_down(const strata__cuda_state *state, cudaStream_t stream,
                               uint32_t format, strata__few_down_args *args);

/* norm and router in one launch, for float32 routers; choice and grouping in another. */
strata_status strata__few_router(const strata__cuda_state *state, cudaStream_t stream,
                                 const strata__route_args *route);
strata_status strata__few_choose(const strata__cuda_state *state, cudaStream_t stream,
                                 const strata__select_args *select,
                                 const strata__group_args *group);

/* The composed operations (kernels.h) and dense for few rows. */
strata_status strata__cuda_few_dense(const strata__cuda_state *state, cudaStream_t stream,
                                     const strata__dense_args *args);
strata_status strata__cuda_project(strata__kernels *kernels, const strata__cuda_state *state,
                                   cudaStream_t stream, const strata__project_args *args);
strata_status strata__cuda_route(strata__kernels *kernels, const strata__cuda_state *state,
                                 cudaStream_t stream, const strata__route_args *args);
strata_status strata__cuda_experts(strata__kernels *kernels, const strata__cuda_state *state,
                                   cudaStream_t stream, const strata__experts_args *args);

#ifdef __cplusplus
}
#endif

#endif
