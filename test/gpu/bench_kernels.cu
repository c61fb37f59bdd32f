/* SPDX-License-Identifier: MIT */
/*
 * Times of the kernels in the shape of Qwen3-30B-A3B: 128 experts, top 8, 2048 values, 768 hidden.
 * Medians of events around single operations; every operation's data is several times the cache.
 */
#include <algorithm>
#include <functional>

#include "check.h"

namespace
{

constexpr uint32_t EXPERTS = 128, WIDTH = 2048, HIDDEN = 768, TOP_K = 8;

double median_ms(const std::function<void()> &body, int repeats = 9)
{
    std::vector<float> times;
    cudaEvent_t start, stop;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    for (int i = 0; i < repeats + 2; i++) {
        float ms = 0;
        cudaEventRecord(start, 0);
        body();
        cudaEventRecord(stop, 0);
        require(cudaEventSynchronize(stop), "timing");
        cudaEventElapsedTime(&ms, start, stop);
        if (i >= 2)
            times.push_back(ms);
    }
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

/* Device memory with random bytes of which every half is a small number. */
struct random_memory {
    uint8_t *data = nullptr;
    uint64_t bytes;

    random_memory(random_source &random, uint64_t size, uint16_t mask) : bytes(size)
    {
        std::vector<uint16_t> piece(1 << 20);
        for (uint16_t &v : piece)
            v = (uint16_t)(random.bits() & mask);
        require(cudaMalloc(&data, bytes), "allocating");
        for (uint64_t at = 0; at < bytes; at += piece.size() * 2)
            require(cudaMemcpy(data + at, piece.data(),
                               std::min(bytes - at, (uint64_t)piece.size() * 2),
                               cudaMemcpyHostToDevice),
                    "filling");
    }
    ~random_memory()
    {
        cudaFree(data);
    }
};

/* Everything the timed operations read and write, for up to `rows` sorted rows. */
struct bench_memory {
    uint32_t max_rows;
    random_memory weights, activations, hidden, x, y;
    device_array<float> scales, gains, inv_rms, logits, weights_of_rows;
    device_array<uint8_t> scratch;
    device_array<uint32_t> offsets, sorted_row, sorted_index, group_scratch;
    device_array<int32_t> ids;

    bench_memory(random_source &random, uint32_t rows)
        : max_rows(rows), weights(random, 3ull * EXPERTS * WIDTH * HIDDEN * 9 / 8 + 4096, 0xa7ff),
          activations(random, (uint64_t)rows / TOP_K * WIDTH * 2, 0xb7ff),
          hidden(random, (uint64_t)rows * HIDDEN * 2, 0xb7ff),
          x(random, (uint64_t)rows / TOP_K * WIDTH * 4, 0xbbff),
          y(random, (uint64_t)rows * WIDTH * 4, 0xbbff), scales(rows), gains(WIDTH), inv_rms(rows),
          logits((size_t)rows / TOP_K * EXPERTS), weights_of_rows(rows),
          scratch((uint64_t)EXPERTS * 2 * HIDDEN * WIDTH * 2), offsets(EXPERTS + 1),
          sorted_row(rows), sorted_index(rows), group_scratch(EXPERTS * 128), ids(rows)
    {
        scales.put(std::vector<float>(rows, 1.0f));
        gains.put(std::vector<float>(WIDTH, 1.0f));
    }
};

/* Rows spread over the experts as by a uniform router; `spread` 0: the same number each. */
void set_rows(random_source &random, bench_memory &m, uint32_t rows, bool even)
{
    std::vector<uint32_t> offsets(EXPERTS + 1), sorted(rows);
    std::vector<uint32_t> counts(EXPERTS, rows / EXPERTS);
    if (!even) {
        std::fill(counts.begin(), counts.end(), 0);
        for (uint32_t i = 0; i < rows; i++)
            counts[random.below(EXPERTS)]++;
    }
    for (uint32_t e = 0; e < EXPERTS; e++)
        offsets[e + 1] = offsets[e] + counts[e];
    for (uint32_t &row : sorted)
        row = random.below(m.max_rows / TOP_K);
    m.offsets.put(offsets);
    sorted.resize(m.max_rows);
    m.sorted_row.put(sorted);
}

class blob_pointers
{
  public:
    blob_pointers(const bench_memory &m, uint32_t format, uint32_t inputs, uint32_t outputs,
                  uint32_t place)
    {
        std::vector<const void *> pointers;
        uint64_t row_bytes = 0;
        strata__format_row_bytes(format, inputs, &row_bytes);
        for (uint32_t e = 0; e < EXPERTS; e++)
            pointers.push_back(m.weights.data + (e * 3ull + place) * row_bytes * outputs);
        table_ = new device_array<const void *>(pointers);
    }
    ~blob_pointers()
    {
        delete table_;
    }
    const void *const *get() const
    {
        return table_->get();
    }

  private:
    device_array<const void *> *table_;
};

void bench_decoders(const bench_memory &m)
{
    printf("decoder to half (128 experts, gate and up of 2048 x 768): ms, GB/s read + written\n");
    for (uint32_t format : all_formats) {
        if (strata__format_find(format)->block_bytes * 8.0 /
                strata__format_find(format)->block_values >
            9)
            continue;
        blob_pointers gate(m, format, WIDTH, HIDDEN, 0), up(m, format, WIDTH, HIDDEN, 1);
        strata__decode_args args = {};
        uint64_t row_bytes = 0;
        strata__format_row_bytes(format, WIDTH, &row_bytes);
        args.matrix[0] = {gate.get(), nullptr, nullptr, format};
        args.matrix[1] = {up.get(), nullptr, nullptr, format};
        args.range = {m.offsets.get(), 0, EXPERTS, 0, m.max_rows};
        args.image = m.scratch.get();
        args.matrices = 2;
        args.inputs = WIDTH;
        args.outputs = HIDDEN;
        args.slabs = 2 * HIDDEN / 128;
        strata__cuda_state state = {};
        double ms = median_ms([&] { require(strata__cuda_decode(&state, 0, &args), "decoding"); });
        double bytes = 2.0 * EXPERTS * HIDDEN * (row_bytes + 2.0 * WIDTH);
        printf("  %-8s %7.3f %7.0f\n", strata__format_name(format), ms, bytes / ms * 1e-6);
    }
}

/* The product alone, over what the last decoder left in scratch. */
double product_ms(const suite &s, const bench_memory &m, uint32_t rows, bool paired)
{
    strata__product_args args = {};
    args.range = {m.offsets.get(), 0, EXPERTS, 0, rows};
    args.image = m.scratch.get();
    args.in = reinterpret_cast<uint16_t *>(paired ? m.activations.data : m.hidden.data);
    args.in_scale = m.scales.get();
    args.in_row = paired ? m.sorted_row.get() : nullptr;
    args.out = reinterpret_cast<float *>(m.y.data);
    args.out_rows = reinterpret_cast<uint16_t *>(m.hidden.data);
    args.out_scale = m.scales.get();
    args.out_stride = WIDTH;
    args.inputs = paired ? WIDTH : HIDDEN;
    args.outputs = args.end = paired ? HIDDEN : WIDTH;
    args.slabs = paired ? 2 * HIDDEN / 128 : WIDTH / 128;
    args.alpha = 1;
    strata__cuda_state state = {};
    cudaDriverEntryPointQueryResult found;
    int sms = 0;
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
    state.multiprocessors = (uint32_t)sms;
    require(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &state.encode_tensor_map,
                                             12000, cudaEnableDefault, &found),
            "finding the tensor map encoder");
    return median_ms([&] {
#if defined(STRATA__HAVE_SM90A)
        if (s.level != 80) {
            require(strata__cuda_product_sm90(&state, 0, paired, &args), "product");
            return;
        }
#endif
        require(strata__cuda_product_sm80(state.multiprocessors, 0, paired, &args), "product");
    });
}

void bench_experts(const suite &s, random_source &random, bench_memory &m, uint32_t format,
                   uint32_t path)
{
    blob_pointers gate(m, format, WIDTH, HIDDEN, 0), up(m, format, WIDTH, HIDDEN, 1);
    blob_pointers down(m, format, HIDDEN, WIDTH, 2);
    printf("experts %s %s: rows each, gate_up ms, down ms, all TFLOP/s; product alone TFLOP/s\n",
           strata__format_name(format), path == STRATA__PATH_FP16 ? "fp16" : "direct");
    for (uint32_t each : {1u, 32u, 128u, 256u, 512u, 2048u})
        for (bool even : {true, false}) {
            uint32_t rows = each * EXPERTS;
            if (rows > m.max_rows || (path == STRATA__PATH_DIRECT && each > 32))
                continue;
            set_rows(random, m, rows, even);
            strata__gate_up_args a = {};
            a.gate = {gate.get(), nullptr, format, WIDTH, HIDDEN, 0};
            a.up = {up.get(), nullptr, format, WIDTH, HIDDEN, 0};
            a.range = {m.offsets.get(), nullptr, 0, rows, 0, EXPERTS - 1};
            a.sorted_row = m.sorted_row.get();
            a.in = {m.activations.data, m.scales.get()};
            a.h = {m.hidden.data, m.scales.get()};
            a.scratch = {m.scratch.get(), m.scratch.count()};
            a.path = path;
            strata__down_args d = {};
            d.down = {down.get(), nullptr, format, HIDDEN, WIDTH, 0};
            d.range = a.range;
            d.h = a.h;
            d.y = reinterpret_cast<float *>(m.y.data);
            d.scratch = a.scratch;
            d.path = path;
            double up_ms =
                median_ms([&] { require(s.kernels->ops->gate_up(s.kernels, 0, &a), "gate_up"); });
            double up_product = product_ms(s, m, rows, true);
            double down_ms =
                median_ms([&] { require(s.kernels->ops->down(s.kernels, 0, &d), "down"); });
            double down_product = product_ms(s, m, rows, false);
            double flop = 2.0 * rows * WIDTH * HIDDEN;
            printf("  %5u %s %7.3f %7.3f %6.0f   gate_up %4.0f down %4.0f\n", each,
                   even ? "even  " : "uneven", up_ms, down_ms, 3 * flop / (up_ms + down_ms) * 1e-9,
                   2 * flop / up_product * 1e-9, flop / down_product * 1e-9);
        }
}

void bench_dense(const suite &s, const bench_memory &m)
{
    const uint32_t shapes[][3] = {{4096, 2048, 4096}, {4096, 4096, 2048}, {4096, 2048, 512},
                                  {4096, 2048, 2048}, {1, 2048, 151936},  {16, 2048, 151936},
                                  {1, 2048, 4096}};
    printf("dense Q8_0: rows, inputs, outputs, ms, TFLOP/s, GB/s of weights\n");
    for (const uint32_t *shape : shapes) {
        strata__dense_args a = {};
        uint64_t row_bytes = 0;
        strata__format_row_bytes(STRATA__Q8_0, shape[1], &row_bytes);
        a.weight = {m.weights.data, nullptr, STRATA__Q8_0, shape[1], shape[2]};
        a.in = {m.activations.data, m.scales.get()};
        a.out_f32 = reinterpret_cast<float *>(m.y.data);
        a.scratch = {m.scratch.get(), m.scratch.count()};
        a.rows = shape[0];
        a.out_stride = shape[2];
        a.alpha = 1;
        double ms = median_ms([&] { require(s.kernels->ops->dense(s.kernels, 0, &a), "dense"); });
        printf("  %5u %5u %6u %7.3f %6.0f %6.0f\n", shape[0], shape[1], shape[2], ms,
               2.0 * shape[0] * shape[1] * shape[2] / ms * 1e-9, row_bytes * shape[2] / ms * 1e-6);
    }
}

void bench_rows(const suite &s, random_source &random, bench_memory &m)
{
    uint32_t tokens = std::min(4096u, m.max_rows / TOP_K);
    std::vector<float> logits((size_t)tokens * EXPERTS);
    for (float &v : logits)
        v = random.normal();
    logits.resize(m.logits.count());
    m.logits.put(logits);
    strata__norm_args norm = {};
    norm.x = reinterpret_cast<float *>(m.x.data);
    norm.weight = m.gains.get();
    norm.out = {m.activations.data, m.scales.get()};
    norm.inv_rms = m.inv_rms.get();
    norm.rows = tokens;
    norm.width = WIDTH;
    norm.eps = 1e-6f;
    strata__router_args router = {};
    router.x = norm.x;
    router.inv_rms = m.inv_rms.get();
    router.norm = m.gains.get();
    router.weight = {m.x.data, nullptr, STRATA__F32, WIDTH, EXPERTS};
    router.logits = reinterpret_cast<float *>(m.y.data);
    router.rows = tokens;
    strata__select_args select = {};
    select.logits = m.logits.get();
    select.ids = m.ids.get();
    select.weights = m.weights_of_rows.get();
    select.rows = tokens;
    select.experts = EXPERTS;
    select.top_k = TOP_K;
    select.gating = STRATA__GATING_SOFTMAX;
    select.normalise = 1;
    select.weight_scale = 1;
    strata__group_args group = {m.ids.get(),
                                m.offsets.get(),
                                m.sorted_row.get(),
                                m.sorted_index.get(),
                                nullptr,
                                nullptr,
                                m.group_scratch.get(),
                                tokens,
                                TOP_K,
                                EXPERTS,
                                0};
    strata__combine_args combine = {reinterpret_cast<float *>(m.y.data),
                                    m.weights_of_rows.get(),
                                    m.sorted_index.get(),
                                    reinterpret_cast<float *>(m.x.data),
                                    tokens,
                                    TOP_K,
                                    WIDTH,
                                    0,
                                    tokens * TOP_K,
                                    0.0f};
    strata__embed_args embed = {{m.weights.data, nullptr, STRATA__Q8_0, WIDTH, EXPERTS},
                                m.ids.get(),
                                reinterpret_cast<float *>(m.y.data),
                                tokens,
                                1};
    const strata__kernels_ops *ops = s.kernels->ops;
    printf("rows of 4096 tokens, microseconds:");
    printf(" norm %.1f", 1e3 * median_ms([&] { ops->norm(s.kernels, 0, &norm); }));
    printf(" router %.1f", 1e3 * median_ms([&] { ops->router(s.kernels, 0, &router); }));
    printf(" select %.1f", 1e3 * median_ms([&] { ops->select(s.kernels, 0, &select); }));
    printf(" group %.1f", 1e3 * median_ms([&] { ops->group(s.kernels, 0, &group); }));
    printf(" combine %.1f", 1e3 * median_ms([&] { ops->combine(s.kernels, 0, &combine); }));
    printf(" embed %.1f\n", 1e3 * median_ms([&] { ops->embed(s.kernels, 0, &embed); }));
    require(cudaDeviceSynchronize(), "timing rows");
}

} /* namespace */

void bench_kernels(const suite &s)
{
    random_source random(s.seed);
    bench_memory m(random, 2048 * EXPERTS);
    printf("== times at level %u\n", s.level);
    set_rows(random, m, m.max_rows, true);
    if (s.level != 80)
        bench_decoders(m);
    bench_experts(s, random, m, STRATA__IQ2_XS, STRATA__PATH_FP16);
    if (s.level != 80) {
        bench_experts(s, random, m, STRATA__Q4_K, STRATA__PATH_FP16);
        bench_experts(s, random, m, STRATA__IQ2_XS, STRATA__PATH_DIRECT);
    }
    bench_dense(s, m);
    if (s.level != 80)
        bench_rows(s, random, m);
}
