/* SPDX-License-Identifier: MIT */
/* Expert products: gate and up with the activation, down, ranges, scratch sizes, both paths. */
#include "check.h"

struct expert_case {
    uint32_t gate, up, down; /* formats */
    uint32_t inputs, hidden;
    std::vector<uint32_t> counts; /* rows of each expert */
    uint32_t activation, path;
    bool bias;
    uint32_t scratch_slabs;
    float spread;
};

/* The model of a case on host and device. */
struct expert_setup {
    std::vector<weight_rows> gate, up, down;
    std::vector<uint32_t> offsets, sorted_row;
    std::vector<float> gate_bias, up_bias, down_bias, expert_scale;
    activation_rows in, hidden;
    uint32_t rows, tokens;
};

static std::vector<float> random_floats(random_source &random, size_t count, float spread)
{
    std::vector<float> values(count);
    for (float &value : values)
        value = random.normal() * spread;
    return values;
}

static expert_setup set_up(const suite &s, const expert_case &c)
{
    random_source random(s.seed * 31337 + c.gate * 64 + c.down + c.inputs * 3 + c.path);
    expert_setup m;
    uint32_t experts = (uint32_t)c.counts.size();
    m.tokens = 1;
    m.offsets.push_back(0);
    for (uint32_t count : c.counts) {
        m.offsets.push_back(m.offsets.back() + count);
        m.tokens = count > m.tokens ? count : m.tokens;
        m.gate.push_back(make_weights(random, c.gate, c.inputs, c.hidden, false));
        m.up.push_back(make_weights(random, c.up, c.inputs, c.hidden, false));
        m.down.push_back(make_weights(random, c.down, c.hidden, c.inputs, false));
    }
    m.rows = m.offsets.back();
    for (uint32_t i = 0; i < m.rows; i++)
        m.sorted_row.push_back(random.below(m.tokens));
    m.in = make_rows(random, m.tokens, c.inputs, true, c.spread);
    m.hidden = make_rows(random, m.rows, c.hidden, true, 1);
    m.gate_bias = random_floats(random, (size_t)experts * c.hidden, 1);
    m.up_bias = random_floats(random, (size_t)experts * c.hidden, 1);
    m.down_bias = random_floats(random, (size_t)experts * c.inputs, 1);
    m.expert_scale = random_floats(random, experts, 1);
    return m;
}

static double activate_reference(uint32_t activation, double gate, double up)
{
    if (activation == STRATA__ACT_SWIGLU)
        return gate / (1 + exp(-gate)) * up;
    if (activation == STRATA__ACT_SWIGLU_CLAMPED) {
        gate = fmin(gate, 7);
        up = fmax(fmin(up, 7), -7);
        return gate / (1 + exp(-1.702 * gate)) * (up + 1);
    }
    return 0.5 * gate * (1 + tanh(0.7978845608028654 * gate * (1 + 0.044715 * gate * gate))) * up;
}

static uint32_t expert_of(const expert_setup &m, uint32_t sorted)
{
    uint32_t e = 0;
    while (m.offsets[e + 1] <= sorted)
        e++;
    return e;
}

/* sum and sum of magnitudes of a row with row n of the weights */
static void dot(const uint16_t *in, const weight_rows &w, uint32_t n, bool direct, double *sum,
                double *magnitude)
{
    const float *row = (direct ? w.values : w.halves).data() + (size_t)n * w.inputs;
    *sum = *magnitude = 0;
    for (uint32_t k = 0; k < w.inputs; k++) {
        double term = half_value(in[k]) * row[k];
        *sum += term;
        *magnitude += fabs(term);
    }
}

/* Device copies of the blobs of one projection. */
class blob_table
{
  public:
    explicit blob_table(const std::vector<weight_rows> &weights)
    {
        std::vector<const void *> pointers;
        for (const weight_rows &w : weights) {
            blobs_.push_back(new device_array<uint8_t>(w.blocks));
            pointers.push_back(blobs_.back()->get());
        }
        table_ = new device_array<const void *>(pointers);
    }
    ~blob_table()
    {
        for (device_array<uint8_t> *blob : blobs_)
            delete blob;
        delete table_;
    }
    const void *const *get() const
    {
        return table_->get();
    }

  private:
    std::vector<device_array<uint8_t> *> blobs_;
    device_array<const void *> *table_;
};

