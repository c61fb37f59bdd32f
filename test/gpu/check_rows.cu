/* SPDX-License-Identifier: MIT */
/* Embedding, norm, activation and the sum of the experts. */
#include "check.h"

static std::vector<float> random_floats(random_source &random, size_t count, float spread)
{
    std::vector<float> values(count);
    for (float &value : values)
        value = random.normal() * spread;
    return values;
}

static void check_embed(const suite &s, uint32_t format, tally &t)
{
    random_source random(s.seed * 17 + format);
    uint32_t inputs = strata__format_find(format)->block_values == 256 ? 1280 : 704, rows = 9;
    weight_rows w = make_weights(random, format, inputs, 50, true);
    std::vector<int32_t> tokens;
    for (uint32_t i = 0; i < rows; i++)
        tokens.push_back((int32_t)random.below(50));
    device_array<uint8_t> table(w.blocks);
    device_array<int32_t> ids(tokens);
    device_array<float> x((size_t)rows * inputs);
    strata__embed_args a = {};
    a.table = {table.get(), nullptr, format, inputs, 50};
    a.tokens = ids.get();
    a.x = x.get();
    a.rows = rows;
    a.scale = 1.5f;
    require(s.kernels->ops->embed(s.kernels, 0, &a), "embed");
    require(cudaDeviceSynchronize(), "embed");
    std::vector<float> got = x.take();
    size_t wrong = !x.guards_intact();
    for (size_t i = 0; i < got.size(); i++)
        wrong += got[i] != 1.5f * w.values[(size_t)tokens[i / inputs] * inputs + i % inputs];
    report(t, wrong == 0, wrong ? 1e9 : 0, "embed %s: %zu wrong", strata__format_name(format),
           wrong);
}

/* Error over the bound of activation rows whose exact values are `expected`. */
static double rows_error(const std::vector<uint16_t> &data, const std::vector<float> &scale,
                         const std::vector<double> &expected, size_t width, double relative)
{
    double worst = 0;
    for (size_t i = 0; i < expected.size(); i++) {
        double s = scale[i / width];
        double bound = fabs(expected[i]) * (0x1.01p-11 + relative) + s * 0x1p-25;
        double error = fabs(half_value(data[i]) * s - expected[i]) / bound;
        int exponent;
        if (!(s >= 1) || frexp(s, &exponent) != 0.5)
            error = NAN;
        if (!(error <= worst))
            worst = error;
    }
    return worst;
}

static void check_norm(const suite &s, uint32_t width, float spread, bool rms_only, tally &t)
{
    constexpr uint32_t ROWS = 37;
    random_source random(s.seed * 19 + width);
    std::vector<float> x = random_floats(random, (size_t)ROWS * width, spread);
    std::vector<float> weight = random_floats(random, width, spread > 1e5f ? 1e5f : 1.0f);
    x[width + 3] *= 5000; /* a row with one large value, a row of zeros */
    for (uint32_t i = 0; i < width; i++)
        x[(size_t)2 * width + i] = 0;
    device_array<float> x_d(x), weight_d(weight), inv_rms(ROWS), scale(ROWS);
    device_array<uint16_t> out((size_t)ROWS * width);
    strata__norm_args a = {};
    a.x = x_d.get();
    a.weight = weight_d.get();
    a.out = {rms_only ? nullptr : out.get(), scale.get()};
    a.inv_rms = inv_rms.get();
    a.rows = ROWS;
    a.width = width;
    a.eps = 1e-6f;
    require(s.kernels->ops->norm(s.kernels, 0, &a), "norm");
    require(cudaDeviceSynchronize(), "norm");
    std::vector<float> got = inv_rms.take();
    std::vector<double> expected(x.size());
    double worst = 0;
    for (uint32_t r = 0; r < ROWS; r++) {
        double sum = 0;
        for (uint32_t i = 0; i < width; i++)
            sum += (double)x[(size_t)r * width + i] * x[(size_t)r * width + i];
        double inverse = 1 / sqrt(sum / width + (double)a.eps);
        double error = fabs(got[r] - inverse) / (inverse * 1e-6);
        if (!(error <= worst))
            worst = error;
        for (uint32_t i = 0; i < width; i++)
            expected[(size_t)r * width + i] = x[(size_t)r * width + i] * inverse * weight[i];
    }
    if (!rms_only) {
        double error = rows_error(out.take(), scale.take(), expected, width, 2e-6);
        worst = error <= worst ? worst : error;
    }
    report(t, worst <= 1 && out.guards_intact() && inv_rms.guards_intact(), worst,
           "norm width %u spread %g", width, spread);
}

