/* SPDX-License-Identifier: MIT */
/*
 * The composed operations for few rows against float64: every format, ragged shapes, weights at odd
 * addresses and in page-locked host memory, and rows that must not depend on those beside them.
 */
#include "check.h"

#include "kernels/cuda/few.h"

namespace
{

std::vector<float> random_floats(random_source &random, size_t count, float spread)
{
    std::vector<float> values(count);
    for (float &value : values)
        value = random.normal() * spread;
    return values;
}

/* Bytes in page-locked host memory or on the device, `skew` bytes off 16, with nothing around. */
class placed_bytes
{
  public:
    placed_bytes(const std::vector<uint8_t> &bytes, bool pinned, uint32_t skew) : pinned_(pinned)
    {
        size_t size = bytes.size() + skew;
        if (pinned)
            require(cudaHostAlloc(&base_, size, cudaHostAllocMapped), "page-locking");
        else
            require(cudaMalloc(&base_, size), "allocating");
        at_ = base_ + skew;
        require(cudaMemcpy(at_, bytes.data(), bytes.size(), cudaMemcpyDefault), "placing");
    }
    ~placed_bytes()
    {
        if (pinned_)
            cudaFreeHost(base_);
        else
            cudaFree(base_);
    }
    placed_bytes(const placed_bytes &) = delete;
    placed_bytes &operator=(const placed_bytes &) = delete;
    const uint8_t *get() const
    {
        return at_;
    }

  private:
    uint8_t *base_ = nullptr, *at_;
    bool pinned_;
};

uint32_t skew_of(uint32_t format, uint32_t turn)
{
    const uint32_t even[] = {0, 2, 6, 14}, odd[] = {0, 1, 7, 15};
    uint32_t unit = strata__format_find(format)->block_values == 1 ? 1 : 0;
    return format == STRATA__F32     ? 0
           : unit                    ? (turn % 2) * 2
           : format == STRATA__MXFP4 ? odd[turn % 4]
                                     : even[turn % 4];
}

/* Slices of a row of float32 as the kernels round them: halves over a power of two. */
std::vector<double> rounded_row(const float *x, const float *gain, uint32_t inputs)
{
    std::vector<double> values(inputs);
    for (uint32_t first = 0; first < inputs; first += 256) {
        uint32_t end = first + 256 < inputs ? first + 256 : inputs;
        float most = 0, scale = 1;
        for (uint32_t k = first; k < end; k++) {
            float v = gain ? x[k] * gain[k] : x[k];
            most = fabsf(v) > most ? fabsf(v) : most;
        }
        if (most >= 0x1p-111f && most < INFINITY)
            scale = ldexpf(1.0f, ilogbf(most) - 8);
        for (uint32_t k = first; k < end; k++) {
            float v = gain ? x[k] * gain[k] : x[k];
            values[k] = half_value(half_bits(v / scale)) * scale;
        }
    }
    return values;
}

/* sum and sum of magnitudes of a row with row n of the weights */
void dot(const std::vector<double> &in, const weight_rows &w, uint32_t n, double *sum,
         double *magnitude)
{
    const float *row = w.values.data() + (size_t)n * w.inputs;
    *sum = *magnitude = 0;
    for (uint32_t k = 0; k < w.inputs; k++) {
        *sum += in[k] * row[k];
        *magnitude += fabs(in[k] * row[k]);
    }
}

struct project_case {
    uint32_t format, last_format, inputs, rows;
    uint32_t outputs[3];
    float spread;
    bool pinned;
};

/* Three parts behind a norm; the last adds to what is there. */
class project_run
{
  public:
    project_run(const suite &s, const project_case &c)
        : s_(s), c_(c), random_(s.seed * 7919 + c.format * 64 + c.inputs + c.rows)
    {
        for (uint32_t p = 0; p < 3; p++) {
            uint32_t format = p == 2 ? c.last_format : c.format;
            weights.push_back(make_weights(random_, format, c.inputs, c.outputs[p], false));
            placed_.push_back(
                new placed_bytes(weights[p].blocks, c.pinned, skew_of(format, p + c.rows)));
            stride_ += c.outputs[p];
        }
        x = random_floats(random_, (size_t)c.rows * c.inputs, c.spread);
        gain = random_floats(random_, c.inputs, 1);
        before = random_floats(random_, (size_t)c.rows * stride_, 1);
    }
    ~project_run()
    {
        for (placed_bytes *p : placed_)
            delete p;
    }

