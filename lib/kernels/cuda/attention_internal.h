/* SPDX-License-Identifier: MIT */
/* Launches behind strata__cuda_attention: one per cache format, and that of Hopper. */
#ifndef STRATA_KERNELS_CUDA_ATTENTION_INTERNAL_H
#define STRATA_KERNELS_CUDA_ATTENTION_INTERNAL_H

#include "cuda_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

strata_status strata__cuda_attention_f16(const strata__cuda_state *state, cudaStream_t stream,
                                         const strata__attention_args *args);
strata_status strata__cuda_attention_q8_0(const strata__cuda_state *state, cudaStream_t stream,
                                          const strata__attention_args *args);
strata_status strata__cuda_attention_f32(const strata__cuda_state *state, cudaStream_t stream,
                                         const strata__attention_args *args);
strata_status strata__cuda_attention_f16_load(void);
strata_status strata__cuda_attention_q8_0_load(void);
strata_status strata__cuda_attention_f32_load(void);

/* Half caches and head sizes of 64, 128 and 256. */
strata_status strata__cuda_attention_hopper(const strata__cuda_state *state, cudaStream_t stream,
                                            const strata__attention_args *args);
strata_status strata__cuda_attention_hopper_load(strata__cuda_state *state);

/* The output of split attention from what its spans left in scratch. */
strata_status strata__cuda_attention_merge(const strata__cuda_state *state, cudaStream_t stream,
                                           const strata__attention_args *args);
strata_status strata__cuda_attention_merge_load(void);

strata_status strata__cuda_qkv_load(void);

/* Head size, page size, format and head counts that the kernels take; `what` begins the text. */
strata_status strata__cuda_check_kv(const strata__kv_view *kv, uint32_t heads, const char *what);

#ifdef __cplusplus
}
#endif

#endif
