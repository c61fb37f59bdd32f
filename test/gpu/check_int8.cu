/* SPDX-License-Identifier: MIT */
/*
 * check_int8 [check] [small] [bench] [level=80] [seed=N] [only=FORMAT] [products=WHICH]
 *
 * Paths fused and mmq of the CUDA kernels, bit for bit against plain loops of kernels/int8.h, and
 * their speed; both by the products that decode to an image and by those that do not, unless WHICH
 * (inline or image) names one. Exit code 0: all right, 1: something is wrong, 2: no answer,
 * 77: no device.
 */
#include <chrono>

#include "check.h"

extern "C" {
#include "base/alloc.h"
}
#include "kernels/cuda/int8.h"
#include "plain_int8.h"

namespace
{

/* Which products there are, by STRATA__INT8_PRODUCTS_*. */
const char *const product_names[] = {"inline", "image"};

struct int8_suite : suite {
    strata__kernels *products[2];
};

struct int8_case {
    uint32_t gate, up, down; /* formats */
    uint32_t inputs, hidden;
    std::vector<uint32_t> counts; /* rows of each expert */
    uint32_t activation;
    bool bias;
    uint32_t scratch_slabs;
    uint32_t misplaced; /* bytes by which blobs begin beyond a multiple of 16 */
    bool extreme;       /* weights and activations of extremes; of Q2_K, Q3_K and MXFP4 */
};

/* A matrix in the int8 form. */
struct plain_matrix {
    uint32_t format, inputs;
    std::vector<int8_t> codes;
    std::vector<float> scales, offsets;