/* Rows [first, first + rows) of the sorted rows, of experts [from, to]. */
struct row_range {
    uint32_t first, rows, from, to;
};

struct device_side {
    blob_table gate, up, down;
    device_array<uint32_t> offsets, sorted_row;
    device_array<float> gate_bias, up_bias, down_bias, expert_scale;
    device_array<uint16_t> in, hidden;
    device_array<float> in_scale, hidden_scale;
    uint64_t scratch_bytes;
    device_array<uint8_t> scratch;

    device_side(const expert_case &c, const expert_setup &m)
        : gate(m.gate), up(m.up), down(m.down), offsets(m.offsets), sorted_row(m.sorted_row),
          gate_bias(m.gate_bias), up_bias(m.up_bias), down_bias(m.down_bias),
          expert_scale(m.expert_scale), in(m.in.data), hidden(m.hidden.data), in_scale(m.in.scale),
          hidden_scale(m.hidden.scale),
          scratch_bytes((uint64_t)c.scratch_slabs *
                        ((c.inputs > c.hidden ? c.inputs : c.hidden) + 63) / 64 *
                        STRATA__BLOCK_BYTES),
          scratch(scratch_bytes)
    {
    }
};

static strata__expert_range range_of(const device_side &d, const row_range &r)
{
    return {d.offsets.get(), nullptr, r.first, r.rows, r.from, r.to};
}

static void run_gate_up(const suite &s, const expert_case &c, const device_side &d,
                        const row_range &r, std::vector<uint16_t> *out, std::vector<float> *scale,
                        bool *guards)
{
    device_array<uint16_t> h((size_t)r.rows * c.hidden);
    device_array<float> h_scale(r.rows);
    strata__gate_up_args a = {};
    a.gate = {d.gate.get(), c.bias ? d.gate_bias.get() : nullptr, c.gate, c.inputs, c.hidden, 0};
    a.up = {d.up.get(), c.bias ? d.up_bias.get() : nullptr, c.up, c.inputs, c.hidden, 0};
    a.range = range_of(d, r);
    a.sorted_row = d.sorted_row.get();
    a.in = {d.in.get(), d.in_scale.get()};
    a.h = {h.get(), h_scale.get()};
    a.scratch = {d.scratch.get(), d.scratch_bytes};
    a.activation = c.activation;
    a.path = c.path;
    require(s.kernels->ops->gate_up(s.kernels, 0, &a), "gate_up");
    require(cudaDeviceSynchronize(), "gate_up");
    *out = h.take();
    *scale = h_scale.take();
    *guards = *guards && h.guards_intact() && h_scale.guards_intact() && d.scratch.guards_intact();
}

static std::vector<float> run_down(const suite &s, const expert_case &c, const device_side &d,
                                   const row_range &r, bool *guards)
{
    device_array<float> y((size_t)r.rows * c.inputs);
    strata__down_args a = {};
    a.down = {d.down.get(), c.bias ? d.down_bias.get() : nullptr, c.down, c.hidden, c.inputs, 0};
    a.range = range_of(d, r);
    a.expert_scale = c.bias ? d.expert_scale.get() : nullptr;
    a.h = {d.hidden.get() + (size_t)r.first * c.hidden, d.hidden_scale.get() + r.first};
    a.y = y.get();
    a.scratch = {d.scratch.get(), d.scratch_bytes};
    a.path = c.path;
    require(s.kernels->ops->down(s.kernels, 0, &a), "down");
    require(cudaDeviceSynchronize(), "down");
    *guards = *guards && y.guards_intact() && d.scratch.guards_intact();
    return y.take();
}

