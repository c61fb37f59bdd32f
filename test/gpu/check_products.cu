/* SPDX-License-Identifier: MIT */
/* Decoders, bit for bit, and dense products against float64. */
#include "check.h"

/* Bits of the image at a row of a slab, value k. */
static uint16_t image_at(const std::vector<uint16_t> &image, uint32_t k_blocks, size_t slab,
                         uint32_t r, uint32_t k)
{
    size_t block = (slab * k_blocks + k / 64) * (STRATA__BLOCK_BYTES / 2);
    uint32_t chunk = k % 64 / 8;
    return image[block + r * 64 + (chunk ^ (r & 7)) * 8 + k % 8];
}

struct image_case {
    uint32_t format, other, inputs, outputs, first_slab, slabs;
};

static void check_image(const suite &s, const image_case &c, uint32_t matrices, tally &t)
{
    constexpr uint32_t EXPERTS = 3;
    random_source random(s.seed * 131 + c.format * 7 + matrices);
    uint32_t k_blocks = (c.inputs + 63) / 64, slab_rows = 128 / matrices;
    std::vector<weight_rows> weights;
    std::vector<device_array<uint8_t> *> blobs;
    std::vector<const void *> pointers[2];
    for (uint32_t m = 0; m < matrices; m++)
        for (uint32_t e = 0; e < EXPERTS; e++) {
            weights.push_back(
                make_weights(random, m ? c.other : c.format, c.inputs, c.outputs, true));
            blobs.push_back(new device_array<uint8_t>(weights.back().blocks));
            pointers[m].push_back(blobs.back()->get());
        }
    device_array<const void *> table0(pointers[0]),
        table1(matrices == 2 ? pointers[1] : pointers[0]);
    device_array<uint32_t> offsets(std::vector<uint32_t>{0, 2, 2, 5}); /* expert 1 has no rows */
    device_array<float> scales(5);
    device_array<uint16_t> image((size_t)EXPERTS * c.slabs * k_blocks * (STRATA__BLOCK_BYTES / 2));
    strata__decode_args args = {};
    args.matrix[0].blobs = table0.get();
    args.matrix[0].format = c.format;
    args.matrix[1].blobs = table1.get();
    args.matrix[1].format = c.other;
    args.range.offsets = offsets.get();
    args.range.experts = EXPERTS;
    args.range.rows = 5;
    args.image = reinterpret_cast<uint8_t *>(image.get());
    args.row_scale = scales.get();
    args.matrices = matrices;
    args.inputs = c.inputs;
    args.outputs = c.outputs;
    args.first_slab = c.first_slab;
    args.slabs = c.slabs;
    strata__cuda_state state = {};
    require(strata__cuda_decode(&state, 0, &args), "decoding");
    require(cudaDeviceSynchronize(), "decoding");
    std::vector<uint16_t> got = image.take();
    size_t wrong = 0;
    for (uint32_t m = 0; m < matrices; m++)
        for (uint32_t e = 0; e < EXPERTS; e++)
            for (uint32_t row = c.first_slab * slab_rows;
                 row < c.outputs && row < (c.first_slab + c.slabs) * slab_rows; row++)
                for (uint32_t k = 0; k < k_blocks * 64; k++) {
                    uint32_t at = row - c.first_slab * slab_rows;
                    at = matrices == 2 ? at / 8 * 16 + m * 8 + at % 8 : at;
                    uint16_t bits = image_at(got, k_blocks, e * c.slabs + at / 128, at % 128, k);
                    const weight_rows &w = weights[m * EXPERTS + e];
                    uint16_t expected =
                        k < c.inputs ? half_bits(w.values[(size_t)row * c.inputs + k]) : 0;
                    wrong += bits != (e == 1 ? 0xffff : expected) &&
                             !(e != 1 && (bits & 0x7fff) == 0 && (expected & 0x7fff) == 0);
                }
    for (float scale : scales.take())
        wrong += scale != 1.0f;
    wrong += !image.guards_intact() + !scales.guards_intact();
    report(t, wrong == 0, wrong ? 1e9 : 0, "decode %s x%u: %zu wrong",
           strata__format_name(c.format), matrices, wrong);
    for (device_array<uint8_t> *blob : blobs)
        delete blob;
}