    /* Rows [first, first + rows) in a launch of their own. */
    std::vector<float> run(uint32_t first, uint32_t rows, bool *guards)
    {
        std::vector<float> own(x.begin() + (size_t)first * c_.inputs,
                               x.begin() + (size_t)(first + rows) * c_.inputs);
        std::vector<float> start(before.begin() + (size_t)first * stride_,
                                 before.begin() + (size_t)(first + rows) * stride_);
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t n = 0; n < c_.outputs[0] + c_.outputs[1]; n++)
                start[(size_t)r * stride_ + n] = NAN;
        device_array<float> xd(own), gd(gain), out(start), inv(rows), scale(rows);
        device_array<uint16_t> xn((size_t)rows * c_.inputs);
        device_array<uint8_t> scratch((size_t)128 * 2 * (c_.inputs + 64));
        for (device_array<float> *one : {&xd, &out, &scale, &inv})
            one->come_late();
        xn.come_late();
        strata__project_args a = {};
        a.norm.x = xd.get();
        a.norm.weight = gd.get();
        a.norm.out = {xn.get(), scale.get()};
        a.norm.inv_rms = inv.get();
        a.norm.rows = rows;
        a.norm.width = c_.inputs;
        a.norm.eps = 1e-6f;
        a.part_count = 3;
        uint32_t column = 0;
        for (uint32_t p = 0; p < 3; p++) {
            strata__dense_args &d = a.parts[p];
            d.weight = {placed_[p]->get(), nullptr, weights[p].format, c_.inputs, c_.outputs[p]};
            d.in = a.norm.out;
            d.out_f32 = out.get() + column;
            d.scratch = {scratch.get(), scratch.count()};
            d.rows = rows;
            d.out_stride = stride_;
            d.mode = p == 2 ? STRATA__DENSE_ADD_F32 : STRATA__DENSE_STORE_F32;
            d.alpha = p == 2 ? 0.5f : 1.0f;
            column += c_.outputs[p];
        }
        require(s_.kernels->ops->project(s_.kernels, 0, &a), "project");
        require(cudaDeviceSynchronize(), "project");
        *guards = *guards && out.guards_intact() && xn.guards_intact() && inv.guards_intact();
        return out.take();
    }

    double error(const std::vector<float> &out) const
    {
        std::vector<double> worst(c_.rows);
        parallel_for(c_.rows, [&](size_t r) {
            const float *row = x.data() + r * c_.inputs;
            double squares = 0;
            for (uint32_t k = 0; k < c_.inputs; k++)
                squares += (double)row[k] * row[k];
            double inverse = 1 / sqrt(squares / c_.inputs + 1e-6);
            /* Where an operation of its own does the norm, it rounds the row to halves. */
            bool apart = false;
            for (const weight_rows &w : weights)
                apart = apart || !strata__few_takes(w.format, w.inputs);
            double rounding = apart ? 0x1.1p-11 : 3e-6;
            std::vector<double> in = rounded_row(row, gain.data(), c_.inputs);
            for (uint32_t k = 0; k < c_.inputs && apart; k++)
                in[k] = (double)row[k] * gain[k];
            uint32_t column = 0;
            for (uint32_t p = 0; p < 3; p++)
                for (uint32_t n = 0; n < c_.outputs[p]; n++, column++) {
                    double sum, magnitude, old = p == 2 ? before[r * stride_ + column] : 0;
                    dot(in, weights[p], n, &sum, &magnitude);
                    double factor = p == 2 ? 0.5 * inverse : inverse;
                    double bound = magnitude * factor * rounding + fabs(old) * 1e-7 + 1e-30;
                    double e = fabs(out[r * stride_ + column] - old - sum * factor) / bound;
                    if (!(e <= worst[r]))
                        worst[r] = e;
                }
        });
        double most = 0;
        for (double w : worst)
            if (!(w <= most))
                most = w;
        return most;
    }

