/* SPDX-License-Identifier: MIT */
/* Checks of an attention launch and the choice of its kernel. */
#include "attention_internal.h"
#include "attention_partials.cuh"

static bool head_size_known(uint32_t head_size)
{
    return head_size == 64 || head_size == 96 || head_size == 128 || head_size == 256;
}

static strata_status check_view(const strata__kv_view *kv, const char *what)
{
    if (!head_size_known(kv->head_size))
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "%s: head size %u; the CUDA kernels take 64, 96, 128 and 256", what,
                            kv->head_size);
    if (kv->page_tokens == 0 || kv->page_tokens % 64 != 0)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "%s: KV pages of %u tokens; a multiple of 64 is needed", what,
                            kv->page_tokens);
    if (kv->format != STRATA__KV_F16 && kv->format != STRATA__KV_Q8_0 &&
        kv->format != STRATA__KV_F32)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "%s: KV format %u is not known", what,
                            kv->format);
    return STRATA_OK;
}

extern "C" strata_status strata__cuda_check_kv(const strata__kv_view *kv, uint32_t heads,
                                               const char *what)
{
    if (kv->kv_heads == 0 || heads % kv->kv_heads != 0)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "%s: %u query heads are no multiple of %u KV heads", what, heads,
                            kv->kv_heads);
    return check_view(kv, what);
}

#if defined(STRATA__HAVE_SM90A)
static bool hopper_takes(const strata__cuda_state *state, const strata__attention_args *args)
{
    return state->hopper_attention && state->level >= 90 && args->kv.format == STRATA__KV_F16 &&
           args->kv.head_size != 96 && args->split_keys == 0;
}
#endif

static strata_status check_split(const strata__attention_args *args)
{
    if (args->split_keys == 0)
        return STRATA_OK;
    if (args->split_keys % 64 != 0)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "attention: spans of %u keys; a multiple of 64 is needed",
                            args->split_keys);
    uint64_t needed = (uint64_t)args->rows * args->heads * span_count(*args) *
                      (args->kv.head_size + PARTIAL_EXTRA) * sizeof(float);
    if (args->scratch.bytes < needed)
        return strata__fail(STRATA_ERR_CAPACITY,
                            "attention: %u rows in %u spans need %llu bytes of scratch, not %llu",
                            args->rows, span_count(*args), (unsigned long long)needed,
                            (unsigned long long)args->scratch.bytes);
    return STRATA_OK;
}

static strata_status launch(const strata__cuda_state *state, cudaStream_t stream,
                            const strata__attention_args *args)
{
#if defined(STRATA__HAVE_SM90A)
    if (hopper_takes(state, args))
        return strata__cuda_attention_hopper(state, stream, args);
#endif
    if (args->kv.format == STRATA__KV_F16)
        return strata__cuda_attention_f16(state, stream, args);
    if (args->kv.format == STRATA__KV_Q8_0)
        return strata__cuda_attention_q8_0(state, stream, args);
    return strata__cuda_attention_f32(state, stream, args);
}

extern "C" strata_status strata__cuda_attention(const strata__cuda_state *state,
                                                cudaStream_t stream,
                                                const strata__attention_args *args)
{
    strata_status status = strata__cuda_check_kv(&args->kv, args->heads, "attention");
    if (status == STRATA_OK)
        status = check_split(args);
    if (status != STRATA_OK || args->segment_count == 0 || args->max_segment_rows == 0)
        return status;
    status = launch(state, stream, args);
    if (status == STRATA_OK && args->split_keys)
        status = strata__cuda_attention_merge(state, stream, args);
    return status;
}

extern "C" strata_status strata__cuda_attention_load(strata__cuda_state *state)
{
    strata_status status = strata__cuda_attention_f16_load();
    if (status == STRATA_OK)
        status = strata__cuda_attention_q8_0_load();
    if (status == STRATA_OK)
        status = strata__cuda_attention_f32_load();
    if (status == STRATA_OK)
        status = strata__cuda_attention_merge_load();
    if (status == STRATA_OK)
        status = strata__cuda_qkv_load();
    state->hopper_attention = 0;
#if defined(STRATA__HAVE_SM90A)
    if (status == STRATA_OK && state->compute_capability == 90)
        status = strata__cuda_attention_hopper_load(state);
#endif
    return status;
}
