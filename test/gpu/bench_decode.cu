/* SPDX-License-Identifier: MIT */
/*
 * Times of decoding in the shape of Qwen3-30B-A3B at position 4096: the launches of a layer in a
 * graph, as a whole and by operation, with the experts in device memory and with a part of them in
 * page-locked host memory. Layers have weights of their own, several times the cache together.
 */
#include <algorithm>
#include <functional>

#include "check.h"

#include "kernels/cuda/few.h"

namespace
{

constexpr uint32_t WIDTH = 2048, HIDDEN = 768, EXPERTS = 128, TOP_K = 8, HEADS = 32, KV_HEADS = 4,
                   HEAD = 128, CONTEXT = 8192, POSITION = 4096, LAYERS = 8, VOCABULARY = 151936,
                   PAGE = 256, MOST_ROWS = 16, Q = HEADS * HEAD, KV = KV_HEADS * HEAD,
                   QKV = Q + 2 * KV;

/* Random bytes of which every half is a small number. */
struct random_bytes {
    uint8_t *data = nullptr;
    uint64_t bytes;

    random_bytes(random_source &random, uint64_t size, bool pinned) : bytes(size)
    {
        std::vector<uint16_t> piece(1 << 21);
        for (uint16_t &v : piece)
            v = (uint16_t)(random.bits() & 0xa7ff);
        if (pinned)
            require(cudaHostAlloc(&data, bytes, cudaHostAllocMapped), "page-locking");
        else
            require(cudaMalloc(&data, bytes), "allocating");
        for (uint64_t at = 0; at < bytes; at += piece.size() * 2)
            require(cudaMemcpy(data + at, piece.data(),
                               std::min(bytes - at, (uint64_t)piece.size() * 2), cudaMemcpyDefault),
                    "filling");
    }
};

uint64_t bytes_of(uint32_t format, uint64_t inputs, uint64_t outputs)
{
    uint64_t row = 0;
    strata__format_row_bytes(format, inputs, &row);
    return row * outputs;
}

struct layer {
    const uint8_t *q, *k, *v, *out;
    float *router;
    const void **blobs[3];
    void *keys, *values;
    uint32_t missing; /* experts in host memory */
};

struct model {
    layer layers[LAYERS];
    float *gain, *x, *qkv, *logits, *weights, *hidden, *frequencies, *inv_rms, *scale, *vocabulary;
    uint16_t *xn, *q, *attention, *h;
    uint8_t *head, *scratch, *group_scratch;
    uint64_t scratch_bytes;
    int32_t *ids, *pages;
    uint32_t *offsets, *sorted_row, *sorted_index, *host_offsets;
    strata__segment *segment;
};

template <typename T> T *new_array(size_t count)
{
    T *data = nullptr;
    require(cudaMalloc(&data, count * sizeof(T)), "allocating");
    require(cudaMemset(data, 0, count * sizeof(T)), "clearing");
    return data;
}

template <typename T> T *new_array(const std::vector<T> &values)
{
    T *data = new_array<T>(values.size());
    require(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyDefault), "put");
    return data;
}

std::vector<float> normals(random_source &random, size_t count, float spread)
{
    std::vector<float> values(count);
    for (float &v : values)
        v = random.normal() * spread;
    return values;
}

void make_layer(random_source &random, layer &l, uint32_t experts_format)
{
    uint64_t dense[] = {bytes_of(STRATA__Q8_0, WIDTH, Q), bytes_of(STRATA__Q8_0, WIDTH, KV),
                        bytes_of(STRATA__Q8_0, WIDTH, KV), bytes_of(STRATA__Q8_0, Q, WIDTH)};
    random_bytes weights(random, dense[0] + dense[1] + dense[2] + dense[3], false);
    uint64_t blob = bytes_of(experts_format, WIDTH, HIDDEN);
    random_bytes experts(random, 3 * EXPERTS * blob, false);
    l.q = weights.data;
    l.k = l.q + dense[0];
    l.v = l.k + dense[1];
    l.out = l.v + dense[2];
    l.router = new_array(normals(random, (size_t)EXPERTS * WIDTH, 0.05f));
    for (uint32_t m = 0; m < 3; m++) {
        std::vector<const void *> pointers;
        for (uint32_t e = 0; e < EXPERTS; e++)
            pointers.push_back(experts.data + (e * 3 + m) * blob);
        l.blobs[m] = new_array(pointers);
    }
    l.keys = random_bytes(random, (uint64_t)CONTEXT * KV * 2, false).data;
    l.values = random_bytes(random, (uint64_t)CONTEXT * KV * 2, false).data;
}