    uint32_t stride() const
    {
        return stride_;
    }

    std::vector<weight_rows> weights;
    std::vector<float> x, gain, before;

  private:
    const suite &s_;
    project_case c_;
    random_source random_;
    std::vector<placed_bytes *> placed_;
    uint32_t stride_ = 0;
};

void check_project(const suite &s, const project_case &c, tally &t)
{
    project_run run(s, c);
    bool guards = true, same = true;
    std::vector<float> out = run.run(0, c.rows, &guards);
    double worst = run.error(out);
    uint32_t last = c.rows - 1;
    std::vector<float> alone = run.run(last, 1, &guards);
    same = !memcmp(alone.data(), out.data() + (size_t)last * run.stride(), run.stride() * 4);
    report(t, worst <= 1 && guards && same, worst, "project %s/%s rows %u inputs %u%s%s%s",
           strata__format_name(c.format), strata__format_name(c.last_format), c.rows, c.inputs,
           c.pinned ? " pinned" : "", guards ? "" : ": written outside",
           same ? "" : ": a row depends on others");
}

struct experts_case {
    uint32_t gate, down, inputs, hidden, experts, top_k, rows, activation;
    bool bias, pinned;
    float spread;
};

/* A layer's experts, routed at random. */
struct experts_setup {
    std::vector<weight_rows> gate, up, down;
    std::vector<int32_t> ids; /* [rows][top_k] */
    std::vector<uint32_t> offsets, sorted_row, sorted_index;
    std::vector<float> weights, gate_bias, up_bias, down_bias, expert_scale, x;
    activation_rows in;
};

void route(random_source &random, const experts_case &c, uint32_t first, uint32_t rows,
           experts_setup &m)
{
    std::vector<std::vector<uint32_t>> pairs(c.experts);
    uint32_t sorted = 0;
    (void)random;
    m.sorted_row.assign((size_t)rows * c.top_k, 0);
    m.sorted_index.assign((size_t)rows * c.top_k, 0);
    m.offsets.clear();
    for (uint32_t i = 0; i < rows * c.top_k; i++)
        pairs[m.ids[(size_t)first * c.top_k + i]].push_back(i);
    for (uint32_t e = 0; e < c.experts; e++) {
        m.offsets.push_back(sorted);
        for (uint32_t i : pairs[e]) {
            m.sorted_row[sorted] = i / c.top_k;
            m.sorted_index[i] = sorted++;
        }
    }
    m.offsets.push_back(sorted);
}

experts_setup set_up(const suite &s, const experts_case &c)
{
    random_source random(s.seed * 104729 + c.gate * 64 + c.down + c.rows * 5 + c.inputs);
    experts_setup m;
    for (uint32_t e = 0; e < c.experts; e++) {
        m.gate.push_back(make_weights(random, c.gate, c.inputs, c.hidden, false));
        m.up.push_back(make_weights(random, c.gate, c.inputs, c.hidden, false));
        m.down.push_back(make_weights(random, c.down, c.hidden, c.inputs, false));
    }
    for (uint32_t r = 0; r < c.rows; r++) {
        std::vector<bool> used(c.experts);
        for (uint32_t j = 0; j < c.top_k;) {
            uint32_t e = random.below(c.experts);
            j += !used[e];
            used[e] = true;
        }
        for (uint32_t e = 0; e < c.experts; e++)
            if (used[e])
                m.ids.push_back((int32_t)e);
    }
    m.weights = random_floats(random, (size_t)c.rows * c.top_k, 1);
    m.gate_bias = random_floats(random, (size_t)c.experts * c.hidden, 1);
    m.up_bias = random_floats(random, (size_t)c.experts * c.hidden, 1);
    m.down_bias = random_floats(random, (size_t)c.experts * c.inputs, 1);
    m.expert_scale = random_floats(random, c.experts, 1);
    m.x = random_floats(random, (size_t)c.rows * c.inputs, 1);
    m.in = make_rows(random, c.rows, c.inputs, true, c.spread);
    route(random, c, 0, c.rows, m);
    return m;
}

