/* SPDX-License-Identifier: MIT */
/* The choice of experts: a warp for each row. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/select.cuh"

namespace
{

constexpr uint32_t WARPS = 4, MAX_GROUPS = 32;

template <int COUNT>
__global__ void __launch_bounds__(WARPS * 32)
    select(const __grid_constant__ strata__select_args args)
{
    extern __shared__ float shared[];
    uint32_t row = blockIdx.x * WARPS + threadIdx.x / 32;
    wait_for_earlier();
    let_next_start();
    if (row < args.rows)
        select_row<COUNT>(args, row, shared + threadIdx.x / 32 * COUNT * 32, nullptr);
}

template <int COUNT>
strata_status launch(const strata__cuda_state *state, cudaStream_t stream,
                     const strata__select_args &args)
{
    uint32_t shared_bytes = args.groups > 1 ? WARPS * COUNT * 32 * sizeof(float) : 0;
    return launch_overlapped(state, stream, select<COUNT>, dim3((args.rows + WARPS - 1) / WARPS),
                             WARPS * 32, shared_bytes, args, "choosing experts");
}

} /* namespace */

strata_status strata__cuda_select_load(void)
{
    const void *kernels[] = {
        reinterpret_cast<const void *>(select<2>),  reinterpret_cast<const void *>(select<4>),
        reinterpret_cast<const void *>(select<8>),  reinterpret_cast<const void *>(select<16>),
        reinterpret_cast<const void *>(select<32>),
    };
    return strata__cuda_load_kernels(kernels, sizeof kernels / sizeof kernels[0], 0);
}

strata_status strata__cuda_select(const strata__cuda_state *state, cudaStream_t stream,
                                  const strata__select_args *args)
{
    if (args->experts > STRATA__MAX_EXPERTS || args->top_k > STRATA__MAX_TOP_K ||
        args->top_k > args->experts || args->groups > MAX_GROUPS)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "cuda: %u of %u experts in %u groups",
                            args->top_k, args->experts, args->groups);
    if (args->rows == 0)
        return STRATA_OK;
    if (args->experts <= 64)
        return launch<2>(state, stream, *args);
    if (args->experts <= 128)
        return launch<4>(state, stream, *args);
    if (args->experts <= 256)
        return launch<8>(state, stream, *args);
    if (args->experts <= 512)
        return launch<16>(state, stream, *args);
    return launch<32>(state, stream, *args);
}