/* Of a part of a layer's experts the blobs are in host memory instead. */
void move_experts(random_source &random, layer &l, const random_bytes &host, uint64_t blob,
                  double part)
{
    std::vector<const void *> pointers[3];
    for (uint32_t m = 0; m < 3; m++) {
        pointers[m].resize(EXPERTS);
        require(
            cudaMemcpy(pointers[m].data(), l.blobs[m], EXPERTS * sizeof(void *), cudaMemcpyDefault),
            "taking");
    }
    for (uint32_t e = 0; e < EXPERTS; e++) {
        if (random.uniform() >= part)
            continue;
        uint64_t at = random.below((uint32_t)(host.bytes / (3 * blob)));
        for (uint32_t m = 0; m < 3; m++)
            pointers[m][e] = host.data + (at * 3 + m) * blob;
    }
    for (uint32_t m = 0; m < 3; m++)
        require(
            cudaMemcpy(l.blobs[m], pointers[m].data(), EXPERTS * sizeof(void *), cudaMemcpyDefault),
            "putting");
}

model make_model(random_source &random, uint32_t experts_format, const strata__kernels_facts &facts)
{
    model m = {};
    for (layer &l : m.layers)
        make_layer(random, l, experts_format);
    m.gain = new_array(normals(random, WIDTH, 1));
    m.x = new_array(normals(random, MOST_ROWS * WIDTH, 1));
    m.qkv = new_array<float>(MOST_ROWS * QKV);
    m.logits = new_array<float>(MOST_ROWS * EXPERTS);
    m.weights = new_array<float>(MOST_ROWS * TOP_K);
    m.hidden = new_array<float>(MOST_ROWS * TOP_K * 2 * HIDDEN);
    m.frequencies = new_array(normals(random, HEAD / 2, 0.1f));
    m.inv_rms = new_array<float>(MOST_ROWS);
    m.scale = new_array(std::vector<float>(MOST_ROWS, 1.0f));
    m.xn = new_array<uint16_t>(MOST_ROWS * WIDTH);
    m.q = new_array<uint16_t>(MOST_ROWS * Q);
    m.attention = new_array<uint16_t>(MOST_ROWS * Q);
    m.h = new_array<uint16_t>(MOST_ROWS * TOP_K * HIDDEN);
    m.scratch_bytes = std::max<uint64_t>(
        strata__attention_split_bytes(MOST_ROWS, HEADS, HEAD, CONTEXT, facts.split_keys), 8 << 20);
    m.scratch = new_array<uint8_t>(m.scratch_bytes);
    m.group_scratch = new_array<uint8_t>(facts.group_scratch_bytes_fixed +
                                         EXPERTS * facts.group_scratch_bytes_per_expert);
    m.ids = new_array<int32_t>(MOST_ROWS * TOP_K);
    m.offsets = new_array<uint32_t>(EXPERTS + 1);
    require(cudaHostAlloc(&m.host_offsets, (EXPERTS + 1) * 4, cudaHostAllocMapped), "page-locking");
    m.sorted_row = new_array<uint32_t>(MOST_ROWS * TOP_K);
    m.sorted_index = new_array<uint32_t>(MOST_ROWS * TOP_K);
    std::vector<int32_t> pages(CONTEXT / PAGE);
    for (size_t i = 0; i < pages.size(); i++)
        pages[i] = (int32_t)i;
    m.pages = new_array(pages);
    m.segment = new_array<strata__segment>(1);
    m.head = random_bytes(random, bytes_of(STRATA__Q8_0, WIDTH, VOCABULARY), false).data;
    m.vocabulary = new_array<float>((size_t)MOST_ROWS * VOCABULARY);
    return m;
}