class blobs
{
  public:
    blobs(const std::vector<weight_rows> &weights, const experts_case &c)
    {
        std::vector<const void *> pointers;
        for (uint32_t e = 0; e < weights.size(); e++) {
            placed_.push_back(new placed_bytes(weights[e].blocks, c.pinned && e % 2,
                                               skew_of(weights[e].format, e)));
            pointers.push_back(placed_.back()->get());
        }
        table_ = new device_array<const void *>(pointers);
    }
    ~blobs()
    {
        for (placed_bytes *p : placed_)
            delete p;
        delete table_;
    }
    const void *const *get() const
    {
        return table_->get();
    }

  private:
    std::vector<placed_bytes *> placed_;
    device_array<const void *> *table_;
};

struct experts_blobs {
    blobs gate, up, down;
};

/* Rows [first, first + rows): the residual afterwards, and the hidden values. */
std::vector<float> run_experts(const suite &s, const experts_case &c, const experts_setup &all,
                               const experts_blobs &b, uint32_t first, uint32_t rows,
                               std::vector<float> *hidden, bool *guards)
{
    experts_setup m = all;
    random_source random(1);
    uint32_t pairs = rows * c.top_k;
    route(random, c, first, rows, m);
    size_t width = c.inputs;
    std::vector<float> x(all.x.begin() + first * width, all.x.begin() + (first + rows) * width);
    std::vector<float> weights(all.weights.begin() + (size_t)first * c.top_k,
                               all.weights.begin() + (size_t)(first + rows) * c.top_k);
    device_array<uint32_t> offsets(m.offsets), sorted_row(m.sorted_row), index(m.sorted_index);
    device_array<float> xd(x), wd(weights), h((size_t)pairs * 2 * c.hidden);
    device_array<float> gate_bias(m.gate_bias), up_bias(m.up_bias), down_bias(m.down_bias);
    device_array<float> expert_scale(m.expert_scale), in_scale(m.in.scale), y(pairs * width);
    device_array<uint16_t> in(m.in.data), hd((size_t)pairs * c.hidden);
    device_array<float> h_scale(pairs);
    device_array<uint8_t> scratch((size_t)256 * 2 *
                                  ((c.inputs > c.hidden ? c.inputs : c.hidden) + 64));
    for (device_array<uint32_t> *one : {&offsets, &sorted_row, &index})
        one->come_late();
    for (device_array<float> *one : {&xd, &wd, &h, &in_scale, &h_scale, &y})
        one->come_late();
    in.come_late();
    hd.come_late();
    strata__experts_args a = {};
    a.gate_up.gate = {
        b.gate.get(), c.bias ? gate_bias.get() : nullptr, c.gate, c.inputs, c.hidden, 0};
    a.gate_up.up = {b.up.get(), c.bias ? up_bias.get() : nullptr, c.gate, c.inputs, c.hidden, 0};
    a.gate_up.range = {offsets.get(), nullptr, 0, pairs, 0, c.experts - 1};
    a.gate_up.sorted_row = sorted_row.get();
    a.gate_up.in = {in.get() + first * width, in_scale.get() + first};
    a.gate_up.h = {hd.get(), h_scale.get()};
    a.gate_up.gate_up = h.get();
    a.gate_up.scratch = {scratch.get(), scratch.count()};
    a.gate_up.activation = c.activation;
    a.gate_up.path = a.down.path = STRATA__PATH_DIRECT;
    a.down.down = {b.down.get(), c.bias ? down_bias.get() : nullptr, c.down, c.hidden, c.inputs, 0};
    a.down.range = a.gate_up.range;
    a.down.expert_scale = c.bias ? expert_scale.get() : nullptr;
    a.down.h = a.gate_up.h;
    a.down.y = y.get();
    a.down.scratch = a.gate_up.scratch;
    a.combine = {y.get(), wd.get(), index.get(), xd.get(), rows, c.top_k, c.inputs, 0, pairs, 0.5f};
    require(s.kernels->ops->experts(s.kernels, 0, &a), "experts");
    require(cudaDeviceSynchronize(), "experts");
    *guards = *guards && xd.guards_intact() && h.guards_intact() && y.guards_intact() &&
              hd.guards_intact() && scratch.guards_intact();
    if (hidden)
        *hidden = h.take();
    return xd.take();
}

