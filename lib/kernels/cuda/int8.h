/* SPDX-License-Identifier: MIT */
/*
 * The experts on paths fused and mmq. kernels/int8.h has the arithmetic. One product decodes raw
 * blocks itself (int8_inline.cuh). The other has two stages: decoders write the int8 form of a
 * group of weights to scratch, an image, over which a grouped product runs.
 *
 * Image. Rows of weights are cut in slabs of 128 and values in blocks of 128. A block is 128 rows
 * of 128 codes, whose eight 16-byte chunks are permuted by chunk ^ (row & 7), then the scales
 * [group][row] of its groups of D values, and the offsets [group][row] of values that share one.
 * Gate and up are interleaved as in products.h.
 */
#ifndef STRATA_KERNELS_CUDA_INT8_H
#define STRATA_KERNELS_CUDA_INT8_H

#include "kernels/cuda/products.h"

enum {
    STRATA__INT8_K = 128, /* values of a block */
    STRATA__INT8_CODE_BYTES = STRATA__SLAB_ROWS * STRATA__INT8_K,
    STRATA__INT8_SCALE_BYTES = STRATA__INT8_K / 16 * STRATA__SLAB_ROWS * 4,
    STRATA__INT8_IMAGE_BYTES = STRATA__INT8_CODE_BYTES + 2 * STRATA__INT8_SCALE_BYTES
};

/* How a matrix is summed: values of a dot, and what comes with it. */
enum {
    STRATA__INT8_SUM_16,
    STRATA__INT8_SUM_32,
    STRATA__INT8_SUM_32_OFFSETS,
    STRATA__INT8_SUM_32_TWO_OFFSETS, /* of 16 values each */
    STRATA__INT8_SUM_32_WIDE,        /* scales of up to 2^126 */
    STRATA__INT8_SUM_64
};

typedef struct strata__int8_form {
    uint32_t values;  /* D, of a dot */
    uint32_t offsets; /* values that share one; 0: there are none */
    uint32_t kind;
} strata__int8_form;

typedef struct strata__int8_decode_args {
    strata__cuda_matrix matrix[2];
    strata__int8_form form[2];
    strata__cuda_range range;
    uint8_t *image;
    uint32_t matrices; /* 2: a paired image */
    uint32_t inputs;
    uint32_t outputs; /* of each matrix */
    uint32_t first_slab;
    uint32_t slabs;
} strata__int8_decode_args;

/*
 * y = (rows . weight + bias) * expert_scale as float32; paired: activation(gate + bias, up + bias)
 * as quantised rows.
 */
typedef struct strata__int8_product_args {
    strata__cuda_range range;
    strata__int8_form form[2];
    const uint8_t *image;
    const uint8_t *rows; /* quantised, of the range */
    const float *bias;   /* [experts][outputs] from expert 0, or NULL */
    const float *up_bias;
    const float *expert_scale;
    float *out;
    uint8_t *h;
    uint32_t out_stride;
    uint32_t inputs;
    uint32_t outputs;
    uint32_t end; /* outputs [.., end) are in the image */
    uint32_t first_slab;
    uint32_t slabs;
    uint32_t h_group; /* values per scale of h */
    uint32_t activation;
} strata__int8_product_args;

/* The same product from raw blocks; gate and up, where paired, are of one format. */
typedef struct strata__int8_inline_args {
    strata__cuda_matrix matrix[2];
    uint32_t matrices; /* 2: paired */
    uint32_t reserved;
    strata__int8_product_args product; /* without form, image and slabs */
} strata__int8_inline_args;

/* Rows to quantised rows: halves with a scale each, or activations of float32 gate and up. */
typedef struct strata__int8_rows_args {
    const uint16_t *in;
    const float *in_scale;
    const uint32_t *in_row; /* row of `in` of each row */
    const float *gate_up;   /* [rows][2 * width], or NULL: `in` is taken */
    uint8_t *out;
    uint32_t rows;
    uint32_t width;
    uint32_t group; /* values per scale: 32 or 64 */
    uint32_t activation;
} strata__int8_rows_args;

#ifdef __cplusplus
extern "C" {
#endif

strata_status strata__cuda_int8_load(strata__cuda_state *state);
strata_status strata__cuda_int8_decode_load(void);
strata_status strata__cuda_int8_product_load(const strata__cuda_state *state);
strata_status strata__cuda_int8_inline_load(strata__cuda_state *state);

strata_status strata__cuda_int8_rows(cudaStream_t stream, const strata__int8_rows_args *args);
strata_status strata__cuda_int8_decode(cudaStream_t stream, const strata__int8_decode_args *args);
strata_status strata__cuda_int8_product(const strata__cuda_state *state, cudaStream_t stream,
                                        bool paired, const strata__int8_product_args *args);

strata_status strata__cuda_int8_inline(const strata__cuda_state *state, cudaStream_t stream,
                                       const strata__int8_inline_args *args);

strata_status strata__cuda_int8_gate_up(const strata__cuda_state *state, cudaStream_t stream,
                                        const strata__gate_up_args *args);
strata_status strata__cuda_int8_down(const strata__cuda_state *state, cudaStream_t stream,
                                     const strata__down_args *args);

#ifdef __cplusplus
}
#endif

#endif
