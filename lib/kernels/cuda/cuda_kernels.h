/* SPDX-License-Identifier: MIT */
/* What the CUDA kernels share on the host: facts of the device and the launch functions. */
#ifndef STRATA_KERNELS_CUDA_CUDA_KERNELS_H
#define STRATA_KERNELS_CUDA_CUDA_KERNELS_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/error.h"
#include "kernels/kernels.h"

/* Set once when the kernels are created, then only read. */
typedef struct strata__cuda_state {
    int32_t device_ordinal;
    uint32_t compute_capability; /* 90 = 9.0 */
    uint32_t multiprocessors;
    uint32_t level;               /* highest instruction set in use: 80 or 90 */
    uint64_t shared_memory_bytes; /* that a block may ask for */
    void *encode_tensor_map;      /* the driver's cuTensorMapEncodeTiled, or NULL */
    uint32_t overlaps;            /* 1: launches may overlap (launch.cuh) */
    uint32_t hopper_attention;    /* 1: this build's wgmma attention runs on the device */
    uint32_t hopper_products;     /* 1: this build's wgmma products run on the device */
    uint32_t int8_products;       /* STRATA__INT8_PRODUCTS_* */
    /* Bit f: format f's int8 product without an image has tiles of 64 rows beside those of 128. */
    uint64_t inline_few_rows;
} strata__cuda_state;

/* Status of a CUDA runtime code: the text names the code and what was being done. */
strata_status strata__cuda_status(cudaError_t code, const char *what);

/* Loads kernels, with `shared_bytes` of dynamic shared memory where that is not 0. */
strata_status strata__cuda_load_kernels(const void *const *kernels, uint32_t count,
                                        uint32_t shared_bytes);

/*
 * Loads attention and qkv kernels, raises their shared memory limits and fills the state's last
 * fields.
 */
strata_status strata__cuda_attention_load(strata__cuda_state *state);

strata_status strata__cuda_attention(const strata__cuda_state *state, cudaStream_t stream,
                                     const strata__attention_args *args);
strata_status strata__cuda_qkv(const strata__cuda_state *state, cudaStream_t stream,
                               const strata__qkv_args *args);

strata_status strata__cuda_rows_load(void); /* norm, activate, combine, fill */
strata_status strata__cuda_router_load(void);
strata_status strata__cuda_select_load(void);
strata_status strata__cuda_group_load(void);

strata_status strata__cuda_embed(const strata__cuda_state *state, cudaStream_t stream,
                                 const strata__embed_args *args);
strata_status strata__cuda_norm(const strata__cuda_state *state, cudaStream_t stream,
                                const strata__norm_args *args);
strata_status strata__cuda_dense(const strata__cuda_state *state, cudaStream_t stream,
                                 const strata__dense_args *args);
strata_status strata__cuda_router(const strata__cuda_state *state, cudaStream_t stream,
                                  const strata__router_args *args);
strata_status strata__cuda_select(const strata__cuda_state *state, cudaStream_t stream,
                                  const strata__select_args *args);
strata_status strata__cuda_group(const strata__cuda_state *state, cudaStream_t stream,
                                 const strata__group_args *args);
strata_status strata__cuda_activate(const strata__cuda_state *state, cudaStream_t stream,
                                    const strata__activate_args *args);
strata_status strata__cuda_gate_up(const strata__cuda_state *state, cudaStream_t stream,
                                   const strata__gate_up_args *args);
strata_status strata__cuda_down(const strata__cuda_state *state, cudaStream_t stream,
                                const strata__down_args *args);
strata_status strata__cuda_combine(const strata__cuda_state *state, cudaStream_t stream,
                                   const strata__combine_args *args);

strata_status strata__cuda_fill_values(cudaStream_t stream, float *values, uint32_t count,
                                       float value);

#ifdef __cplusplus
}
#endif

#endif