    explicit plain_matrix(const weight_rows &w)
        : format(w.format), inputs(w.inputs), codes((size_t)w.rows * w.inputs),
          scales(codes.size() / 16), offsets(codes.size() / 16)
    {
        strata__decode_int8_level(STRATA__CPU_BASE, format, w.blocks.data(), codes.size(),
                                  codes.data(), scales.data(), offsets.data());
    }
    float product(const plain_row &x, uint32_t n, uint32_t row_group) const
    {
        const strata__format_info *info = strata__format_find(format);
        uint32_t group = info->int8_group, part = group < row_group ? group : row_group;
        uint32_t offset_group = info->int8_minimum_group;
        size_t first = (size_t)n * inputs;
        float y = 0;
        for (uint32_t at = 0; at < inputs; at += row_group) {
            float t = 0;
            for (uint32_t k = at; k < at + row_group; k += part) {
                int dot = 0;
                for (uint32_t i = k; i < k + part; i++)
                    dot += x.codes[i] * codes[first + i];
                size_t g = (first + k) / group;
                t = k == at ? scales[g] * (float)dot : fmaf(scales[g], (float)dot, t);
                for (uint32_t o = k; offset_group && o < k + part; o += offset_group) {
                    int sum = 0;
                    for (uint32_t i = o; i < o + offset_group; i++)
                        sum += x.codes[i];
                    t = fmaf(offsets[(first + o) / offset_group], (float)sum, t);
                }
            }
            y = fmaf(t, x.scales[at / 32], y);
        }
        return y;
    }
};

std::vector<float> random_floats(random_source &random, size_t count)
{
    std::vector<float> values(count);
    for (float &value : values)
        value = random.normal();
    return values;
}

/* The model of a case. */
struct int8_setup {
    std::vector<weight_rows> weights[3]; /* gate, up, down of each expert */
    std::vector<float> bias[3], expert_scale;
    std::vector<uint32_t> offsets = {0}, sorted_row;
    activation_rows in;
    uint32_t rows = 0, tokens = 24;
};

/* Rows 0 to 3: zeros, magnitudes of a million and of a millionth, one value far from the others. */
void set_extremes(activation_rows &in)
{
    for (uint32_t k = 0; k < in.width; k++) {
        uint16_t *row = &in.data[k];
        row[0] = 0;
        row[2 * in.width] = half_bits((float)half_value(row[2 * in.width]) * 4e-6f);
        row[3 * in.width] = half_bits(k == 17 ? 60000.0f : (float)half_value(row[3 * in.width]));
    }
    in.scale[1] = 0x1p20f;
}

/*
 * Blocks whose codes times scales are the most and the least, of scales that are odd; of MXFP4 of
 * scales so small that sums underflow, to 0 or to -0.
 */
void set_extremes(weight_rows &w)
{
    static const uint16_t scales[6] = {0x2400, 0xa400, 0, 0x8000, 1, 0x83ff};
    const strata__format_info *info = strata__format_find(w.format);
    uint32_t scale_at = w.format == STRATA__Q2_K ? 80 : 108;
    for (size_t b = 0; b < w.blocks.size() / info->block_bytes; b++) {
        uint8_t *block = &w.blocks[b * info->block_bytes];
        if (w.format == STRATA__MXFP4) {
            block[0] = (uint8_t)(b % 3);
            continue;
        }
        if (b / 6 % 3)
            memset(block, b / 6 % 3 == 1 ? 0 : 255, scale_at);
        memcpy(block + scale_at, &scales[b % 6], 2);
        if (w.format == STRATA__Q2_K)
            memcpy(block + scale_at + 2, &scales[b / 2 % 6], 2);
    }
}

int8_setup set_up(const suite &s, const int8_case &c)
{
    random_source random(s.seed * 7919 + c.gate * 64 + c.down + c.inputs * 3);
    int8_setup m;
    const uint32_t formats[3] = {c.gate, c.up, c.down};
    for (uint32_t count : c.counts) {
        m.offsets.push_back(m.offsets.back() + count);
        for (int i = 0; i < 3; i++) {
            m.weights[i].push_back(make_weights(random, formats[i], i == 2 ? c.hidden : c.inputs,
                                                i == 2 ? c.inputs : c.hidden, false));
            if (c.extreme)
                set_extremes(m.weights[i].back());
        }
    }
    m.rows = m.offsets.back();
    for (uint32_t i = 0; i < m.rows; i++)
        m.sorted_row.push_back(random.below(m.tokens));
    m.in = make_rows(random, m.tokens, c.inputs, true, 0.3f);
    set_extremes(m.in);
    for (uint32_t k = 0; c.extreme && k < c.inputs; k++) { /* codes 127, and 127 and -127 in turn */
        m.in.data[4 * c.inputs + k] = half_bits(1);
        m.in.data[5 * c.inputs + k] = half_bits(k % 2 ? -1.0f : 1.0f);
    }
    for (int i = 0; i < 3; i++)
        m.bias[i] = random_floats(random, c.counts.size() * (i == 2 ? c.inputs : c.hidden));
    m.expert_scale = random_floats(random, c.counts.size());
    return m;
}

/* What the kernels leave: quantised rows of the inputs and of h, and y. */
struct outcome {
    std::vector<uint8_t> in, h;
    std::vector<float> y;
};

/* One expert's rows by plain loops. */
void expect_expert(const int8_case &c, const int8_setup &m, uint32_t e, outcome &out)
{
    if (m.offsets[e] == m.offsets[e + 1])
        return;
    const plain_matrix gate(m.weights[0][e]), up(m.weights[1][e]), down(m.weights[2][e]);
    uint32_t group = strata__int8_row_group(c.gate, c.up);
    uint32_t h_group = strata__int8_row_group(c.down, c.down);
    parallel_for(m.offsets[e + 1] - m.offsets[e], [&](size_t i) {
        size_t r = m.offsets[e] + i;
        std::vector<float> x(c.inputs), h(c.hidden);
        for (uint32_t k = 0; k < c.inputs; k++)
            x[k] = (float)m.in.value(m.sorted_row[r], k);
        plain_row row = quantise(x.data(), c.inputs, group);
        put_row(row, &out.in[r * strata__quantised_row_bytes(c.inputs)]);
        for (uint32_t n = 0; n < c.hidden; n++) {
            float g = gate.product(row, n, group), u = up.product(row, n, group);
            if (c.bias) {
                g += m.bias[0][(size_t)e * c.hidden + n];
                u += m.bias[1][(size_t)e * c.hidden + n];
            }
            h[n] = plain_activation(c.activation, g, u);
        }
        plain_row hidden = quantise(h.data(), c.hidden, h_group);
        put_row(hidden, &out.h[r * strata__quantised_row_bytes(c.hidden)]);
        for (uint32_t n = 0; n < c.inputs; n++) {
            float y = down.product(hidden, n, h_group);
            if (c.bias)
                y = (y + m.bias[2][(size_t)e * c.inputs + n]) * m.expert_scale[e];
            out.y[r * c.inputs + n] = y;
        }
    });
}

outcome expect(const int8_case &c, const int8_setup &m)
{
    outcome out = {
        std::vector<uint8_t>(m.rows * strata__quantised_row_bytes(c.inputs), 0xff),
        std::vector<uint8_t>(m.rows * strata__quantised_row_bytes(c.hidden), 0xff),
        std::vector<float>((size_t)m.rows * c.inputs),
    };
    for (uint32_t e = 0; e < c.counts.size(); e++)
        expect_expert(c, m, e, out);
    return out;
}

/* Blobs of one projection on the device. */
struct blob_table {
    std::vector<device_array<uint8_t> *> blobs;
    device_array<const void *> *table;