int check_decoders(const suite &s)
{
    int failures = 0;
    tally t;
    for (uint32_t format : all_formats) {
        if (s.leaves_out(format))
            continue;
        uint32_t block = strata__format_find(format)->block_values;
        uint32_t inputs = block == 256 ? 768 : block == 64 ? 192 : block == 32 ? 96 : 72;
        check_image(s, {format, format, inputs, 200, 0, 2}, 1, t);
        check_image(s, {format, format, inputs, 200, 0, 4}, 2, t);
        check_image(s, {format, STRATA__F16, inputs, 136, 1, 2}, 2, t);
    }
    close_tally(t, "decoders, bit for bit", &failures);
    return failures;
}

struct dense_case {
    uint32_t format, rows, inputs, outputs, mode;
    bool scaled, bias, factor;
    uint32_t scratch_slabs; /* 0: room for all */
    float spread;
};

struct dense_reference {
    std::vector<double> y, bound;
};

/* y and the sum of magnitudes that float32 accumulation is measured by */
static dense_reference reference_of(const dense_case &c, const activation_rows &in,
                                    const weight_rows &w, const std::vector<float> &bias,
                                    const std::vector<float> &factor, float alpha)
{
    dense_reference r;
    const std::vector<float> &values = c.rows <= 16 ? w.values : w.halves;
    r.y.resize((size_t)c.rows * c.outputs);
    r.bound.resize(r.y.size());
    parallel_for(c.rows, [&](size_t row) {
        for (size_t n = 0; n < c.outputs; n++) {
            double sum = 0, magnitude = 0;
            for (size_t k = 0; k < c.inputs; k++) {
                double term = half_value(in.data[row * c.inputs + k]) * values[n * c.inputs + k];
                sum += term;
                magnitude += fabs(term);
            }
            double f = alpha * (factor.empty() ? 1.0 : (double)factor[row]);
            double b = bias.empty() ? 0.0 : (double)bias[n];
            r.y[row * c.outputs + n] = (sum * in.scale[row] + b) * f;
            r.bound[row * c.outputs + n] =
                (magnitude * in.scale[row] + fabs(b)) * fabs(f) * 2e-6 + 1e-12;
        }
    });
    return r;
}

static std::vector<float> random_floats(random_source &random, size_t count)
{
    std::vector<float> values(count);
    for (float &value : values)
        value = random.normal();
    return values;
}

/* Largest error over its bound of activation rows; half rounding is allowed for. */
static double rows_error(const std::vector<uint16_t> &data, const std::vector<float> &scale,
                         const dense_reference &r, size_t width)
{
    double worst = 0;
    for (size_t i = 0; i < r.y.size(); i++) {
        double s = scale[i / width], got = half_value(data[i]) * s;
        double error = fabs(got - r.y[i]) / (r.bound[i] + fabs(r.y[i]) * 0x1.01p-11 + s * 0x1p-25);
        int exponent;
        if (!(s >= 1) || frexp(s, &exponent) != 0.5)
            error = NAN;
        if (!(error <= worst))
            worst = error;
    }
    return worst;
}

