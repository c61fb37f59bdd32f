/* SPDX-License-Identifier: MIT */
/*
 * Products of activation rows with quantised weights, in two stages: decoders write a group of
 * weights to scratch as the image that the products read, then one grouped product runs over it.
 *
 * Image. Rows of weights are cut in slabs of 128 and values in blocks of 64. The image of a slab is
 * its blocks one after the other; a block is 128 rows of 64 halves (128 bytes), and the eight
 * 16-byte chunks of row r are permuted by chunk ^ (r & 7). So a block is 16 KiB in one piece, and
 * in shared memory it is what ldmatrix and wgmma read without bank conflicts. Values beyond the
 * inputs are zero. A paired image (gate and up) has eight rows of gate, the same eight of up, and
 * so on, so that both results of an output meet in one thread.
 */
#ifndef STRATA_KERNELS_CUDA_PRODUCTS_H
#define STRATA_KERNELS_CUDA_PRODUCTS_H

#include "kernels/cuda/cuda_kernels.h"

enum {
    STRATA__SLAB_ROWS = 128,
    STRATA__BLOCK_VALUES = 64,
    STRATA__BLOCK_BYTES = STRATA__SLAB_ROWS * STRATA__BLOCK_VALUES * 2,
    STRATA__TILE_ROWS = 128,      /* activation rows of a product's tile */
    STRATA__PASS_EXPERTS = 512,   /* at most, in one launch */
    STRATA__SHARED_LIMIT = 101376 /* 99 KiB: what every supported device gives a block */
};

/* One matrix, or the same matrix of many experts. */
typedef struct strata__cuda_matrix {
    const void *const *blobs; /* device [experts], or NULL */
    const void *data;         /* when blobs is NULL */
    const float *bias;        /* [experts][outputs] or NULL */
    uint32_t format;
} strata__cuda_matrix;

/* Sorted rows of the experts of a launch; offsets NULL: one expert, rows [0, rows). */
typedef struct strata__cuda_range {
    const uint32_t *offsets; /* device [experts + 1], of the launch's first expert */
    uint32_t first_expert;
    uint32_t experts;
    uint32_t first_row;
    uint32_t rows;
} strata__cuda_range;

/* A decoder's launch: weight rows [first_slab, first_slab + slabs) of each expert to scratch. */
typedef struct strata__decode_args {
    strata__cuda_matrix matrix[2];
    strata__cuda_range range;
    uint8_t *image;
    float *row_scale;  /* set to 1 for all rows of the range, or NULL */
    const float *only; /* decode an expert only if one of its rows has a scale above 1, or NULL */
    uint32_t matrices; /* 2: a paired image */
    uint32_t inputs;
    uint32_t outputs; /* of each matrix */
    uint32_t first_slab;
    uint32_t slabs;
} strata__decode_args;

/*
 * What becomes of a product y = in . weight:
 *   (y + bias) * alpha * row_factor[row] * expert_scale[expert], stored as float32, added to
 *   float32, or stored as activation rows; paired: activation(gate + bias, up + bias) as rows.
 */
typedef struct strata__product_args {
    strata__cuda_range range;
    const uint8_t *image;
    const uint16_t *in; /* halves, [rows of in][inputs] */
    const float *in_scale;
    /* row of `in` of each sorted row, or NULL: the row itself, less first_row */
    const uint32_t *in_row;
    const float *bias; /* [experts][outputs] from expert 0, or NULL */
    const float *up_bias;
    const float *expert_scale;
    const float *row_factor;
    float *out;
    uint16_t *out_rows;
    float *out_scale;
    uint32_t out_stride;
    uint32_t inputs;
    uint32_t outputs;
    uint32_t end; /* outputs [.., end) are in the image */
    uint32_t first_slab;
    uint32_t slabs; /* of each expert in the image */
    uint32_t mode;  /* strata__dense_mode */
    uint32_t activation;
    uint32_t fix; /* 1: only tiles with a row whose out_scale is above 1, with those scales */
    float alpha;
} strata__product_args;

/* A product of few rows that reads the blocks in place. */
typedef struct strata__direct_args {
    strata__cuda_matrix matrix[2];
    uint32_t matrices;
    uint32_t reserved;
    strata__product_args product;
} strata__direct_args;

#ifdef __cplusplus
extern "C" {
#endif

strata_status strata__cuda_decode_load(void);
strata_status strata__cuda_decode(const strata__cuda_state *state, cudaStream_t stream,
                                  const strata__decode_args *args);

strata_status strata__cuda_direct_load(void);
strata_status strata__cuda_direct(cudaStream_t stream, const strata__direct_args *args);

strata_status strata__cuda_product_sm80_load(void);
strata_status strata__cuda_product_sm80(uint32_t multiprocessors, cudaStream_t stream, bool paired,
                                        const strata__product_args *args);

/* Only in builds for sm_90a. */
strata_status strata__cuda_product_sm90_load(void);
strata_status strata__cuda_product_sm90(const strata__cuda_state *state, cudaStream_t stream,
                                        bool paired, const strata__product_args *args);

/*
 * Rows of float32 from any format: out[i] = row (index ? index[i] : i) of the table, times scale.
 */
typedef struct strata__float_rows_args {
    const void *table;
    const int32_t *index;
    float *out;
    uint32_t format;
    uint32_t inputs;
    uint32_t rows;
    float scale;
} strata__float_rows_args;

strata_status strata__cuda_float_rows_load(void);
strata_status strata__cuda_float_rows(cudaStream_t stream, const strata__float_rows_args *args);

#ifdef __cplusplus
}
#endif

#endif