    explicit blob_table(const std::vector<weight_rows> &weights, uint32_t misplaced = 0)
    {
        std::vector<const void *> pointers;
        for (const weight_rows &w : weights) {
            std::vector<uint8_t> bytes(misplaced);
            bytes.insert(bytes.end(), w.blocks.begin(), w.blocks.end());
            bytes.resize((bytes.size() + 15) / 16 * 16); /* as much as is read where some is */
            blobs.push_back(new device_array<uint8_t>(bytes));
            pointers.push_back(blobs.back()->get() + misplaced);
        }
        table = new device_array<const void *>(pointers);
    }
    ~blob_table()
    {
        for (device_array<uint8_t> *blob : blobs)
            delete blob;
        delete table;
    }
};

struct device_side {
    blob_table gate, up, down;
    device_array<float> gate_bias, up_bias, down_bias, expert_scale, in_scale;
    device_array<uint32_t> offsets, sorted_row;
    device_array<uint16_t> in;
    device_array<uint8_t> scratch;

    device_side(const int8_case &c, const int8_setup &m)
        : gate(m.weights[0], c.misplaced), up(m.weights[1], c.misplaced),
          down(m.weights[2], c.misplaced), gate_bias(m.bias[0]), up_bias(m.bias[1]),
          down_bias(m.bias[2]), expert_scale(m.expert_scale), in_scale(m.in.scale),
          offsets(m.offsets), sorted_row(m.sorted_row), in(m.in.data),
          scratch((size_t)c.scratch_slabs * ((c.inputs > c.hidden ? c.inputs : c.hidden) + 127) /
                  128 * STRATA__INT8_IMAGE_BYTES)
    {
    }
    strata__expert_weight weight(const int8_case &c, int i) const
    {
        const blob_table &blobs = i == 0 ? gate : i == 1 ? up : down;
        const device_array<float> &bias = i == 0 ? gate_bias : i == 1 ? up_bias : down_bias;
        return {blobs.table->get(),
                c.bias ? bias.get() : nullptr,
                i == 0   ? c.gate
                : i == 1 ? c.up
                         : c.down,
                i == 2 ? c.hidden : c.inputs,
                i == 2 ? c.inputs : c.hidden,
                0};
    }
};

outcome run(strata__kernels *kernels, const int8_case &c, const device_side &d, uint32_t path,
            uint32_t first, uint32_t rows, bool *guards)
{
    device_array<uint8_t> in(rows * strata__quantised_row_bytes(c.inputs));
    device_array<uint8_t> h(rows * strata__quantised_row_bytes(c.hidden));
    device_array<float> gate_up((size_t)rows * 2 * c.hidden), y((size_t)rows * c.inputs);
    uint32_t last = (uint32_t)c.counts.size() - 1;
    strata__gate_up_args up = {};
    up.gate = d.weight(c, 0);
    up.up = d.weight(c, 1);
    up.range = {d.offsets.get(), nullptr, first, rows, 0, last};
    up.sorted_row = d.sorted_row.get();
    up.in = {d.in.get(), d.in_scale.get()};
    up.h = {h.get(), nullptr};
    up.gate_up = path == STRATA__PATH_MMQ ? gate_up.get() : nullptr;
    up.quantised = in.get();
    up.scratch = {d.scratch.get(), d.scratch.count()};
    up.activation = c.activation;
    up.path = path;
    up.down_format = c.down;
    strata__down_args down = {};
    down.down = d.weight(c, 2);
    down.range = up.range;
    down.expert_scale = c.bias ? d.expert_scale.get() : nullptr;
    down.h = up.h;
    down.y = y.get();
    down.scratch = up.scratch;
    down.path = path;
    require(kernels->ops->gate_up(kernels, 0, &up), "gate_up");
    require(kernels->ops->down(kernels, 0, &down), "down");
    require(cudaDeviceSynchronize(), "experts");
    *guards = *guards && in.guards_intact() && h.guards_intact() && gate_up.guards_intact() &&
              y.guards_intact() && d.scratch.guards_intact();
    return {in.take(), h.take(), y.take()};
}

template <typename T> bool same(const std::vector<T> &got, const std::vector<T> &want, size_t first)
{
    return memcmp(got.data(), want.data() + first, got.size() * sizeof(T)) == 0;
}

/* By one of the products, rows from `cut` on. */
void compare(const int8_suite &s, uint32_t products, uint32_t path, uint32_t cut,
             const int8_case &c, const device_side &d, const outcome &want, tally &t)
{
    size_t in_bytes = strata__quantised_row_bytes(c.inputs);
    size_t h_bytes = strata__quantised_row_bytes(c.hidden);
    uint32_t rows = (uint32_t)(want.y.size() / c.inputs);
    bool guards = true;
    outcome got = run(s.products[products], c, d, path, cut, rows - cut, &guards);
    bool in = same(got.in, want.in, cut * in_bytes), h = same(got.h, want.h, cut * h_bytes);
    bool y = same(got.y, want.y, (size_t)cut * c.inputs);
    report(t, in && h && y && guards, 0,
           "%s %s %s/%s/%s %ux%u activation %u bias %d slabs %u from row %u:%s%s%s%s",
           product_names[products], path == STRATA__PATH_FUSED ? "fused" : "mmq",
           strata__format_name(c.gate), strata__format_name(c.up), strata__format_name(c.down),
           c.inputs, c.hidden, c.activation, c.bias, c.scratch_slabs, cut,
           in ? "" : " inputs differ", h ? "" : " h differs", y ? "" : " y differs",
           guards ? "" : " written outside");
}

void check_case(const int8_suite &s, const int8_case &c, tally &t)
{
    int8_setup m = set_up(s, c);
    device_side d(c, m);
    outcome want = expect(c, m);
    for (uint32_t products = 0; products < 2; products++)
        for (uint32_t path : {STRATA__PATH_FUSED, STRATA__PATH_MMQ})
            for (uint32_t cut : {0u, m.rows / 3})
                if (s.products[products])
                    compare(s, products, path, cut, c, d, want, t);
}

std::vector<uint32_t> int8_formats(const suite &s)
{
    std::vector<uint32_t> formats;
    for (uint32_t f : all_formats)
        if (strata__format_find(f)->int8_group)
            if (!s.only || !strcmp(strata__format_name(f), s.only))
                formats.push_back(f);
    return formats;
}

/* Every format in tiles of each size: few, some and many rows an expert; of most one if small. */
int check_formats(const int8_suite &s)
{
    const std::vector<uint32_t> counts[] = {{1, 0, 5, 33}, {3, 0, 70, 130}, {200, 0, 129, 300}};
    int failures = 0;
    tally t;
    for (uint32_t f : int8_formats(s))
        if (s.leaves_out(f))
            check_case(s, {f, f, f, 256, 256, {3, 0, 34}, f % 3, f % 2 == 1, 64}, t);
        else
            for (uint32_t i = 0; i < (s.small ? 2u : 3u); i++)
                check_case(s, {f, f, f, 512, 256, counts[i], (f + i) % 3, f % 2 == 1, 64}, t);
    for (uint32_t f : {STRATA__Q2_K, STRATA__Q3_K})
        for (uint32_t down : {f, (uint32_t)STRATA__MXFP4})
            check_case(s, {f, f, down, 256, 256, {50, 0, 9}, 0, false, 9, 2, true}, t);
    close_tally(t, "int8, every format", &failures);
    return failures;
}

/* Row lengths of real models, as inputs of gate and up and of down. */
int check_lengths(const int8_suite &s)
{
    int failures = 0;
    tally t;
    for (uint32_t f : int8_formats(s)) {
        bool long_blocks = strata__format_find(f)->block_values == 256;
        check_case(s, {f, f, f, 2048, 768, {40, 3}, f % 3, false, 300}, t);
        if (!long_blocks)
            check_case(s, {f, f, f, 2880, 640, {0, 129, 1}, f % 3, true, 40}, t);
        if (!long_blocks)
            check_case(s, {f, f, f, 640, 2880, {34, 0, 2}, f % 3, true, 11}, t);
    }
    close_tally(t, "int8, row lengths", &failures);
    return failures;
}

/* Whatever formats meet in an expert. */
int check_mixes(const int8_suite &s)
{
    random_source random(s.seed + 5);
    std::vector<uint32_t> formats;
    int failures = 0;
    tally t;
    for (uint32_t f : all_formats)
        if (strata__format_find(f)->int8_group)
            formats.push_back(f);
    check_case(s, {STRATA__Q2_0, STRATA__Q4_1, STRATA__Q2_0, 320, 192, {130, 5, 0, 60}, 2, true, 3},
               t);
    check_case(s, {STRATA__Q2_0, STRATA__Q2_0, STRATA__Q8_0, 320, 96, {9, 5}, 0, true, 1}, t);
    check_case(s, {STRATA__IQ2_XS, STRATA__Q2_K, STRATA__MXFP4, 512, 160, {150, 60}, 2, false, 2},
               t);
    check_case(s, {STRATA__Q5_1, STRATA__IQ4_NL, STRATA__Q5_0, 288, 32, {17, 3, 0, 33}, 1, true, 5},
               t);
    check_case(s, {STRATA__IQ2_S, STRATA__IQ2_S, STRATA__Q4_0, 256, 96, {9, 40}, 0, false, 9, 6},
               t);
    check_case(s, {STRATA__Q5_1, STRATA__Q5_1, STRATA__MXFP4, 160, 160, {70, 2}, 0, true, 9, 10},
               t);
    check_case(s, {STRATA__MXFP4, STRATA__MXFP4, STRATA__Q8_0, 96, 32, {1, 33}, 1, true, 9, 2}, t);
    for (uint32_t i = 0; i < (s.small || s.only ? 0u : 60u); i++) {
        uint32_t three[3];
        for (uint32_t &f : three)
            f = formats[random.below((uint32_t)formats.size())];
        std::vector<uint32_t> counts;
        for (uint32_t e = 0; e < 4; e++)
            counts.push_back(random.below(3) ? random.below(i % 3 == 0 ? 40 : 300) : 0);
        counts.push_back(1 + random.below(200));
        check_case(s,
                   {three[0], three[1], three[2], 256 * (1 + random.below(3)),
                    256 * (1 + random.below(3)), counts, random.below(3), random.below(2) != 0,
                    1 + random.below(50)},
                   t);
    }
    close_tally(t, "int8, mixed formats", &failures);
    return failures;
}

int check_shapes(const int8_suite &s)
{
    const std::vector<uint32_t> ragged = {0, 5, 200, 64, 1, 0, 129, 0};
    const uint32_t few = STRATA__IQ2_S, down = STRATA__Q2_0;
    random_source random(s.seed + 6);
    std::vector<uint32_t> many;
    int failures = 0;
    tally t;
    for (uint32_t slabs : {1u, 7u, 1000u})
        check_case(s, {few, few, down, 2560, 640, ragged, 0, false, slabs}, t);
    check_case(
        s, {STRATA__Q4_K, STRATA__Q4_K, STRATA__Q6_K, 2048, 768, {37, 300, 0, 9}, 0, true, 300}, t);
    check_case(
        s, {STRATA__MXFP4, STRATA__MXFP4, STRATA__MXFP4, 2880, 2880, {20, 0, 90}, 1, true, 200}, t);
    check_case(s, {STRATA__IQ3_XXS, STRATA__Q4_K, STRATA__Q8_0, 256, 64, {1}, 0, true, 3}, t);
    check_case(s, {few, few, down, 256, 64, {0, 65500, 0, 36}, 0, true, 9}, t);
    for (uint32_t e = 0; e < 1024; e++)
        many.push_back(random.below(4) == 0 ? 0 : random.below(e % 100 == 7 ? 400 : 9));
    many.back() += 1;
    check_case(s, {STRATA__IQ2_XS, STRATA__IQ2_XS, STRATA__Q5_1, 256, 64, many, 0, true, 500}, t);
    close_tally(t, "int8, shapes", &failures);
    return failures;
}

int check(const int8_suite &s)
{
    int failures = check_division(s) + check_int8_out(s) + check_formats(s) + check_mixes(s);
    return s.small ? failures : failures + check_lengths(s) + check_shapes(s);
}

constexpr uint32_t EXPERTS = 128, WIDTH = 2048, HIDDEN = 768, TOKENS = 4096, MOST = 2048;

/* What all measurements share: 128 experts of 2048 x 768, up to 2048 rows each. */
struct bench_side {
    size_t most = (size_t)EXPERTS * MOST;
    device_array<uint16_t> in;
    device_array<uint32_t> offsets, sorted_row;
    device_array<uint8_t> quantised, h, scratch;
    device_array<float> h_scale, gate_up, y;