/* The activation's error is that of its float32 inputs, which a step of them shows, and of half. */
static double gate_up_error(const expert_case &c, const expert_setup &m,
                            const std::vector<uint16_t> &h, const std::vector<float> &scale)
{
    std::vector<double> worst(m.rows);
    bool direct = c.path == STRATA__PATH_DIRECT && c.gate == c.up;
    parallel_for(m.rows, [&](size_t i) {
        uint32_t e = expert_of(m, (uint32_t)i), token = m.sorted_row[i];
        const uint16_t *in = m.in.data.data() + (size_t)token * c.inputs;
        int exponent;
        if (!(scale[i] >= 1) || frexp(scale[i], &exponent) != 0.5)
            worst[i] = NAN;
        for (uint32_t n = 0; n < c.hidden; n++) {
            double g, u, gm, um;
            dot(in, m.gate[e], n, direct, &g, &gm);
            dot(in, m.up[e], n, direct, &u, &um);
            double s = m.in.scale[token], bg = 0, bu = 0;
            if (c.bias) {
                bg = m.gate_bias[(size_t)e * c.hidden + n];
                bu = m.up_bias[(size_t)e * c.hidden + n];
            }
            double dg = gm * s * 2e-6 + fabs(bg) * 1e-7, du = um * s * 2e-6 + fabs(bu) * 1e-7;
            double v = activate_reference(c.activation, g * s + bg, u * s + bu);
            double bound = 1e-12 + fabs(v) * (0x1.01p-11 + 4e-6) + scale[i] * 0x1p-25;
            for (int sign = -1; sign <= 1; sign += 2) {
                bound +=
                    fabs(activate_reference(c.activation, g * s + bg + sign * dg, u * s + bu) - v);
                bound +=
                    fabs(activate_reference(c.activation, g * s + bg, u * s + bu + sign * du) - v);
            }
            double got = half_value(h[i * c.hidden + n]) * scale[i];
            double error = fabs(got - v) / bound;
            if (!(error <= worst[i]))
                worst[i] = error;
        }
    });
    double largest = 0;
    for (double w : worst)
        if (!(w <= largest))
            largest = w;
    return largest;
}

static double down_error(const expert_case &c, const expert_setup &m, const std::vector<float> &y)
{
    std::vector<double> worst(m.rows);
    parallel_for(m.rows, [&](size_t i) {
        uint32_t e = expert_of(m, (uint32_t)i);
        for (uint32_t n = 0; n < c.inputs; n++) {
            double sum, magnitude, bias = 0, factor = 1;
            dot(m.hidden.data.data() + i * c.hidden, m.down[e], n, c.path == STRATA__PATH_DIRECT,
                &sum, &magnitude);
            if (c.bias) {
                bias = m.down_bias[(size_t)e * c.inputs + n];
                factor = m.expert_scale[e];
            }
            double v = (sum * m.hidden.scale[i] + bias) * factor;
            double bound =
                (magnitude * m.hidden.scale[i] + fabs(bias)) * fabs(factor) * 2e-6 + 1e-12;
            double error = fabs(y[i * c.inputs + n] - v) / bound;
            if (!(error <= worst[i]))
                worst[i] = error;
        }
    });
    double largest = 0;
    for (double w : worst)
        if (!(w <= largest))
            largest = w;
    return largest;
}

/* The same rows in pieces, so that they lie elsewhere in the tiles: the bits must be the same. */
static bool pieces_agree(const suite &s, const expert_case &c, const expert_setup &m,
                         const device_side &d, const std::vector<uint16_t> &h,
                         const std::vector<float> &scale, const std::vector<float> &y)
{
    uint32_t last = (uint32_t)c.counts.size() - 1, cut = m.rows / 3 + 1;
    const row_range ranges[] = {{0, cut, 0, last},
                                {cut, m.rows - cut, 0, last},
                                {m.offsets[1], m.offsets[last] - m.offsets[1], 1, last - 1}};
    bool same = true;
    for (const row_range &r : ranges) {
        std::vector<uint16_t> piece;
        std::vector<float> piece_scale;
        if (r.rows == 0)
            continue;
        run_gate_up(s, c, d, r, &piece, &piece_scale, &same);
        same =
            same && !memcmp(piece.data(), h.data() + (size_t)r.first * c.hidden, piece.size() * 2);
        same = same && !memcmp(piece_scale.data(), scale.data() + r.first, r.rows * 4);
        std::vector<float> part = run_down(s, c, d, r, &same);
        same = same && !memcmp(part.data(), y.data() + (size_t)r.first * c.inputs, part.size() * 4);
    }
    return same;
}

