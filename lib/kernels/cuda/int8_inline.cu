/* SPDX-License-Identifier: MIT */
/* Which kernel of the int8 product without an image serves a format, and its launch. */
#include "kernels/cuda/int8_inline.cuh"

namespace
{

constexpr uint32_t MOST_FORMATS = 64; /* whose ids have a bit in inline_formats */

typedef void (*inline_kernel)(strata__int8_inline_args, uint32_t);

struct inline_choice {
    inline_kernel kernel;
    uint32_t rows, bytes;
};

inline_choice choice_of(uint32_t format)
{
    switch (format) {
#define STRATA__CASE(f)                                                                            \
    case f:                                                                                        \
        return {product_inline<f>, inline_shape<f>::ROWS, inline_shape<f>::BYTES};
        STRATA__FOR_EACH_BLOCK_FORMAT(STRATA__CASE)
#undef STRATA__CASE
    default:
        return {};
    }
}

/* Loads a format's kernel where a block may have the shared memory that it takes. */
strata_status load_format(strata__cuda_state *state, uint32_t format, const inline_choice &choice)
{
    cudaFuncAttributes attributes = {};
    const void *kernel = reinterpret_cast<const void *>(choice.kernel);
    strata_status status = strata__cuda_status(cudaFuncGetAttributes(&attributes, kernel),
                                               "asking what the int8 product takes");
    if (status != STRATA_OK ||
        choice.bytes + attributes.sharedSizeBytes > state->shared_memory_bytes)
        return status;
    state->inline_formats |= 1ull << format;
    return strata__cuda_load_kernels(&kernel, 1, choice.bytes);
}

} /* namespace */

bool strata__cuda_int8_inline_fits(const strata__cuda_state *state, uint32_t format)
{
    return format < MOST_FORMATS && state->inline_formats >> format & 1;
}

strata_status strata__cuda_int8_inline_load(strata__cuda_state *state)
{
    strata_status status = STRATA_OK;
    for (uint32_t format = 0; format < MOST_FORMATS && status == STRATA_OK; format++) {
        inline_choice choice = choice_of(format);
        if (choice.kernel)
            status = load_format(state, format, choice);
    }
    return status;
}

strata_status strata__cuda_int8_inline(const strata__cuda_state *state, cudaStream_t stream,
                                       const strata__int8_inline_args *args)
{
    inline_choice choice = choice_of(args->matrix[0].format);
    const strata__cuda_range &range = args->product.range;
    uint32_t outputs = choice.rows / args->matrices;
    uint32_t columns = (args->product.outputs + outputs - 1) / outputs;
    uint64_t most = (uint64_t)(range.rows / TILE_ROWS + range.experts) * columns;
    uint32_t blocks = 2 * state->multiprocessors;
    blocks = most < blocks ? (uint32_t)most : blocks;
    inline_kernel kernel = choice.kernel;
    kernel<<<blocks, THREADS, choice.bytes, stream>>>(*args, columns);
    return strata__cuda_status(cudaGetLastError(), "multiplying int8");
}