    explicit bench_side(random_source &random)
        : in(make_rows(random, TOKENS, WIDTH, false, 0.3f).data), offsets(EXPERTS + 1),
          sorted_row(most), quantised(most * strata__quantised_row_bytes(WIDTH)),
          h(most * 4 * HIDDEN), scratch((size_t)1 << 30), h_scale(most), gate_up(most * 2 * HIDDEN),
          y(most * WIDTH)
    {
        std::vector<uint32_t> rows(most);
        for (uint32_t &row : rows)
            row = random.below(TOKENS);
        sorted_row.put(rows);
    }
};

/* The same blobs for all experts would stay in the cache, so each has its own. */
struct bench_weights {
    blob_table gate, up, down;
    uint32_t format;

    bench_weights(random_source &random, uint32_t f)
        : gate(copies(make_weights(random, f, WIDTH, HIDDEN, false))),
          up(copies(make_weights(random, f, WIDTH, HIDDEN, false))),
          down(copies(make_weights(random, f, HIDDEN, WIDTH, false))), format(f)
    {
    }
    static std::vector<weight_rows> copies(weight_rows one)
    {
        one.values.clear();
        one.halves.clear();
        return std::vector<weight_rows>(EXPERTS, one);
    }
};

/* Best of three after one: milliseconds of gate and up, and of down. */
void time_path(strata__kernels *kernels, const bench_side &side, const bench_weights &w,
               uint32_t path, uint32_t rows, float (&ms)[2])
{
    std::vector<uint32_t> offsets(EXPERTS + 1);
    cudaEvent_t events[3];
    for (uint32_t e = 0; e <= EXPERTS; e++)
        offsets[e] = e * rows;
    require(cudaMemcpy(side.offsets.get(), offsets.data(), offsets.size() * 4, cudaMemcpyDefault),
            "offsets");
    for (cudaEvent_t &event : events)
        require(cudaEventCreate(&event), "events");
    strata__gate_up_args up = {};
    up.gate = {w.gate.table->get(), nullptr, w.format, WIDTH, HIDDEN, 0};
    up.up = {w.up.table->get(), nullptr, w.format, WIDTH, HIDDEN, 0};
    up.range = {side.offsets.get(), nullptr, 0, EXPERTS * rows, 0, EXPERTS - 1};
    up.sorted_row = side.sorted_row.get();
    up.in = {side.in.get(), nullptr};
    up.h = {side.h.get(), side.h_scale.get()};
    up.gate_up = side.gate_up.get();
    up.quantised = side.quantised.get();
    up.scratch = {side.scratch.get(), side.scratch.count()};
    up.path = path;
    up.down_format = w.format;
    strata__down_args down = {};
    down.down = {w.down.table->get(), nullptr, w.format, HIDDEN, WIDTH, 0};
    down.range = up.range;
    down.h = up.h;
    down.y = side.y.get();
    down.scratch = up.scratch;
    down.path = path;
    ms[0] = ms[1] = 1e9f;
    for (int round = 0; round < 4; round++) {
        require(cudaEventRecord(events[0]), "timing");
        require(kernels->ops->gate_up(kernels, 0, &up), "gate_up");
        require(cudaEventRecord(events[1]), "timing");
        require(kernels->ops->down(kernels, 0, &down), "down");
        require(cudaEventRecord(events[2]), "timing");
        require(cudaDeviceSynchronize(), "timing");
        for (int i = 0; i < 2 && round; i++) {
            float one = 0;
            require(cudaEventElapsedTime(&one, events[i], events[i + 1]), "timing");
            ms[i] = one < ms[i] ? one : ms[i];
        }
    }
    for (cudaEvent_t event : events)
        cudaEventDestroy(event);
}

/* Milliseconds of decoding gate and up. */
float time_decode(const bench_side &side, const bench_weights &w)
{
    const strata__format_info *info = strata__format_find(w.format);
    strata__int8_decode_args args = {};
    cudaEvent_t events[2];
    float best = 1e9f;
    std::vector<uint32_t> offsets(EXPERTS + 1);
    for (uint32_t e = 0; e <= EXPERTS; e++)
        offsets[e] = e;
    require(cudaMemcpy(side.offsets.get(), offsets.data(), offsets.size() * 4, cudaMemcpyDefault),
            "offsets");
    for (cudaEvent_t &event : events)
        require(cudaEventCreate(&event), "events");
    args.matrix[0].blobs = w.gate.table->get();
    args.matrix[1].blobs = w.up.table->get();
    for (int m = 0; m < 2; m++) {
        args.matrix[m].format = w.format;
        args.form[m].values = info->int8_group;
        args.form[m].offsets = info->int8_minimum_group;
    }
    args.range.offsets = side.offsets.get();
    args.range.experts = EXPERTS;
    args.range.rows = EXPERTS;
    args.image = side.scratch.get();
    args.matrices = 2;
    args.inputs = WIDTH;
    args.outputs = HIDDEN;
    args.slabs = 2 * HIDDEN / STRATA__SLAB_ROWS;
    for (int round = 0; round < 4; round++) {
        float one = 0;
        require(cudaEventRecord(events[0]), "timing");
        require(strata__cuda_int8_decode(0, &args), "decode");
        require(cudaEventRecord(events[1]), "timing");
        require(cudaDeviceSynchronize(), "timing");
        require(cudaEventElapsedTime(&one, events[0], events[1]), "timing");
        best = round && one < best ? one : best;
    }
    for (cudaEvent_t event : events)
        cudaEventDestroy(event);
    return best;
}

/* TOPS of gate and up, quantising and decoding included, and of down, for 32 to 2048 rows each. */
void bench(const int8_suite &s)
{
    static const char *const names[] = {"direct", "fused", "mmq", "fp16"};
    random_source random(s.seed);
    bench_side side(random);
    printf("%-8s %-6s %-6s %9s  gate and up, down: TOPS at 32, 128, 512, 2048 rows of %u experts\n",
           "format", "path", "by", "decode ms", EXPERTS);
    for (uint32_t format : int8_formats(s)) {
        bench_weights w(random, format);
        float decode = time_decode(side, w);
        for (uint32_t path : {STRATA__PATH_FUSED, STRATA__PATH_MMQ, STRATA__PATH_FP16})
            for (uint32_t products = 0; products < 2; products++) {
                /* Of fp16 there is one kind. */
                if (!s.products[products] ||
                    (path == STRATA__PATH_FP16 && products && s.products[0]))
                    continue;
                printf("%-8s %-6s %-6s %9.3f", strata__format_name(format), names[path],
                       product_names[products], decode);
                for (uint32_t rows : {32u, 128u, 512u, 2048u}) {
                    float ms[2];
                    double work = 2e-9 * EXPERTS * rows * WIDTH * HIDDEN;
                    time_path(s.products[products], side, w, path, rows, ms);
                    printf("  %6.1f %6.1f", 2 * work / ms[0], work / ms[1]);
                }
                printf("\n");
                fflush(stdout);
            }
    }
}

} /* namespace */