double activated(uint32_t activation, double gate, double up)
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

/* Largest error of the hidden values over what float32 sums allow. */
double hidden_error(const experts_case &c, const experts_setup &m, const std::vector<float> &h)
{
    uint32_t pairs = c.rows * c.top_k;
    std::vector<double> worst(pairs);
    parallel_for(pairs, [&](size_t i) {
        uint32_t e = 0, row = m.sorted_row[i];
        while (m.offsets[e + 1] <= i)
            e++;
        std::vector<double> in(c.inputs);
        for (uint32_t k = 0; k < c.inputs; k++)
            in[k] = m.in.value(row, k);
        for (uint32_t n = 0; n < c.hidden; n++) {
            double g, u, gm, um;
            dot(in, m.gate[e], n, &g, &gm);
            dot(in, m.up[e], n, &u, &um);
            if (c.bias) {
                g += m.gate_bias[(size_t)e * c.hidden + n];
                u += m.up_bias[(size_t)e * c.hidden + n];
            }
            double dg = gm * 3e-6 + fabs(g) * 1e-7, du = um * 3e-6 + fabs(u) * 1e-7;
            double v = activated(c.activation, g, u), bound = 1e-12 + fabs(v) * 4e-6;
            for (int sign = -1; sign <= 1; sign += 2) {
                bound += fabs(activated(c.activation, g + sign * dg, u) - v);
                bound += fabs(activated(c.activation, g, u + sign * du) - v);
            }
            double error = fabs(h[i * c.hidden + n] - v) / bound;
            if (!(error <= worst[i]))
                worst[i] = error;
        }
    });
    double most = 0;
    for (double w : worst)
        if (!(w <= most))
            most = w;
    return most;
}

/* The same of the residual, from the hidden values that the device had. */
double residual_error(const experts_case &c, const experts_setup &m, const std::vector<float> &h,
                      const std::vector<float> &x)
{
    std::vector<double> worst(c.rows);
    parallel_for(c.rows, [&](size_t r) {
        std::vector<std::vector<double>> in;
        for (uint32_t j = 0; j < c.top_k; j++)
            in.push_back(rounded_row(h.data() + (size_t)m.sorted_index[r * c.top_k + j] * c.hidden,
                                     nullptr, c.hidden));
        for (uint32_t n = 0; n < c.inputs; n++) {
            double v = m.x[r * c.inputs + n], bound = fabs(v) * 1e-6 + 1e-30;
            for (uint32_t j = 0; j < c.top_k; j++) {
                double sum, magnitude, factor = 0.5 * m.weights[r * c.top_k + j];
                uint32_t e = (uint32_t)m.ids[r * c.top_k + j];
                dot(in[j], m.down[e], n, &sum, &magnitude);
                if (c.bias) {
                    sum += m.down_bias[(size_t)e * c.inputs + n];
                    magnitude += fabs(m.down_bias[(size_t)e * c.inputs + n]);
                    factor *= m.expert_scale[e];
                }
                v += factor * sum;
                bound += fabs(factor) * magnitude * 3e-6 + fabs(v) * 1e-7;
            }
            double error = fabs(x[r * c.inputs + n] - v) / bound;
            if (!(error <= worst[r]))
                worst[r] = error;
        }
    });
    double most = 0;
    for (double w : worst)
        if (!(w <= most))
            most = w;
    return most;
}