/* The operations of a layer, as a session enqueues them. */
class decoder
{
  public:
    decoder(const suite &s, const model &m, cudaStream_t stream, uint32_t format, uint32_t rows)
        : s_(s), m_(m), stream_(stream), format_(format), rows_(rows)
    {
        strata__segment segment = {0, rows, POSITION - rows, 0};
        require(cudaMemcpy(m.segment, &segment, sizeof segment, cudaMemcpyDefault), "segment");
    }

    void project(const layer &l)
    {
        strata__project_args a = {};
        a.norm = norm();
        a.part_count = 3;
        a.parts[0] = dense(l.q, WIDTH, Q, m_.qkv, QKV);
        a.parts[1] = dense(l.k, WIDTH, KV, m_.qkv + Q, QKV);
        a.parts[2] = dense(l.v, WIDTH, KV, m_.qkv + Q + KV, QKV);
        for (strata__dense_args &part : a.parts)
            part.in = a.norm.out;
        require(s_.kernels->ops->project(s_.kernels, stream_, &a), "project");
    }

    void qkv(const layer &l)
    {
        strata__qkv_args a = {};
        a.q = m_.qkv;
        a.k = m_.qkv + Q;
        a.v = m_.qkv + Q + KV;
        a.q_norm = a.k_norm = m_.gain;
        a.rope_frequencies = m_.frequencies;
        a.q_out = {m_.q, m_.scale};
        a.kv = cache(l);
        a.segments = m_.segment;
        a.segment_count = 1;
        a.rows = rows_;
        a.qkv_stride = QKV;
        a.heads = HEADS;
        a.rope_width = HEAD;
        a.rope_style = STRATA__ROPE_NEOX;
        a.qk_norm = STRATA__QK_NORM_HEAD_BEFORE_ROPE;
        a.rope_magnitude = 1;
        a.eps = 1e-6f;
        require(s_.kernels->ops->qkv(s_.kernels, stream_, &a), "qkv");
    }

    void attention(const layer &l)
    {
        strata__attention_args a = {};
        a.q = {m_.q, m_.scale};
        a.out = {m_.attention, m_.scale};
        a.kv = cache(l);
        a.segments = m_.segment;
        a.scratch = {m_.scratch, m_.scratch_bytes};
        a.segment_count = 1;
        a.rows = a.max_segment_rows = rows_;
        a.max_kv_tokens = CONTEXT;
        a.heads = HEADS;
        a.split_keys = s_.kernels->facts.split_keys;
        a.settled = 1;
        a.ahead = {l.out, bytes_of(STRATA__Q8_0, Q, WIDTH)};
        a.scale = 0.088f;
        require(s_.kernels->ops->attention(s_.kernels, stream_, &a), "attention");
    }

    /* The residual stays as it is, so that every run routes alike. */
    void output(const layer &l)
    {
        strata__dense_args a = dense(l.out, Q, WIDTH, m_.x, WIDTH);
        a.in = {m_.attention, m_.scale};
        a.mode = STRATA__DENSE_ADD_F32;
        a.alpha = 0;
        require(s_.kernels->ops->dense(s_.kernels, stream_, &a), "dense");
    }

    /* As a session does it, whose host looks at the counts when the step is over. */
    void route_to_host(const layer &l)
    {
        host_offsets_ = m_.host_offsets;
        route(l);
        host_offsets_ = nullptr;
    }

