/* SPDX-License-Identifier: MIT */
/* Loading and launching the attention of sm_90a. */
#include "attention_hopper.cuh"
#include "attention_internal.h"

template <int HD>
static __global__ void __launch_bounds__(HOPPER_THREADS, 1)
    attention_hopper(const __grid_constant__ strata__attention_args args,
                     const __grid_constant__ CUtensorMap k_map,
                     const __grid_constant__ CUtensorMap v_map)
{
    extern __shared__ __align__(1024) char memory[];
    __shared__ barriers_of<HD> barriers;
    attention_hopper_body<HD>(args, &k_map, &v_map, barriers, memory);
}

typedef CUresult (*encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                    const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                    const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/*
 * The cache as rows of head_size halves: row (page * kv_heads + head) * page_tokens + token. The
 * number of pages is not known here; what the kernel reads follows from the page table alone.
 */
static strata_status describe_cache(const strata__cuda_state *state, const strata__kv_view *kv,
                                    void *base, CUtensorMap *map)
{
    const cuuint64_t sizes[2] = {kv->head_size, (cuuint64_t)1 << 31};
    const cuuint64_t strides[1] = {(cuuint64_t)kv->head_size * 2};
    const cuuint32_t box[2] = {PANEL_COLUMNS, BOX_ROWS};
    const cuuint32_t steps[2] = {1, 1};
    CUresult result = ((encode_function)state->encode_tensor_map)(
        map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, base, sizes, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_SUCCESS)
        return STRATA_OK;
    return strata__fail(STRATA_ERR_DRIVER,
                        "attention: cuTensorMapEncodeTiled answered %d for a cache at %p",
                        (int)result, base);
}

template <int HD>
static strata_status launch_hopper(const strata__cuda_state *state, cudaStream_t stream,
                                   const strata__attention_args *args)
{
    CUtensorMap k_map, v_map;
    strata_status status = describe_cache(state, &args->kv, args->kv.k, &k_map);
    if (status == STRATA_OK)
        status = describe_cache(state, &args->kv, args->kv.v, &v_map);
    if (status != STRATA_OK)
        return status;
    uint64_t packed = (uint64_t)args->max_segment_rows * (args->heads / args->kv.kv_heads);
    uint64_t tiles = (packed + TILE_ROWS - 1) / TILE_ROWS * args->segment_count * args->kv.kv_heads;
    uint32_t blocks = tiles < state->multiprocessors ? (uint32_t)tiles : state->multiprocessors;
    attention_hopper<HD>
        <<<blocks, HOPPER_THREADS, hopper_shape<HD>::SHARED_BYTES, stream>>>(*args, k_map, v_map);
    return strata__cuda_status(cudaGetLastError(), "launching attention");
}

extern "C" strata_status strata__cuda_attention_hopper(const strata__cuda_state *state,
                                                       cudaStream_t stream,
                                                       const strata__attention_args *args)
{
    if (args->kv.head_size == 64)
        return launch_hopper<64>(state, stream, args);
    if (args->kv.head_size == 128)
        return launch_hopper<128>(state, stream, args);
    return launch_hopper<256>(state, stream, args);
}

template <int HD> static strata_status load_hopper()
{
    const void *kernel = (const void *)attention_hopper<HD>;
    return strata__cuda_load_kernels(&kernel, 1, hopper_shape<HD>::SHARED_BYTES);
}

static cudaError_t find_encoder(strata__cuda_state *state)
{
    cudaDriverEntryPointQueryResult found;
    cudaError_t code = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &state->encode_tensor_map, 12000, cudaEnableDefault, &found);
    if (code == cudaSuccess && found != cudaDriverEntryPointSuccess)
        state->encode_tensor_map = nullptr;
    return code;
}

extern "C" strata_status strata__cuda_attention_hopper_load(strata__cuda_state *state)
{
    strata_status status =
        strata__cuda_status(find_encoder(state), "finding the tensor map encoder");
    if (status == STRATA_OK)
        status = load_hopper<64>();
    if (status == STRATA_OK)
        status = load_hopper<128>();
    if (status == STRATA_OK)
        status = load_hopper<256>();
    state->hopper_attention = status == STRATA_OK && state->encode_tensor_map;
    return status;
}
