/* SPDX-License-Identifier: MIT */
/* The check of the qkv kernel: queries and cache rows against float64, everything else untouched.
 */
#ifndef STRATA_TEST_GPU_CHECK_QKV_CUH
#define STRATA_TEST_GPU_CHECK_QKV_CUH

#include <algorithm>

#include "attention_case.cuh"

struct qkv_case {
    uint32_t format, head_size, heads, kv_heads, rope_width, style, norm;
    float clamp, magnitude, spread; /* spread: standard deviation of the projections */
    std::vector<strata__segment> segments;
};

struct qkv_memory {
    guarded projections, norms, frequencies, q, q_scale, k, v, table, segments;
};

enum { QKV_PAGE_TOKENS = 64, QKV_FILL = 0xA5 };
static const float QKV_EPS = 1e-6f;

/* Pages only for the positions that are written; the table's other entries are far outside. */
static uint32_t fill_qkv_table(const qkv_case &c, qkv_memory &m, uint32_t stride)
{
    std::vector<int32_t> table(c.segments.size() * stride, 0x3fffffff);
    int32_t next = 1;
    for (const strata__segment &s : c.segments)
        for (uint32_t i = s.position / QKV_PAGE_TOKENS;
             i <= (s.position + s.rows - 1) / QKV_PAGE_TOKENS; i++)
            table[s.sequence * stride + i] = next++;
    m.table.reset(table.size() * 4, 0);
    CHECK_CUDA(
        cudaMemcpy(m.table.as<void>(), table.data(), table.size() * 4, cudaMemcpyHostToDevice));
    return (uint32_t)next + 1;
}

static void fill_frequencies(const qkv_case &c, qkv_memory &m)
{
    std::vector<float> f(std::max(c.rope_width / 2, 1u));
    for (size_t i = 0; i < f.size(); i++)
        f[i] = (float)pow(1e6, -2.0 * (double)i / std::max(c.rope_width, 1u));
    m.frequencies.reset(f.size() * 4, 0);
    CHECK_CUDA(
        cudaMemcpy(m.frequencies.as<void>(), f.data(), f.size() * 4, cudaMemcpyHostToDevice));
}

static void prepare_qkv_view(const qkv_case &c, qkv_memory &m, strata__kv_view &kv)
{
    uint32_t end = 0;
    for (const strata__segment &s : c.segments)
        end = std::max(end, s.position + s.rows);
    kv.table_stride = end / QKV_PAGE_TOKENS + 2;
    uint32_t pages = fill_qkv_table(c, m, kv.table_stride);
    kv.page_table = m.table.as<int32_t>();
    kv.page_tokens = QKV_PAGE_TOKENS;
    kv.kv_heads = c.kv_heads;
    kv.head_size = c.head_size;
    kv.format = c.format;
    kv.page_bytes = c.kv_heads * QKV_PAGE_TOKENS * cache_row_bytes(c.format, c.head_size);
    m.k.reset(pages * kv.page_bytes, QKV_FILL);
    m.v.reset(pages * kv.page_bytes, QKV_FILL);
    kv.k = m.k.as<void>();
    kv.v = m.v.as<void>();
}

static strata__qkv_args prepare_qkv(const qkv_case &c, qkv_memory &m)
{
    static uint32_t seed = 77;
    seed += 13;
    strata__qkv_args a = {};
    a.rows = c.segments.back().first_row + c.segments.back().rows;
    a.heads = c.heads;
    a.qkv_stride = (c.heads + 2 * c.kv_heads) * c.head_size + 8;
    uint64_t count = (uint64_t)a.rows * a.qkv_stride, width = c.heads * c.head_size;
    m.projections.reset(count * 4, 0xFF);
    fill_float<<<blocks_for(count), 256>>>(m.projections.as<float>(), count, seed, c.spread);
    cuda_host_late_none();
    m.projections.come_late(0, count * 4);
    m.norms.reset(2 * width * 4, 0xFF);
    fill_float<<<blocks_for(2 * width), 256>>>(m.norms.as<float>(), 2 * width, seed + 1, 1.0f);
    fill_frequencies(c, m);
    prepare_qkv_view(c, m, a.kv);
    a.q = m.projections.as<float>();
    a.k = a.q + width;
    a.v = a.k + c.kv_heads * c.head_size;
    a.q_norm = m.norms.as<float>();
    a.k_norm = a.q_norm + width;
    a.rope_frequencies = m.frequencies.as<float>();
    m.q.reset(a.rows * width * 2, 0xFF);
    m.q_scale.reset(a.rows * 4, 0xFF);
    a.q_out = {m.q.as<void>(), m.q_scale.as<float>()};
    m.segments.reset(c.segments.size() * sizeof(strata__segment), 0);
    CHECK_CUDA(cudaMemcpy(m.segments.as<void>(), c.segments.data(),
                          c.segments.size() * sizeof(strata__segment), cudaMemcpyHostToDevice));
    a.segments = m.segments.as<strata__segment>();
    a.segment_count = (uint32_t)c.segments.size();
    a.rope_width = c.rope_width;
    a.rope_style = c.style;
    a.qk_norm = c.norm;
    a.rope_magnitude = c.magnitude;
    a.clamp = c.clamp;
    a.eps = QKV_EPS;
    return a;
}