static void check_case(const suite &s, const expert_case &c, tally &t)
{
    expert_setup m = set_up(s, c);
    device_side d(c, m);
    row_range all = {0, m.rows, 0, (uint32_t)c.counts.size() - 1};
    std::vector<uint16_t> h;
    std::vector<float> scale;
    bool guards = true;
    run_gate_up(s, c, d, all, &h, &scale, &guards);
    std::vector<float> y = run_down(s, c, d, all, &guards);
    double up = gate_up_error(c, m, h, scale), down = down_error(c, m, y);
    bool same = pieces_agree(s, c, m, d, h, scale, y);
    const char *path = c.path == STRATA__PATH_DIRECT ? "direct" : "fp16";
    report(t, up <= 1 && guards, up, "gate_up %s %s/%s %ux%u activation %u slabs %u%s", path,
           strata__format_name(c.gate), strata__format_name(c.up), c.inputs, c.hidden, c.activation,
           c.scratch_slabs, guards ? "" : ": written outside");
    report(t, down <= 1, down, "down %s %s %ux%u slabs %u", path, strata__format_name(c.down),
           c.hidden, c.inputs, c.scratch_slabs);
    report(t, same, 0, "%s %s slabs %u: bits depend on the pieces", path,
           strata__format_name(c.gate), c.scratch_slabs);
}

int check_experts(const suite &s)
{
    const uint32_t fp16 = STRATA__PATH_FP16, direct = STRATA__PATH_DIRECT;
    const std::vector<uint32_t> ragged = {0, 5, 200, 64, 1, 0, 129, 300, 0};
    const std::vector<uint32_t> many = {300, 0, 129, 700, 257};
    const std::vector<uint32_t> few = {1, 0, 3, 9, 16, 2};
    int failures = 0;
    tally formats, scratch, many_rows, few_rows, wide, large;
    for (uint32_t f : all_formats) {
        if (s.leaves_out(f))
            continue;
        uint32_t inputs = 512, hidden = 256;
        check_case(s, {f, f, f, inputs, hidden, {3, 0, 70, 130}, 0, fp16, false, 64, 0.2f},
                   formats);
        check_case(s, {f, f, f, inputs, hidden, {1, 2, 0, 9}, 0, direct, false, 64, 0.2f},
                   few_rows);
    }
    for (uint32_t slabs : {1u, 2u, 3u, 5u, 11u, 200u}) {
        if (s.small && slabs != 3 && slabs != 200)
            continue;
        check_case(s,
                   {STRATA__Q4_K, STRATA__Q4_K, STRATA__Q4_0, 512, 288, ragged, 0, fp16, true,
                    slabs, 0.2f},
                   scratch);
    }
    for (uint32_t slabs : {1u, 3u, 1000u}) {
        if (s.small && slabs != 1000)
            continue;
        check_case(s,
                   {STRATA__IQ2_XS, STRATA__IQ2_XS, STRATA__IQ2_XS, 512, 256, many, 0, fp16, false,
                    slabs, 0.2f},
                   many_rows);
    }
    for (uint32_t activation : {0u, 1u, 2u})
        check_case(s,
                   {STRATA__MXFP4, STRATA__MXFP4, STRATA__MXFP4, 640, 736, few, activation, direct,
                    true, 64, 0.2f},
                   few_rows);
    for (uint32_t activation : {0u, 1u, 2u}) {
        if (s.small)
            continue;
        check_case(s,
                   {STRATA__IQ2_S, STRATA__IQ3_XXS, STRATA__Q2_0, 2560, 640, ragged, activation,
                    fp16, true, 1000, 0.05f},
                   wide);
    }
    if (!s.small)
        check_case(s,
                   {STRATA__IQ2_XS, STRATA__IQ2_XS, STRATA__IQ2_XS, 2048, 768,
                    std::vector<uint32_t>(12, 37), 0, fp16, false, 300, 0.05f},
                   wide);
    for (uint32_t path : {fp16, direct})
        for (uint32_t slabs : {2u, 100u})
            check_case(s,
                       {STRATA__Q8_0,
                        STRATA__Q8_0,
                        STRATA__Q8_0,
                        512,
                        256,
                        {2, 0, 150, 7},
                        0,
                        path,
                        false,
                        slabs,
                        2000},
                       large);
    close_tally(formats, "experts, every format", &failures);
    close_tally(scratch, "experts, scratch of any size", &failures);
    close_tally(many_rows, "experts, many rows", &failures);
    close_tally(few_rows, "experts, direct", &failures);
    close_tally(wide, "experts, wide and mixed", &failures);
    close_tally(large, "experts, beyond half's range", &failures);
    return failures;
}