    void route(const layer &l)
    {
        strata__route_args a = {};
        a.norm = norm();
        a.router.x = m_.x;
        a.router.inv_rms = m_.inv_rms;
        a.router.norm = m_.gain;
        a.router.weight = {l.router, nullptr, STRATA__F32, WIDTH, EXPERTS};
        a.router.logits = m_.logits;
        a.router.rows = rows_;
        a.select.logits = m_.logits;
        a.select.ids = m_.ids;
        a.select.weights = m_.weights;
        a.select.rows = rows_;
        a.select.experts = EXPERTS;
        a.select.top_k = TOP_K;
        a.select.gating = STRATA__GATING_SOFTMAX;
        a.select.normalise = 1;
        a.select.weight_scale = 1;
        a.group = {m_.ids,  m_.offsets,       m_.sorted_row, m_.sorted_index, host_offsets_,
                   nullptr, m_.group_scratch, rows_,         TOP_K,           EXPERTS,
                   0};
        const layer &next = m_.layers[(&l - m_.layers + 1) % LAYERS];
        a.ahead = {next.q, bytes_of(STRATA__Q8_0, WIDTH, QKV)};
        require(s_.kernels->ops->route(s_.kernels, stream_, &a), "route");
    }

    void experts(const layer &l)
    {
        uint32_t pairs = rows_ * TOP_K;
        strata__experts_args a = {};
        a.gate_up.gate = {l.blobs[0], nullptr, format_, WIDTH, HIDDEN, 0};
        a.gate_up.up = {l.blobs[1], nullptr, format_, WIDTH, HIDDEN, 0};
        a.gate_up.range = {m_.offsets, nullptr, 0, pairs, 0, EXPERTS - 1};
        a.gate_up.sorted_row = m_.sorted_row;
        a.gate_up.in = {m_.xn, m_.scale};
        a.gate_up.h = {m_.h, m_.scale};
        a.gate_up.gate_up = m_.hidden;
        a.gate_up.path = a.down.path = STRATA__PATH_DIRECT;
        a.down.down = {l.blobs[2], nullptr, format_, HIDDEN, WIDTH, 0};
        a.down.range = a.gate_up.range;
        a.down.h = a.gate_up.h;
        a.combine = {nullptr, m_.weights, m_.sorted_index, m_.x, rows_, TOP_K, WIDTH, 0, pairs, 0};
        require(s_.kernels->ops->experts(s_.kernels, stream_, &a), "experts");
    }

    void whole(const layer &l)
    {
        project(l);
        qkv(l);
        attention(l);
        output(l);
        route(l);
        experts(l);
    }

    void head(const layer &)
    {
        strata__project_args a = {};
        a.norm = norm();
        a.part_count = 1;
        a.parts[0] = dense(m_.head, WIDTH, VOCABULARY, m_.vocabulary, VOCABULARY);
        a.parts[0].in = a.norm.out;
        require(s_.kernels->ops->project(s_.kernels, stream_, &a), "logits");
    }

  private:
    strata__norm_args norm() const
    {
        return {m_.x, m_.gain, {m_.xn, m_.scale}, m_.inv_rms, rows_, WIDTH, 1e-6f};
    }

    strata__dense_args dense(const uint8_t *weights, uint32_t inputs, uint32_t outputs, float *out,
                             uint32_t stride) const
    {
        strata__dense_args a = {};
        a.weight = {weights, nullptr, STRATA__Q8_0, inputs, outputs};
        a.out_f32 = out;
        a.scratch = {m_.scratch, m_.scratch_bytes};
        a.rows = rows_;
        a.out_stride = stride;
        a.alpha = 1;
        return a;
    }

    strata__kv_view cache(const layer &l) const
    {
        return {l.keys, l.values, m_.pages, (uint64_t)KV * PAGE * 2, CONTEXT / PAGE,
                PAGE,   KV_HEADS, HEAD,     STRATA__KV_F16,          0};
    }

    const suite &s_;
    const model &m_;
    cudaStream_t stream_;
    uint32_t format_, rows_;
    uint32_t *host_offsets_ = nullptr;
};