static void check_dense_case(const suite &s, const dense_case &c, tally &t)
{
    random_source random(s.seed * 977 + c.format * 31 + c.rows * 7 + c.inputs + c.outputs + c.mode);
    weight_rows w = make_weights(random, c.format, c.inputs, c.outputs, false);
    activation_rows in = make_rows(random, c.rows, c.inputs, c.scaled, c.spread);
    std::vector<float> bias = random_floats(random, c.bias ? c.outputs : 0);
    std::vector<float> factor = random_floats(random, c.factor ? c.rows : 0);
    uint32_t stride = c.outputs + c.outputs % 2 + (c.rows % 2 ? 0 : 6);
    uint64_t slab = (uint64_t)(c.inputs + 63) / 64 * STRATA__BLOCK_BYTES;
    uint64_t slabs = c.scratch_slabs ? c.scratch_slabs : (c.outputs + 127) / 128;
    device_array<uint8_t> blocks(w.blocks), scratch(slab * slabs);
    device_array<uint16_t> data(in.data), rows_out((size_t)c.rows * c.outputs);
    device_array<float> scale(in.scale), out((size_t)c.rows * stride), scale_out(c.rows);
    device_array<float> bias_d(bias), factor_d(factor);
    std::vector<float> before(out.count(), NAN);
    if (c.mode == STRATA__DENSE_ADD_F32)
        before = random_floats(random, out.count());
    out.put(before);
    strata__dense_args a = {};
    a.weight = {blocks.get(), c.bias ? bias_d.get() : nullptr, c.format, c.inputs, c.outputs};
    a.in = {data.get(), scale.get()};
    a.out_f32 = out.get();
    a.out_rows = {rows_out.get(), scale_out.get()};
    a.row_factor = c.factor ? factor_d.get() : nullptr;
    a.scratch = {scratch.get(), slab * slabs};
    a.rows = c.rows;
    a.out_stride = stride;
    a.mode = c.mode;
    a.alpha = 0.75f;
    require(s.kernels->ops->dense(s.kernels, 0, &a), "dense");
    require(cudaDeviceSynchronize(), "dense");
    dense_reference r = reference_of(c, in, w, bias, factor, a.alpha);
    double worst = 0;
    bool ok = out.guards_intact() && rows_out.guards_intact() && scale_out.guards_intact();
    if (c.mode == STRATA__DENSE_STORE_ROWS) {
        worst = rows_error(rows_out.take(), scale_out.take(), r, c.outputs);
    } else {
        std::vector<float> got = out.take();
        for (size_t i = 0; i < got.size(); i++) {
            size_t row = i / stride, n = i % stride;
            if (n >= c.outputs) {
                ok = ok && !memcmp(&got[i], &before[i], 4);
                continue;
            }
            double old = c.mode == STRATA__DENSE_ADD_F32 ? before[i] : 0;
            size_t at = row * c.outputs + n;
            double error = fabs(got[i] - old - r.y[at]) / (r.bound[at] + fabs(old) * 1e-7);
            if (!(error <= worst))
                worst = error;
        }
    }
    report(t, ok && worst <= 1, worst, "dense %s rows %u inputs %u outputs %u mode %u slabs %u%s",
           strata__format_name(c.format), c.rows, c.inputs, c.outputs, c.mode, c.scratch_slabs,
           ok ? "" : ": written outside");
}

int check_dense(const suite &s)
{
    const uint32_t rows[] = {1, 2, 7, 8, 9, 16, 17, 63, 64, 65, 127, 128, 129, 300};
    int failures = 0;
    tally formats, shapes, modes, large;
    for (uint32_t format : all_formats)
        for (uint32_t r : {3u, 70u}) {
            if (s.leaves_out(format))
                continue;
            uint32_t block = strata__format_find(format)->block_values;
            check_dense_case(
                s, {format, r, block == 256 ? 768u : 640u, 130, 0, true, false, false, 0, 1},
                formats);
        }
    for (uint32_t r : rows) {
        if (s.small && r % 65)
            continue;
        check_dense_case(s, {STRATA__Q8_0, r, 640, 300, 0, true, true, true, 0, 1}, shapes);
        check_dense_case(s, {STRATA__Q4_K, r, 2048, 129, 0, false, false, true, 0, 1}, shapes);
        check_dense_case(s, {STRATA__MXFP4, r, 2880, 64, 0, true, false, false, 0, 1}, shapes);
        check_dense_case(s, {STRATA__Q8_0, r, 96, 515, 0, true, true, false, 0, 1}, shapes);
    }
    for (uint32_t r : {5u, 66u, 200u})
        for (uint32_t mode : {0u, 1u, 2u})
            for (uint32_t slabs : {0u, 1u, 2u, 3u}) {
                if (s.small && (r != 66 || slabs == 1))
                    continue;
                check_dense_case(s, {STRATA__IQ2_XS, r, 512, 648, mode, true, true, true, slabs, 1},
                                 modes);
            }
    for (uint32_t r : {4u, 150u})
        for (uint32_t slabs : {0u, 1u})
            check_dense_case(s, {STRATA__Q6_K, r, 1024, 400, 2, true, true, true, slabs, 2000},
                             large);
    close_tally(formats, "dense, every format", &failures);
    close_tally(shapes, "dense, shapes", &failures);
    close_tally(modes, "dense, modes and scratch", &failures);
    close_tally(large, "dense, rows beyond half's range", &failures);
    return failures;
}
