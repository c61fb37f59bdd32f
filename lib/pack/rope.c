/* SPDX-License-Identifier: MIT */
/*
 * Rotary frequencies with their scaling, in float64: plain, linear, and YaRN (Peng et al., 2023) as
 * GGUF files mean it. The factor on cosine and sine is 1 + 0.1 ln(factor) for YaRN.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "pack/architecture.h"

typedef struct scaling {
    float base;
    float factor;
    float extrapolation; /* share of the ramp that is used, 0: linear scaling */
    float attention_factor;
    float beta_fast;
    float beta_slow;
    uint32_t original_tokens;
} scaling;

static strata_status refuse_set(const strata__model *model, const char *suffix, float neutral)
{
    float value = neutral;
    strata_status status = strata__model_float(model, suffix, false, -1e30, &value);
    if (status == STRATA_OK && value != neutral)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "key %s.%s is %g; this architecture is run with "
                            "%g only",
                            model->architecture->name, suffix, (double)value, (double)neutral);
    return status;
}

static strata_status read_yarn(const strata__model *model, scaling *scale)
{
    static const strata__key original = {"rope.scaling.original_context_length", 1, INT32_MAX,
                                         false};
    strata_status status;
    scale->extrapolation = 1;
    status = strata__model_uint(model, &original, STRATA__NO_LAYER, &scale->original_tokens);
    if (status == STRATA_OK)
        status = strata__model_float(model, "rope.scaling.yarn_ext_factor", false, -1e-30,
                                     &scale->extrapolation);
    if (status == STRATA_OK)
        status =
            strata__model_float(model, "rope.scaling.yarn_beta_fast", false, 0, &scale->beta_fast);
    if (status == STRATA_OK)
        status =
            strata__model_float(model, "rope.scaling.yarn_beta_slow", false, 0, &scale->beta_slow);
    if (status == STRATA_OK)
        status = refuse_set(model, "rope.scaling.yarn_log_multiplier", 0);
    if (status == STRATA_OK)
        status = refuse_set(model, "rope.scaling.yarn_attn_factor", 1);
    return status;
}

static strata_status read_scaling(const strata__model *model, scaling *scale)
{
    char type[32];
    strata_status status = strata__model_float(model, "rope.freq_base", false, 1, &scale->base);
    if (status == STRATA_OK)
        status = strata__model_string(model, "rope.scaling.type", type, sizeof type);
    if (status == STRATA_OK)
        status = strata__model_float(model, "rope.scaling.attn_factor", false, 0,
                                     &scale->attention_factor);
    if (status != STRATA_OK || strcmp(type, "none") == 0)
        return status;
    if (type[0] && strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "key %s.rope.scaling.type is \"%s\"; none, linear "
                            "and yarn are known",
                            model->architecture->name, type);
    status = strata__model_float(model, "rope.scaling.factor", strcmp(type, "yarn") == 0, -1e-30,
                                 &scale->factor);
    if (scale->factor == 0)
        scale->factor = 1;
    if (status == STRATA_OK && strcmp(type, "yarn") == 0)
        status = read_yarn(model, scale);
    return status;
}

/* The pair that turns `beta` times within the original context. */
static double corrected_pair(const scaling *scale, uint32_t width, double beta)
{
    const double two_pi = 6.283185307179586476925;
    return width * log(scale->original_tokens / (beta * two_pi)) / (2 * log(scale->base));
}

static void fill(const scaling *scale, uint32_t width, const float *factors, float *out)
{
    double low = floor(corrected_pair(scale, width, scale->beta_fast));
    double high = ceil(corrected_pair(scale, width, scale->beta_slow));
    low = low < 0 ? 0 : low;
    high = high > width - 1 ? width - 1 : high;
    for (uint32_t i = 0; i < width / 2; i++) {
        double plain = pow(scale->base, -2.0 * i / width) / (factors ? factors[i] : 1.0f);
        double ramp = (i - low) / (high - low > 0.001 ? high - low : 0.001);
        double mix;
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        mix = (1 - ramp) * scale->extrapolation;
        out[i] = (float)(plain / scale->factor * (1 - mix) + plain * mix);
    }
}

static strata_status read_factors(strata__model *model, const float **out)
{
    strata__want want = {"rope_freqs.weight", {model->rope_width / 2, 1, 1}, STRATA__OPTIONAL};
    strata_status status;
    *out = NULL;
    if (!model->architecture->rope_factors)
        return STRATA_OK;
    status = strata__model_floats(model, STRATA__NO_LAYER, &want, out);
    for (uint32_t i = 0; status == STRATA_OK && *out && i < model->rope_width / 2; i++)
        if (!((*out)[i] > 0) || !isfinite((*out)[i]))
            return strata__fail(STRATA_ERR_FORMAT,
                                "tensor rope_freqs.weight: value %" PRIu32
                                " is %g, expected a finite number above 0",
                                i, (double)(*out)[i]);
    return status;
}

strata_status strata__rope_build(strata__model *model)
{
    scaling scale = {10000, 1, 0, 1, 32, 1, model->geometry->context_tokens};
    uint64_t bytes = model->rope_width / 2 * sizeof(float);
    const float *factors;
    float *frequencies;
    strata_status status = read_scaling(model, &scale);
    if (status == STRATA_OK)
        status = read_factors(model, &factors);
    if (status != STRATA_OK)
        return status;
    frequencies = strata__pool_alloc(&model->pack->pool, bytes);
    if (!frequencies)
        return strata__fail_memory(bytes, "the rotary frequencies");
    fill(&scale, model->rope_width, factors, frequencies);
    for (uint32_t i = 0; i < model->rope_width / 2; i++)
        if (!isfinite(frequencies[i]))
            return strata__fail(STRATA_ERR_FORMAT,
                                "keys %s.rope.*: the frequency of pair %" PRIu32
                                " is no finite number",
                                model->architecture->name, i);
    model->rope_magnitude = scale.attention_factor;
    if (scale.extrapolation > 0 && scale.factor > 1)
        model->rope_magnitude *= (float)(1 + 0.1 * log(scale.factor));
    if (!isfinite(model->rope_magnitude))
        return strata__fail(STRATA_ERR_FORMAT,
                            "keys %s.rope.*: the factor of cosine and sine is no finite number",
                            model->architecture->name);
    model->geometry->rope_table_count = 1;
    model->geometry->rope_frequencies[0] = frequencies;
    return STRATA_OK;
}
