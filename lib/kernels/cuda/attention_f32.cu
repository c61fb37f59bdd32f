/* SPDX-License-Identifier: MIT */
/* The portable attention over a cache of float32 values. */
#include "attention_portable_launch.cuh"

extern "C" strata_status strata__cuda_attention_f32(const strata__cuda_state *state,
                                                    cudaStream_t stream,
                                                    const strata__attention_args *args)
{
    return launch_format<STRATA__KV_F32>(state, stream, *args);
}

extern "C" strata_status strata__cuda_attention_f32_load(void)
{
    return load_format<STRATA__KV_F32>();
}