/* What a check reads back. */
struct qkv_result {
    std::vector<float> projections, norms, frequencies, q_scale;
    std::vector<uint16_t> q;
    std::vector<char> k, v;
    std::vector<int32_t> table;
};

template <typename T> static void read_back(std::vector<T> &host, const guarded &from)
{
    host.resize(from.bytes / sizeof(T));
    CHECK_CUDA(cudaMemcpy(host.data(), from.as<void>(), from.bytes, cudaMemcpyDeviceToHost));
}

static void rotate(std::vector<double> &x, const qkv_case &c, const qkv_result &r,
                   uint32_t position)
{
    std::vector<double> y = x;
    uint32_t half = c.rope_width / 2;
    for (uint32_t i = 0; i < half && c.style != STRATA__ROPE_NONE; i++) {
        uint32_t a = c.style == STRATA__ROPE_NEOX ? i : 2 * i;
        uint32_t b = c.style == STRATA__ROPE_NEOX ? i + half : 2 * i + 1;
        double angle = (double)position * (double)r.frequencies[i];
        double cosine = cos(angle) * c.magnitude, sine = sin(angle) * c.magnitude;
        x[a] = y[a] * cosine - y[b] * sine;
        x[b] = y[a] * sine + y[b] * cosine;
    }
}

static void normalise(std::vector<double> &x, const float *weight, double square_mean)
{
    for (size_t i = 0; i < x.size(); i++)
        x[i] = x[i] / sqrt(square_mean + (double)QKV_EPS) * weight[i];
}

static double square_mean(const float *x, uint32_t count, float clamp)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < count; i++) {
        double v = clamp > 0.0f ? std::min(std::max(x[i], -clamp), clamp) : x[i];
        sum += v * v;
    }
    return sum / count;
}

/* A head of a row in float64; norm NULL for values, which are only clamped. */
static std::vector<double> expected_head(const qkv_case &c, const qkv_result &r, const float *row,
                                         uint32_t heads, uint32_t head, const float *norm,
                                         uint32_t position)
{
    std::vector<double> x(c.head_size);
    const float *from = row + head * c.head_size;
    for (uint32_t d = 0; d < c.head_size; d++)
        x[d] = c.clamp > 0.0f ? std::min(std::max(from[d], -c.clamp), c.clamp) : from[d];
    if (!norm)
        return x;
    if (c.norm == STRATA__QK_NORM_HEAD_BEFORE_ROPE)
        normalise(x, norm, square_mean(from, c.head_size, c.clamp));
    else if (c.norm == STRATA__QK_NORM_ROW_BEFORE_ROPE)
        normalise(x, norm + head * c.head_size, square_mean(row, heads * c.head_size, c.clamp));
    rotate(x, c, r, position);
    if (c.norm == STRATA__QK_NORM_HEAD_AFTER_ROPE) {
        double sum = 0.0;
        for (double v : x)
            sum += v * v;
        normalise(x, norm, sum / c.head_size);
    }
    return x;
}

/* float32 arithmetic costs 2e-6 of a head's largest value; the format's rounding comes on top. */
static bool close_head(const std::vector<double> &expected, const std::vector<double> &actual,
                       const qkv_case &c, bool query)
{
    double largest = 0.0;
    for (double v : expected)
        largest = std::max(largest, fabs(v));
    for (size_t d = 0; d < expected.size(); d++) {
        double bound = 2e-6 * largest;
        if (query || c.format == STRATA__KV_F16)
            bound += fabs(expected[d]) / 2048.0 + 3e-8;
        else if (c.format == STRATA__KV_Q8_0) {
            double block = 0.0;
            for (size_t i = d / 32 * 32; i < d / 32 * 32 + 32; i++)
                block = std::max(block, fabs(expected[i]));
            bound += block / 127.0 * 0.5007 + block / 2048.0 + 4e-6;
        }
        double want = expected[d];
        if (!query && c.format == STRATA__KV_F16)
            want = std::min(std::max(want, -65504.0), 65504.0);
        if (!(fabs(actual[d] - want) <= bound)) {
            printf("value %zu: %.8g, expected %.8g, bound %.2g\n", d, actual[d], want, bound);
            return false;
        }
    }
    return true;
}

