/* SPDX-License-Identifier: MIT */
/* Loading and launching the portable kernels of one cache format; included by a file per format. */
#ifndef STRATA_KERNELS_CUDA_ATTENTION_PORTABLE_LAUNCH_CUH
#define STRATA_KERNELS_CUDA_ATTENTION_PORTABLE_LAUNCH_CUH

#include "attention_internal.h"
#include "attention_portable.cuh"

/* Packed rows up to which narrow tiles, which spread over more multiprocessors, are launched. */
enum { NARROW_LIMIT = 64 };

static inline dim3 grid_of(uint32_t tile_rows, const strata__attention_args &args)
{
    uint32_t packed = args.max_segment_rows * (args.heads / args.kv.kv_heads);
    uint32_t tiles = (packed + tile_rows - 1) / tile_rows;
    return dim3(tiles * args.kv.kv_heads, args.segment_count,
                args.split_keys ? span_count(args) : 1);
}

/*
 * Tiles of 128 rows read less shared memory per product and share the decoding of a tile, but half
 * caches do as well with 64 rows on small cards, where two thread blocks then fit. Heads of 256
 * leave registers for 64 rows only.
 */
template <int FORMAT, int HD> static __host__ __device__ constexpr bool has_large_tile()
{
    return HD <= 128;
}

template <int FORMAT, int HD> static __host__ __device__ constexpr bool has_small_tile()
{
    return FORMAT == STRATA__KV_F16 || HD > 128;
}

[[maybe_unused]] static bool prefers_large_tile(const strata__cuda_state *state)
{
    return state->compute_capability % 10 == 0 && state->compute_capability < 120;
}

template <int FORMAT, int HD, int MT>
static strata_status launch_wide(cudaStream_t stream, const strata__attention_args &args)
{
    static_assert(wide_bytes<FORMAT, HD, MT>() <= PORTABLE_SHARED_BYTES, "a block may have 99 KB");
    attention_wide<FORMAT, HD, MT><<<grid_of(PORTABLE_WARPS * MT * 16, args), PORTABLE_THREADS,
                                     wide_bytes<FORMAT, HD, MT>(), stream>>>(args);
    return strata__cuda_status(cudaGetLastError(), "launching attention");
}

template <int FORMAT, int HD>
static strata_status launch_head(const strata__cuda_state *state, cudaStream_t stream,
                                 const strata__attention_args &args)
{
    static_assert(narrow_bytes<FORMAT, HD>() <= PORTABLE_SHARED_BYTES, "a block may have 99 KB");
    uint32_t packed = args.max_segment_rows * (args.heads / args.kv.kv_heads);
    if (args.split_keys || packed <= NARROW_LIMIT)
        return launch_overlapped(state, stream, attention_narrow<FORMAT, HD>,
                                 grid_of(NARROW_ROWS, args), PORTABLE_THREADS,
                                 narrow_bytes<FORMAT, HD>(), args, "launching attention");
    if constexpr (!has_small_tile<FORMAT, HD>())
        return launch_wide<FORMAT, HD, 2>(stream, args);
    else if constexpr (!has_large_tile<FORMAT, HD>())
        return launch_wide<FORMAT, HD, 1>(stream, args);
    else
        return prefers_large_tile(state) ? launch_wide<FORMAT, HD, 2>(stream, args)
                                         : launch_wide<FORMAT, HD, 1>(stream, args);
}

template <int FORMAT>
static strata_status launch_format(const strata__cuda_state *state, cudaStream_t stream,
                                   const strata__attention_args &args)
{
    switch (args.kv.head_size) {
    case 64:
        return launch_head<FORMAT, 64>(state, stream, args);
    case 96:
        return launch_head<FORMAT, 96>(state, stream, args);
    case 128:
        return launch_head<FORMAT, 128>(state, stream, args);
    default:
        return launch_head<FORMAT, 256>(state, stream, args);
    }
}

template <typename KERNEL> static cudaError_t load_kernel(KERNEL *kernel, int shared_bytes)
{
    return cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                shared_bytes);
}

template <int FORMAT, int HD> static cudaError_t load_head()
{
    cudaError_t code = load_kernel(attention_narrow<FORMAT, HD>, narrow_bytes<FORMAT, HD>());
    if constexpr (has_small_tile<FORMAT, HD>()) {
        if (code == cudaSuccess)
            code = load_kernel(attention_wide<FORMAT, HD, 1>, wide_bytes<FORMAT, HD, 1>());
    }
    if constexpr (has_large_tile<FORMAT, HD>()) {
        if (code == cudaSuccess)
            code = load_kernel(attention_wide<FORMAT, HD, 2>, wide_bytes<FORMAT, HD, 2>());
    }
    return code;
}

template <int FORMAT> static strata_status load_format()
{
    cudaError_t code = load_head<FORMAT, 64>();
    if (code == cudaSuccess)
        code = load_head<FORMAT, 96>();
    if (code == cudaSuccess)
        code = load_head<FORMAT, 128>();
    if (code == cudaSuccess)
        code = load_head<FORMAT, 256>();
    return strata__cuda_status(code, "loading the attention kernels");
}

#endif
