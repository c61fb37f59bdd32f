/* SPDX-License-Identifier: MIT */
/* The table of CUDA kernels: facts, creation, and the way from the interface to the launches. */
#include "base/cuda_code.h"
#include "kernels/cuda/few.h"
#include "kernels/cuda/int8.h"

namespace
{

struct cuda_kernels {
    strata__kernels base;
    strata__allocator allocator;
    strata__cuda_state state;
};

void destroy(strata__kernels *kernels)
{
    if (!kernels)
        return;
    strata__allocator allocator = reinterpret_cast<cuda_kernels *>(kernels)->allocator;
    strata__free(&allocator, kernels, sizeof(cuda_kernels));
}

#define STRATA__OPERATION(name)                                                                    \
    strata_status name(strata__kernels *kernels, void *stream, const strata__##name##_args *args)  \
    {                                                                                              \
        return strata__cuda_##name(&reinterpret_cast<cuda_kernels *>(kernels)->state,              \
                                   static_cast<cudaStream_t>(stream), args);                       \
    }

STRATA__OPERATION(embed)
STRATA__OPERATION(norm)
STRATA__OPERATION(dense)
STRATA__OPERATION(qkv)
STRATA__OPERATION(attention)
STRATA__OPERATION(router)
STRATA__OPERATION(select)
STRATA__OPERATION(group)
STRATA__OPERATION(activate)
STRATA__OPERATION(gate_up)
STRATA__OPERATION(down)
STRATA__OPERATION(combine)

#define STRATA__COMPOSED(name)                                                                     \
    strata_status name(strata__kernels *kernels, void *stream, const strata__##name##_args *args)  \
    {                                                                                              \
        return strata__cuda_##name(kernels, &reinterpret_cast<cuda_kernels *>(kernels)->state,     \
                                   static_cast<cudaStream_t>(stream), args);                       \
    }

STRATA__COMPOSED(project)
STRATA__COMPOSED(route)
STRATA__COMPOSED(experts)

const strata__kernels_ops operations = {
    destroy, embed,    norm,    dense, qkv,     attention, router, select,
    group,   activate, gate_up, down,  combine, project,   route,  experts,
};

/* Drivers know edges of overlapping launches in graphs from 12.3 on. */
strata_status read_overlaps(const strata__cuda_kernels_options *options, strata__cuda_state *state)
{
    int driver = 0;
    strata_status status =
        strata__cuda_status(cudaDriverGetVersion(&driver), "asking for the driver's version");
    state->overlaps =
        state->compute_capability >= 90 && driver >= 12030 && !options->plain_launches;
    return status;
}

strata_status read_state(const strata__cuda_kernels_options *options, strata__cuda_state *state)
{
    cudaDeviceProp properties;
    strata_status status =
        strata__cuda_status(cudaGetDeviceProperties(&properties, options->device_ordinal),
                            "asking for the device's properties");
    if (status != STRATA_OK)
        return status;
    state->device_ordinal = options->device_ordinal;
    state->compute_capability = (uint32_t)(properties.major * 10 + properties.minor);
    state->multiprocessors = (uint32_t)properties.multiProcessorCount;
    state->shared_memory_bytes = properties.sharedMemPerBlockOptin;
    state->int8_products = options->int8_products;
    if (state->compute_capability < STRATA__LEAST_CAPABILITY)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "cuda: %s has compute capability %d.%d: at least %d.%d is needed",
                            properties.name, properties.major, properties.minor,
                            STRATA__LEAST_CAPABILITY / 10, STRATA__LEAST_CAPABILITY % 10);
    state->level = options->level == 80 || state->compute_capability != 90 ? 80 : 90;
#if defined(STRATA__HAVE_SM90A)
    state->hopper_products = state->level == 90;
#endif
    return read_overlaps(options, state);
}

strata_status load(strata__cuda_state *state)
{
    strata_status (*const loads[])(void) = {
        strata__cuda_decode_load, strata__cuda_direct_load,       strata__cuda_float_rows_load,
        strata__cuda_rows_load,   strata__cuda_router_load,       strata__cuda_select_load,
        strata__cuda_group_load,  strata__cuda_product_sm80_load,
    };
    strata_status status = STRATA_OK;
    for (strata_status (*one)(void) : loads)
        if (status == STRATA_OK)
            status = one();
    if (status == STRATA_OK)
        status = strata__cuda_int8_load(state);
#if defined(STRATA__HAVE_SM90A)
    if (status == STRATA_OK && state->hopper_products)
        status = strata__cuda_product_sm90_load();
#endif
    if (status == STRATA_OK)
        status = strata__few_load(state);
    return status == STRATA_OK ? strata__cuda_attention_load(state) : status;
}

/* With the device current, which the caller's is again afterwards. */
strata_status load_on_device(strata__cuda_state *state)
{
    int caller = 0;
    strata_status status =
        strata__cuda_status(cudaGetDevice(&caller), "asking for the current device");
    if (status == STRATA_OK)
        status =
            strata__cuda_status(cudaSetDevice(state->device_ordinal), "making the device current");
    if (status != STRATA_OK)
        return status;
    status = load(state);
    (void)cudaSetDevice(caller);
    return status;
}

} /* namespace */

strata_status strata__cuda_status(cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return STRATA_OK;
    (void)cudaGetLastError();
    return strata__fail(strata__cuda_code_status((int)code), "cuda: %s: %s (%s)", what,
                        cudaGetErrorName(code), cudaGetErrorString(code));
}

strata_status strata__cuda_load_kernels(const void *const *kernels, uint32_t count,
                                        uint32_t shared_bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        cudaFuncAttributes attributes;
        cudaError_t code = cudaFuncGetAttributes(&attributes, kernels[i]);
        if (code == cudaSuccess && shared_bytes)
            code = cudaFuncSetAttribute(kernels[i], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        (int)shared_bytes);
        if (code != cudaSuccess)
            return strata__cuda_status(code, "loading kernels");
    }
    return STRATA_OK;
}

extern "C" strata_status strata__cuda_kernels_create(const strata__cuda_kernels_options *options,
                                                     strata__kernels **out)
{
    cuda_kernels *kernels =
        static_cast<cuda_kernels *>(strata__calloc(options->allocator, 1, sizeof(cuda_kernels)));
    if (!kernels)
        return strata__fail_memory(sizeof(cuda_kernels), "the cuda kernels");
    kernels->base.ops = &operations;
    kernels->allocator = *options->allocator;
    strata_status status = read_state(options, &kernels->state);
    strata__kernels_facts_of(kernels->state.compute_capability, &kernels->base.facts);
    if (status == STRATA_OK)
        status = load_on_device(&kernels->state);
    if (status != STRATA_OK) {
        destroy(&kernels->base);
        return status;
    }
    *out = &kernels->base;
    return STRATA_OK;
}