/* Reads a cached head and paints it over with the fill, so that what remains was never written. */
static std::vector<double> take_cached(strata__kv_view kv, std::vector<char> &cache,
                                       const int32_t *table, uint32_t sequence, uint32_t position,
                                       uint32_t head)
{
    kv.page_table = table;
    uint32_t row, size = kv.head_size;
    char *rows = cache_head(kv, cache.data(), sequence, position, head, &row);
    std::vector<double> x(size);
    for (uint32_t d = 0; d < size; d++)
        x[d] = cache_value(kv, rows, row, d);
    uint32_t value_bytes = kv.format == STRATA__KV_F16 ? 2 : kv.format == STRATA__KV_F32 ? 4 : 1;
    memset(rows + (uint64_t)row * size * value_bytes, QKV_FILL, size * value_bytes);
    if (kv.format == STRATA__KV_Q8_0)
        memset(rows + kv.page_tokens * size + row * (size / 16), QKV_FILL, size / 16);
    return x;
}

static bool check_row(const qkv_case &c, const strata__qkv_args &a, qkv_result &r, uint32_t row,
                      uint32_t sequence, uint32_t position)
{
    const float *q = r.projections.data() + (uint64_t)row * a.qkv_stride;
    const float *k = q + c.heads * c.head_size, *v = k + c.kv_heads * c.head_size;
    const float *k_norm = r.norms.data() + c.heads * c.head_size;
    for (uint32_t h = 0; h < c.heads; h++) {
        std::vector<double> actual(c.head_size);
        for (uint32_t d = 0; d < c.head_size; d++) {
            __half_raw bits = {r.q[((uint64_t)row * c.heads + h) * c.head_size + d]};
            actual[d] = (double)__half2float(__half(bits)) * r.q_scale[row];
        }
        if (!close_head(expected_head(c, r, q, c.heads, h, r.norms.data(), position), actual, c,
                        true))
            return false;
    }
    for (uint32_t h = 0; h < c.kv_heads; h++) {
        std::vector<double> ka = take_cached(a.kv, r.k, r.table.data(), sequence, position, h);
        std::vector<double> va = take_cached(a.kv, r.v, r.table.data(), sequence, position, h);
        if (!close_head(expected_head(c, r, k, c.kv_heads, h, k_norm, position), ka, c, false) ||
            !close_head(expected_head(c, r, v, c.kv_heads, h, nullptr, position), va, c, false))
            return false;
    }
    return true;
}

static bool all_filled(const std::vector<char> &bytes)
{
    for (char b : bytes)
        if (b != (char)QKV_FILL)
            return false;
    return true;
}

static const char *check_qkv_case(const strata__cuda_state &state, const qkv_case &c, qkv_memory &m)
{
    strata__qkv_args a = prepare_qkv(c, m);
    if (strata__cuda_qkv(&state, 0, &a) != STRATA_OK)
        return "launch";
    CHECK_CUDA(cudaDeviceSynchronize());
    qkv_result r;
    read_back(r.projections, m.projections);
    read_back(r.norms, m.norms);
    read_back(r.frequencies, m.frequencies);
    read_back(r.q_scale, m.q_scale);
    read_back(r.q, m.q);
    read_back(r.k, m.k);
    read_back(r.v, m.v);
    read_back(r.table, m.table);
    for (const strata__segment &s : c.segments)
        for (uint32_t i = 0; i < s.rows; i++)
            if (!check_row(c, a, r, s.first_row + i, s.sequence, s.position + i))
                return "values";
    if (!all_filled(r.k) || !all_filled(r.v))
        return "bytes outside the rows";
    bool intact = m.q.intact() && m.q_scale.intact() && m.k.intact() && m.v.intact();
    return intact ? nullptr : "guard zone";
}

static uint32_t check_qkv(const strata__cuda_state &state, bool small)
{
    static qkv_memory m;
    uint32_t failures = 0, cases = 0;
    for (uint32_t format : {STRATA__KV_F16, STRATA__KV_Q8_0, STRATA__KV_F32})
        for (uint32_t size : {64u, 96u, 128u, 256u})
            for (uint32_t style : {STRATA__ROPE_NONE, STRATA__ROPE_NEOX, STRATA__ROPE_PAIRS})
                for (uint32_t norm = 0; norm < 4; norm++)
                    for (uint32_t variant = small ? 2 : 0; variant < 3; variant++) {
                        qkv_case c = {format, size, 12, 2, size, style, norm, 0.0f, 1.0f, 1.0f, {}};
                        c.segments = {{0, 5, 262139, 1}, {5, 1, 0, 0}, {6, 3, 62, 2}};
                        if (variant == 1) {
                            c.rope_width = size == 256 ? 64 : size / 2;
                            c.clamp = 1.5f;
                            c.magnitude = 1.3466f;
                        } else if (variant == 2) {
                            c.spread = norm == 0 ? 1e6f : 1e-6f;
                        }
                        const char *fault = check_qkv_case(state, c, m);
                        cases++;
                        if (!fault)
                            continue;
                        failures++;
                        printf("FAIL qkv format %u head %u style %u norm %u variant %u: %s\n",
                               format, size, style, norm, variant, fault);
                    }
    printf("qkv: %u cases, %u failed\n", cases, failures);
    return failures;
}

#endif