void check_experts_case(const suite &s, const experts_case &c, tally &t)
{
    experts_setup m = set_up(s, c);
    experts_blobs b = {blobs(m.gate, c), blobs(m.up, c), blobs(m.down, c)};
    bool guards = true;
    std::vector<float> h;
    std::vector<float> x = run_experts(s, c, m, b, 0, c.rows, &h, &guards);
    double up = hidden_error(c, m, h), down = residual_error(c, m, h, x);
    uint32_t last = c.rows - 1;
    std::vector<float> alone = run_experts(s, c, m, b, last, 1, nullptr, &guards);
    bool same = !memcmp(alone.data(), x.data() + (size_t)last * c.inputs, c.inputs * 4);
    report(t, up <= 1 && guards && same, up, "experts' hidden values, %s rows %u %ux%u%s%s",
           strata__format_name(c.gate), c.rows, c.inputs, c.hidden,
           guards ? "" : ": written outside", same ? "" : ": a row depends on others");
    report(t, down <= 1, down, "experts' sum, %s rows %u %ux%u", strata__format_name(c.down),
           c.rows, c.inputs, c.hidden);
}

struct route_case {
    uint32_t rows, width, experts, top_k, groups, gating;
    bool selection_bias;
    float spread;
};

/* What a route left. */
struct route_results {
    std::vector<float> logits, inverses, scales;
    std::vector<uint16_t> halves;
};

/* Largest error of logits and activation rows over its bound. */
double route_error(const route_case &c, const std::vector<float> &x, const std::vector<float> &gain,
                   const std::vector<float> &w, const std::vector<float> &bias,
                   const route_results &got)
{
    double worst = 0;
    for (uint32_t r = 0; r < c.rows; r++) {
        double squares = 0;
        for (uint32_t k = 0; k < c.width; k++)
            squares += (double)x[(size_t)r * c.width + k] * x[(size_t)r * c.width + k];
        double inverse = 1 / sqrt(squares / c.width + 1e-6);
        worst = fmax(worst, fabs(got.inverses[r] - inverse) / (inverse * 1e-6));
        for (uint32_t k = 0; k < c.width; k++) {
            double v = x[(size_t)r * c.width + k] * inverse * gain[k];
            double h = half_value(got.halves[(size_t)r * c.width + k]) * got.scales[r];
            double error = fabs(h - v) / (fabs(v) * 0x1.01p-11 + got.scales[r] * 0x1p-24);
            worst = error <= worst ? worst : error;
        }
        for (uint32_t e = 0; e < c.experts; e++) {
            double sum = 0, magnitude = 0;
            for (uint32_t k = 0; k < c.width; k++) {
                double term =
                    x[(size_t)r * c.width + k] * inverse * gain[k] * w[(size_t)e * c.width + k];
                sum += term;
                magnitude += fabs(term);
            }
            double error = fabs(got.logits[(size_t)r * c.experts + e] - sum - bias[e]) /
                           (magnitude * 1e-6 + fabs(bias[e]) * 1e-6);
            worst = error <= worst ? worst : error;
        }
    }
    return worst;
}

