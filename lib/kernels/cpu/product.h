/* SPDX-License-Identifier: MIT */
/*
 * Products of activation rows with decoded weights, for one matrix or for a gate and an up matrix
 * of one shape at once.
 *
 * Work comes in groups: some rows against one matrix (a slice of a dense product, or an expert's
 * rows). A batch of groups whose packed rows fit the scratch is run in two loops over the pool:
 * rows are packed, transposed, into tiles of 8 to 32; then each item takes eight outputs of a
 * group, decodes their weights K_STEP values at a time and multiplies them with all tiles of the
 * group. A weight is decoded once per group, and an output is finished while its sums are in cache.
 *
 * Of few rows nothing is packed: each is multiplied as it lies, K along the lanes of a vector. Such
 * sums have another order, the same for any number of rows.
 */
#ifndef STRATA_KERNELS_CPU_PRODUCT_H
#define STRATA_KERNELS_CPU_PRODUCT_H

#include "kernels/cpu/cpu.h"

enum {
    STRATA__GROUP_ROWS = 128, /* most rows of a group: their packed values should fit a cache */
    STRATA__BATCH_GROUPS = 64,
    STRATA__WEIGHT_STRIDE = STRATA__K_STEP + 16 /* decoded rows must not share cache sets */
};

typedef struct strata__product_group {
    const uint8_t *weights[2];
    uint32_t tag;       /* the finisher's: an expert */
    uint32_t first_row; /* of the operation */
    uint32_t rows;
    uint32_t first_tile; /* of the batch */
    uint32_t packed_row; /* of the batch: padded rows before this group */
} strata__product_group;

/* Sums of some outputs of a group: sums[matrix][r * stride + n]. */
typedef struct strata__product_sums {
    const strata__product_group *group;
    float *sums[2];
    uint32_t stride; /* at least outputs; what lies between is memory too */
    uint32_t first_output;
    uint32_t outputs;
} strata__product_sums;

typedef struct strata__product_job {
    strata__cpu_kernels *cpu;
    const void *args;
    void (*finish)(const struct strata__product_job *job, const strata__product_sums *sums);
    uint32_t inputs;
    uint32_t outputs;
    uint32_t matrices; /* 1 or 2 */
    uint32_t formats[2];
    const float *rows;         /* [...][inputs] */
    const uint32_t *row_index; /* row of each row of the operation, or NULL: the same */
    const float *row_factor;   /* with gain: packed value = row * row_factor[row] * gain */
    const float *gain;         /* [inputs] or NULL */
    bool few;                  /* without gain */
    strata__scratch scratch;
    /* the batch */
    uint32_t group_count;
    uint32_t tiles;
    uint32_t packed_rows;
    uint32_t few_span; /* tiles of outputs that an item takes */
    strata__product_group groups[STRATA__BATCH_GROUPS];
} strata__product_job;

/* Adds the products of rows [first_row, first_row + rows); runs batches as they fill up. */
void strata__product_add(strata__product_job *job, const void *first, const void *second,
                         uint32_t tag, uint32_t first_row, uint32_t rows);

/* Runs what has been added. */
void strata__product_flush(strata__product_job *job);

/* Whether products of this object go through BLAS: see product_blas.c. */
bool strata__product_by_blas(const strata__cpu_kernels *cpu);
void strata__product_run_blas(const strata__product_job *job, const strata__product_group *group);

/*
 * Whether the scratch holds the least that a product needs; else a status whose text names `what`.
 */
strata_status strata__product_check_scratch(const char *what, const strata__scratch *scratch,
                                            uint32_t inputs);

#endif