int main(int argc, char **argv)
{
    bool checks = false, times = false;
    uint32_t level = 0;
    int8_suite s = {};
    const char *which = nullptr;
    int devices = 0, failures = 0;
    s.seed = (uint64_t)std::chrono::steady_clock::now().time_since_epoch().count() % 1000000;
    for (int i = 1; i < argc; i++) {
        checks |= !strcmp(argv[i], "check");
        times |= !strcmp(argv[i], "bench");
        s.small |= !strcmp(argv[i], "small");
        if (!strncmp(argv[i], "level=", 6))
            level = (uint32_t)strtoul(argv[i] + 6, nullptr, 10);
        if (!strncmp(argv[i], "only=", 5))
            s.only = argv[i] + 5;
        if (!strncmp(argv[i], "products=", 9))
            which = argv[i] + 9;
        if (!strncmp(argv[i], "seed=", 5))
            s.seed = strtoull(argv[i] + 5, nullptr, 10);
    }
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("no CUDA device: skipped\n");
        return 77;
    }
    for (uint32_t products = 0; products < 2; products++) {
        strata__cuda_kernels_options options = {strata__allocator_default(), 0, level, 0, products};
        if (!which || !strcmp(which, product_names[products]))
            require(strata__cuda_kernels_create(&options, &s.products[products]), "opening");
    }
    if (!s.products[0] && !s.products[1]) {
        printf("products=%s: inline or image\n", which);
        return 2;
    }
    printf("== int8, seed %llu\n", (unsigned long long)s.seed);
    if (checks)
        failures = check(s);
    if (times)
        bench(s);
    for (strata__kernels *kernels : s.products)
        if (kernels)
            kernels->ops->destroy(kernels);
    return failures ? 1 : 0;
}