/* Logits against float64; what follows from them against the operations it replaces, exactly. */
void check_route(const suite &s, const route_case &c, tally &t)
{
    random_source random(s.seed * 15485863 + c.rows * 64 + c.experts + c.width);
    std::vector<float> x = random_floats(random, (size_t)c.rows * c.width, c.spread);
    std::vector<float> gain = random_floats(random, c.width, 1);
    std::vector<float> w = random_floats(random, (size_t)c.experts * c.width, 0.05f);
    std::vector<float> bias = random_floats(random, c.experts, 0.5f);
    uint32_t pairs = c.rows * c.top_k;
    device_array<float> xd(x), gd(gain), wd(w), bd(bias), inv(c.rows), scale(c.rows);
    device_array<uint16_t> xn((size_t)c.rows * c.width);
    device_array<float> logits((size_t)c.rows * c.experts), weights(pairs), weights2(pairs);
    device_array<int32_t> ids(pairs), ids2(pairs);
    device_array<uint32_t> offsets(c.experts + 1), sorted_row(pairs), sorted_index(pairs);
    device_array<uint32_t> offsets2(c.experts + 1), sorted_row2(pairs), sorted_index2(pairs);
    device_array<uint8_t> scratch(s.kernels->facts.group_scratch_bytes_fixed +
                                  c.experts * s.kernels->facts.group_scratch_bytes_per_expert);
    for (device_array<float> *one : {&xd, &inv, &scale, &logits, &weights})
        one->come_late();
    for (device_array<int32_t> *one : {&ids, &ids2})
        one->come_late();
    xn.come_late();
    strata__route_args a = {};
    a.norm = {xd.get(), gd.get(), {xn.get(), scale.get()}, inv.get(), c.rows, c.width, 1e-6f};
    a.router.x = xd.get();
    a.router.inv_rms = inv.get();
    a.router.norm = gd.get();
    a.router.weight = {wd.get(), bd.get(), STRATA__F32, c.width, c.experts};
    a.router.logits = logits.get();
    a.router.rows = c.rows;
    a.select.logits = logits.get();
    a.select.selection_bias = c.selection_bias ? bd.get() : nullptr;
    a.select.ids = ids.get();
    a.select.weights = weights.get();
    a.select.rows = c.rows;
    a.select.experts = c.experts;
    a.select.top_k = c.top_k;
    a.select.gating = c.gating;
    a.select.normalise = 1;
    a.select.groups = c.groups;
    a.select.groups_used = c.groups / 2;
    a.select.weight_scale = 1;
    a.group = {ids.get(),     offsets.get(), sorted_row.get(), sorted_index.get(), nullptr, nullptr,
               scratch.get(), c.rows,        c.top_k,          c.experts,          0};
    a.ahead = {wd.get(), (uint64_t)c.experts * c.width * 4 / 16 * 16};
    require(s.kernels->ops->route(s.kernels, 0, &a), "route");
    strata__select_args select = a.select;
    select.ids = ids2.get();
    select.weights = weights2.get();
    require(s.kernels->ops->select(s.kernels, 0, &select), "select");
    strata__group_args group = a.group;
    group.ids = ids2.get();
    group.offsets = offsets2.get();
    group.sorted_row = sorted_row2.get();
    group.sorted_index = sorted_index2.get();
    require(s.kernels->ops->group(s.kernels, 0, &group), "group");
    require(cudaDeviceSynchronize(), "route");
    double worst =
        route_error(c, x, gain, w, bias, {logits.take(), inv.take(), scale.take(), xn.take()});
    bool same = ids.take() == ids2.take() && offsets.take() == offsets2.take() &&
                sorted_row.take() == sorted_row2.take() &&
                sorted_index.take() == sorted_index2.take();
    std::vector<float> w1 = weights.take(), w2 = weights2.take();
    same = same && !memcmp(w1.data(), w2.data(), w1.size() * 4);
    bool guards = xn.guards_intact() && logits.guards_intact() && ids.guards_intact() &&
                  weights.guards_intact() && offsets.guards_intact() &&
                  sorted_row.guards_intact() && sorted_index.guards_intact();
    report(t, worst <= 1 && same && guards, worst, "route rows %u width %u experts %u%s%s", c.rows,
           c.width, c.experts, same ? "" : ": not what select and group say",
           guards ? "" : ": written outside");
}