/* Microseconds of a graph of `body` for each layer, by layer: the median of some launches. */
double graph_us(cudaStream_t stream, const model &m, const std::function<void(const layer &)> &body)
{
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    cudaEvent_t start, stop;
    std::vector<float> times;
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capturing");
    for (const layer &l : m.layers)
        body(l);
    require(cudaStreamEndCapture(stream, &graph), "capturing");
    require(cudaGraphInstantiate(&ready, graph, 0), "instantiating");
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    for (int i = 0; i < 13; i++) {
        float ms = 0;
        cudaEventRecord(start, stream);
        require(cudaGraphLaunch(ready, stream), "launching");
        require(cudaGraphLaunch(ready, stream), "launching");
        cudaEventRecord(stop, stream);
        require(cudaEventSynchronize(stop), "timing");
        cudaEventElapsedTime(&ms, start, stop);
        if (i >= 3)
            times.push_back(ms);
    }
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] * 1e3 / (2 * LAYERS);
}

/* Expert blobs that the rows of a layer used in its last run, on average. */
double experts_used(cudaStream_t stream, const model &m, decoder &d)
{
    double used = 0;
    for (const layer &l : m.layers) {
        std::vector<uint32_t> offsets(EXPERTS + 1);
        d.route(l);
        require(cudaStreamSynchronize(stream), "routing");
        require(cudaMemcpy(offsets.data(), m.offsets, offsets.size() * 4, cudaMemcpyDefault),
                "taking");
        for (uint32_t e = 0; e < EXPERTS; e++)
            used += offsets[e + 1] > offsets[e];
    }
    return used / LAYERS;
}

void bench_rows(const suite &s, const model &m, cudaStream_t stream, uint32_t format, uint32_t rows)
{
    typedef void (decoder::*operation)(const layer &);
    static const operation operations[] = {
        &decoder::project, &decoder::qkv,     &decoder::attention,    &decoder::output,
        &decoder::route,   &decoder::experts, &decoder::route_to_host};
    decoder d(s, m, stream, format, rows);
    double blob = 3.0 * bytes_of(format, WIDTH, HIDDEN), used = experts_used(stream, m, d);
    double bytes = used * blob + bytes_of(STRATA__Q8_0, WIDTH, QKV) +
                   bytes_of(STRATA__Q8_0, Q, WIDTH) + 4.0 * EXPERTS * WIDTH + 4.0 * POSITION * KV;
    double us = graph_us(stream, m, [&](const layer &l) { d.whole(l); });
    printf("  %2u rows %5.1f experts %8.2f us a layer %6.0f GB/s  of it", rows, used, us,
           bytes / us * 1e-3);
    for (operation one : operations)
        printf(" %7.2f", graph_us(stream, m, [&](const layer &l) { (d.*one)(l); }));
    double head = graph_us(stream, m, [&](const layer &l) { d.head(l); });
    printf("  logits %7.2f us %5.0f GB/s  48 layers %6.0f tokens/s\n", head,
           bytes_of(STRATA__Q8_0, WIDTH, VOCABULARY) / head * 1e-3, rows * 1e6 / (48 * us + head));
    fflush(stdout);
}

} /* namespace */

void bench_decode(const suite &s)
{
    random_source random(s.seed);
    cudaStream_t stream;
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    model m = make_model(random, STRATA__IQ2_XS, s.kernels->facts);
    uint64_t blob = bytes_of(STRATA__IQ2_XS, WIDTH, HIDDEN);
    random_bytes host(random, 512ull << 20, true);
    printf("decoding, IQ2_XS experts, position %u: project, qkv, attention, output, route, "
           "experts, route with counts to the host\n",
           POSITION);
    for (double missing : {0.0, 0.32, 1.0}) {
        for (layer &l : m.layers)
            move_experts(random, l, host, blob, missing);
        printf(" %.0f %% of the experts in page-locked memory\n", missing * 100);
        for (uint32_t rows : {1u, 2u, 4u, 16u})
            bench_rows(s, m, stream, STRATA__IQ2_XS, rows);
    }
}