static void check_activate(const suite &s, uint32_t width, uint32_t activation, float spread,
                           tally &t)
{
    constexpr uint32_t ROWS = 21;
    random_source random(s.seed * 23 + width + activation);
    uint32_t stride = 2 * width + 3;
    std::vector<float> both = random_floats(random, (size_t)ROWS * stride, spread);
    device_array<float> both_d(both), scale(ROWS);
    device_array<uint16_t> out((size_t)ROWS * width);
    strata__activate_args a = {};
    a.gate = both_d.get();
    a.up = both_d.get() + width;
    a.out = {out.get(), scale.get()};
    a.rows = ROWS;
    a.width = width;
    a.stride = stride;
    a.activation = activation;
    require(s.kernels->ops->activate(s.kernels, 0, &a), "activate");
    require(cudaDeviceSynchronize(), "activate");
    std::vector<double> expected((size_t)ROWS * width);
    for (size_t i = 0; i < expected.size(); i++) {
        double g = both[i / width * stride + i % width];
        double u = both[i / width * stride + width + i % width];
        if (activation == STRATA__ACT_SWIGLU_CLAMPED) {
            g = fmin(g, 7);
            expected[i] = g / (1 + exp(-1.702 * g)) * (fmax(fmin(u, 7), -7) + 1);
        } else if (activation == STRATA__ACT_SWIGLU) {
            expected[i] = g / (1 + exp(-g)) * u;
        } else {
            double inner = 0.7978845608028654 * (g + 0.044715 * g * g * g);
            expected[i] = g / (1 + exp(-2 * inner)) * u;
        }
    }
    double worst = rows_error(out.take(), scale.take(), expected, width, 3e-5);
    report(t, worst <= 1 && out.guards_intact(), worst, "activate %u width %u spread %g",
           activation, width, spread);
}

static void check_combine(const suite &s, uint32_t tokens, uint32_t top_k, uint32_t width, tally &t)
{
    random_source random(s.seed * 29 + tokens + top_k);
    uint32_t pairs = tokens * top_k;
    std::vector<uint32_t> index(pairs);
    for (uint32_t i = 0; i < pairs; i++)
        index[i] = i;
    for (uint32_t i = pairs - 1; i > 0; i--)
        std::swap(index[i], index[random.below(i + 1)]);
    std::vector<float> y = random_floats(random, (size_t)pairs * width, 1);
    std::vector<float> weights = random_floats(random, pairs, 1);
    std::vector<float> x = random_floats(random, (size_t)tokens * width, 1);
    /* Ascending places within a row, as grouping makes them. */
    for (uint32_t r = 0; r < tokens; r++)
        for (uint32_t i = 0; i < top_k; i++)
            for (uint32_t j = i + 1; j < top_k; j++)
                if (index[r * top_k + j] < index[r * top_k + i])
                    std::swap(index[r * top_k + j], index[r * top_k + i]);
    device_array<float> y_d(y), weights_d(weights), whole(x), pieces(x);
    device_array<uint32_t> index_d(index);
    strata__combine_args a = {
        y_d.get(), weights_d.get(), index_d.get(), whole.get(), tokens, top_k, width,
        0,         pairs,           0.5f};
    require(s.kernels->ops->combine(s.kernels, 0, &a), "combine");
    a.x = pieces.get();
    for (uint32_t cut[] = {0, pairs / 3, pairs / 2, pairs}, i = 0; i < 3; i++) {
        a.first_row = cut[i];
        a.rows = cut[i + 1] - cut[i];
        a.y = y_d.get() + (size_t)cut[i] * width;
        require(s.kernels->ops->combine(s.kernels, 0, &a), "combine");
    }
    require(cudaDeviceSynchronize(), "combine");
    std::vector<float> got = whole.take(), cut_up = pieces.take();
    double worst = 0;
    for (size_t i = 0; i < got.size(); i++) {
        double sum = x[i], magnitude = fabs(x[i]);
        for (uint32_t j = 0; j < top_k; j++) {
            size_t pair = i / width * top_k + j;
            double term = 0.5 * weights[pair] * y[(size_t)index[pair] * width + i % width];
            sum += term;
            magnitude += fabs(term);
        }
        double error = fabs(got[i] - sum) / (magnitude * 1e-6);
        if (!(error <= worst))
            worst = error;
    }
    bool same = !memcmp(got.data(), cut_up.data(), got.size() * 4);
    report(t, worst <= 1 && same && whole.guards_intact() && pieces.guards_intact(), worst,
           "combine tokens %u top %u width %u%s", tokens, top_k, width,
           same ? "" : ": bits depend on the pieces");
}

int check_rows(const suite &s)
{
    int failures = 0;
    tally embed, norm, activate, combine;
    for (uint32_t format : all_formats)
        if (!s.leaves_out(format))
            check_embed(s, format, embed);
    for (uint32_t width : {64u, 256u, 640u, 2048u, 2880u, 4096u, 7168u, 16384u}) {
        check_norm(s, width, 1, false, norm);
        check_norm(s, width, 1e6f, false, norm);
        check_norm(s, width, 1e-4f, true, norm);
        for (uint32_t activation : {0u, 1u, 2u}) {
            check_activate(s, width, activation, 2, activate);
            check_activate(s, width, activation, 1000, activate);
        }
    }
    for (uint32_t top_k : {1u, 3u, 8u, 16u})
        for (uint32_t tokens : {1u, 7u, 130u})
            check_combine(s, tokens, top_k, top_k == 3 ? 2880 : 512, combine);
    close_tally(embed, "embed, every format", &failures);
    close_tally(norm, "norm", &failures);
    close_tally(activate, "activate", &failures);
    close_tally(combine, "combine", &failures);
    return failures;
}
