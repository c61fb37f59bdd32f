/* SPDX-License-Identifier: MIT */
/* Which kernel of the int8 product without an image serves a format, and its launch. */
#include "kernels/cuda/int8_inline.cuh"

namespace
{

typedef void (*inline_kernel)(strata__int8_inline_args, uint32_t);

/* With tiles of 64 and of 128 activation rows: kernels, weight rows of a tile, shared memory. */
struct inline_choice {
    inline_kernel kernel[2];
    uint32_t rows[2], bytes[2];
};

template <int FORMAT> inline_choice choice_for()
{
    using few = inline_shape<FORMAT, 1>;
    using many = inline_shape<FORMAT, 2>;
    return {{product_inline<FORMAT, 1>, product_inline<FORMAT, 2>},
            {few::ROWS, many::ROWS},
            {few::BYTES, many::BYTES}};
}

inline_choice choice_of(uint32_t format)
{
    switch (format) {
#define STRATA__CASE(f)                                                                            \
    case f:                                                                                        \
        return choice_for<f>();
        STRATA__FOR_EACH_BLOCK_FORMAT(STRATA__CASE)
#undef STRATA__CASE
    default:
        return {};
    }
}

/* Loads a format's kernels; that of few rows where a block may have its shared memory. */
strata_status load_format(strata__cuda_state *state, uint32_t format, const inline_choice &choice)
{
    const void *few = reinterpret_cast<const void *>(choice.kernel[0]);
    const void *many = reinterpret_cast<const void *>(choice.kernel[1]);
    cudaFuncAttributes attributes = {};
    strata_status status = strata__cuda_status(cudaFuncGetAttributes(&attributes, few),
                                               "asking what the int8 product takes");
    if (status == STRATA_OK)
        status = strata__cuda_load_kernels(&many, 1, choice.bytes[1]);
    if (status != STRATA_OK ||
        choice.bytes[0] + attributes.sharedSizeBytes > state->shared_memory_bytes)
        return status;
    state->inline_few_rows |= 1ull << format;
    return strata__cuda_load_kernels(&few, 1, choice.bytes[0]);
}

} /* namespace */

strata_status strata__cuda_int8_inline_load(strata__cuda_state *state)
{
    strata_status status = STRATA_OK;
    for (uint32_t format = 0; format < STRATA__FORMAT_LIMIT && status == STRATA_OK; format++) {
        inline_choice choice = choice_of(format);
        if (choice.kernel[0])
            status = load_format(state, format, choice);
    }
    return status;
}

strata_status strata__cuda_int8_inline(const strata__cuda_state *state, cudaStream_t stream,
                                       const strata__int8_inline_args *args)
{
    uint32_t format = args->matrix[0].format;
    inline_choice choice = choice_of(format);
    const strata__cuda_range &range = args->product.range;
    bool few = range.rows / range.experts <= WARP_TILE_ROWS && state->inline_few_rows >> format & 1;
    uint32_t many = few ? 0 : 1;
    uint32_t outputs = choice.rows[many] / args->matrices;
    uint32_t columns = (args->product.outputs + outputs - 1) / outputs;
    uint64_t most = (uint64_t)(range.rows / (WARP_TILE_ROWS << many) + range.experts) * columns;
    uint32_t blocks = 2 * state->multiprocessors;
    blocks = most < blocks ? (uint32_t)most : blocks;
    inline_kernel kernel = choice.kernel[many];
    kernel<<<blocks, THREADS, choice.bytes[many], stream>>>(*args, columns);
    return strata__cuda_status(cudaGetLastError(), "multiplying int8");
}