void check_all_formats(const suite &s, tally &products, tally &experts)
{
    for (uint32_t f : all_formats) {
        if (s.leaves_out(f)) {
            check_project(s, {f, f, 256, 3, {16, 5, 16}, 1, false}, products);
            if (strata__few_takes(f, 256))
                check_experts_case(s, {f, f, 256, 256, 3, 2, 6, 0, false, true, 0.2f}, experts);
            continue;
        }
        for (uint32_t rows : {1u, 3u, 16u}) {
            check_project(s, {f, f, 512, rows, {48, 17, 100}, 1, rows == 3}, products);
            if (strata__few_takes(f, 512))
                check_experts_case(s, {f, f, 512, 256, 12, 3, rows, 0, false, true, 0.2f}, experts);
        }
    }
}

} /* namespace */

int check_few(const suite &s)
{
    int failures = 0;
    tally formats, shapes, experts, sizes, routes;
    check_all_formats(s, formats, experts);
    for (uint32_t inputs : {32u, 96u, 256u, 640u, 2048u, 2880u, 4096u, 8192u, 12288u}) {
        if (s.small && inputs > 2048)
            continue;
        for (uint32_t rows : {1u, 2u, 7u, 8u, 9u, 16u}) {
            if (s.small && rows % 8 != 1)
                continue;
            check_project(s, {STRATA__Q8_0, STRATA__Q4_0, inputs, rows, {32, 5, 64}, 1, false},
                          shapes);
            check_project(s,
                          {STRATA__MXFP4, STRATA__F16, inputs, rows, {16, 33, 40}, 1000, rows == 2},
                          shapes);
        }
    }
    check_project(s, {STRATA__Q6_K, STRATA__F32, 768, 5, {16, 16, 16}, 1e-4f, false}, shapes);
    check_project(s, {STRATA__Q4_K, STRATA__BF16, 768, 5, {16, 16, 16}, 1e5f, false}, shapes);
    /* As much shared memory as there may be, beside the largest codebook. */
    check_project(s, {STRATA__IQ1_S, STRATA__IQ1_M, 19456, 16, {16, 16, 16}, 1, false}, shapes);
    for (uint32_t rows : {1u, 4u, 16u})
        for (uint32_t activation : {0u, 1u, 2u}) {
            const uint32_t xs = STRATA__IQ2_XS, mx = STRATA__MXFP4;
            check_experts_case(s, {mx, mx, 640, 736, 9, 4, rows, activation, true, true, 0.2f},
                               sizes);
            if (!s.small)
                check_experts_case(
                    s, {xs, xs, 2048, 768, 12, 8, rows, activation, false, true, 0.05f}, sizes);
        }
    check_experts_case(s, {STRATA__Q4_K, STRATA__Q2_0, 512, 2880, 20, 16, 16, 0, true, false, 2},
                       sizes);
    check_experts_case(s, {STRATA__Q8_0, STRATA__F16, 1024, 4352, 3, 2, 3, 0, true, true, 900},
                       sizes);
    for (uint32_t rows : {1u, 3u, 16u}) {
        check_route(s, {rows, 2048, 128, 8, 0, STRATA__GATING_SOFTMAX, false, 1}, routes);
        check_route(s, {rows, 2560, 512, 10, 8, STRATA__GATING_SIGMOID, true, 1e5f}, routes);
        check_route(s, {rows, 96, 20, 16, 0, STRATA__GATING_SOFTMAX_SELECTED, false, 1e-3f},
                    routes);
        check_route(s, {rows, 7168, 1000, 16, 8, STRATA__GATING_SIGMOID, true, 1}, routes);
    }
    close_tally(formats, "few rows, products", &failures);
    close_tally(shapes, "few rows, shapes", &failures);
    close_tally(experts, "few rows, experts", &failures);
    close_tally(sizes, "few rows, experts of any size", &failures);
    close_tally(routes, "few rows, routing", &failures);
    return failures;
}
