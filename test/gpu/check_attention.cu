/* SPDX-License-Identifier: MIT */
/*
 * Attention and qkv on a GPU against float64: random inputs, poisoned outputs and caches, guard
 * zones, edge shapes, several segments, chunks that must give the same bits; then their speed.
 *
 *   check_attention [check [small] [head=N]] [time [quick]] [plain]
 *       small: for slow tools; head: attention alone, with heads of that size; quick: one level;
 *       plain: a kernel starts when the one before has ended
 */
#include "attention_case.cuh"
#include "check_qkv.cuh"

#include <algorithm>

extern "C" {
#include "base/error.h"
}

struct attention_case {
    uint32_t format, head_size, kv_heads, group, window, page_tokens;
    bool sinks;
    std::vector<strata__segment> segments;
    uint32_t split_keys = 0;
};

/* Device memory of a case, kept between cases. */
struct attention_memory {
    guarded q, q_scale, out, out_scale, k, v, table, segments, sinks, scores, reference, scratch;
};

struct tally {
    uint32_t cases = 0, failures = 0;
    double worst = 0.0;
};

static uint32_t g_seed = 1;

static const char *format_name(uint32_t format)
{
    return format == STRATA__KV_F16 ? "f16" : format == STRATA__KV_Q8_0 ? "q8_0" : "f32";
}

static void describe(const attention_case &c, uint32_t level, const char *fault)
{
    printf("FAIL level %u %s hd %u kv %u group %u window %u page %u sinks %d split %u:", level,
           format_name(c.format), c.head_size, c.kv_heads, c.group, c.window, c.page_tokens,
           (int)c.sinks, c.split_keys);
    for (const strata__segment &s : c.segments)
        printf(" [%u at %u]", s.rows, s.position);
    printf(": %s\n", fault);
}

static uint32_t total_rows(const attention_case &c)
{
    return c.segments.back().first_row + c.segments.back().rows;
}

/* A table of shuffled pages; entries behind a sequence's last page are far outside the cache. */
static uint32_t fill_table(const attention_case &c, attention_memory &m, uint32_t stride)
{
    std::vector<int32_t> table(c.segments.size() * stride, 0x3fffffff);
    uint32_t pages = 0;
    for (const strata__segment &s : c.segments)
        pages += (s.position + s.rows + c.page_tokens - 1) / c.page_tokens;
    pages += 3;
    std::vector<int32_t> order(pages);
    for (uint32_t i = 0; i < pages; i++)
        order[i] = (int32_t)i;
    for (uint32_t i = pages - 1; i > 0; i--)
        std::swap(order[i], order[hash_bits(i, g_seed) % (i + 1)]);
    uint32_t next = 0;
    for (const strata__segment &s : c.segments)
        for (uint32_t i = 0; i * c.page_tokens < s.position + s.rows; i++)
            table[s.sequence * stride + i] = order[next++];
    m.table.reset(table.size() * 4, 0);
    CHECK_CUDA(
        cudaMemcpy(m.table.as<void>(), table.data(), table.size() * 4, cudaMemcpyHostToDevice));
    return pages;
}

static void upload_segments(const std::vector<strata__segment> &segments, guarded &target)
{
    target.reset(segments.size() * sizeof(segments[0]), 0);
    CHECK_CUDA(cudaMemcpy(target.as<void>(), segments.data(), segments.size() * sizeof(segments[0]),
                          cudaMemcpyHostToDevice));
}

static void fill_inputs(const attention_case &c, attention_memory &m, strata__attention_args &a)
{
    uint64_t width = (uint64_t)a.heads * c.head_size;
    m.q.reset(a.rows * width * 2, 0xFF);
    m.q_scale.reset(a.rows * 4, 0xFF);
    a.q = {m.q.as<void>(), m.q_scale.as<float>()};
    fill_queries<<<blocks_for(a.rows * width), 256>>>(m.q.as<__half>(), m.q_scale.as<float>(),
                                                      width, a.rows * width, g_seed);
    m.sinks.reset(a.heads * 4, 0);
    fill_float<<<1, 256>>>(m.sinks.as<float>(), a.heads, g_seed + 7, 3.0f);
    a.sinks = c.sinks ? m.sinks.as<float>() : nullptr;
    for (const strata__segment &s : c.segments) {
        uint64_t tasks = (uint64_t)(s.position + s.rows) * c.kv_heads * (c.head_size / 32);
        fill_cache<<<blocks_for(tasks), 256>>>(a.kv, s.sequence, s.position + s.rows, g_seed + 11);
    }
    CHECK_CUDA(cudaGetLastError());
}

/* Queries, what spans leave, and the cache's rows that are new, or all of the last few. */
static void make_late(const attention_case &c, const attention_memory &m,
                      const strata__attention_args &a)
{
    uint32_t row_bytes = c.format == STRATA__KV_F16   ? 2 * c.head_size
                         : c.format == STRATA__KV_F32 ? 4 * c.head_size
                                                      : c.head_size;
    std::vector<int32_t> table(m.table.bytes / 4);
    cuda_host_late_none();
    m.q.come_late(0, m.q.bytes);
    m.q_scale.come_late(0, m.q_scale.bytes);
    if (c.split_keys && m.scratch.bytes < 1u << 18)
        m.scratch.come_late(0, m.scratch.bytes);
    CHECK_CUDA(cudaMemcpy(table.data(), m.table.as<void>(), m.table.bytes, cudaMemcpyDeviceToHost));
    for (const strata__segment &s : c.segments) {
        uint32_t first = a.settled ? s.position : s.position - std::min(s.position, 100u);
        for (uint32_t t = first; t < s.position + s.rows; t++)
            for (uint32_t head = 0; head < c.kv_heads; head++) {
                uint64_t page = table[s.sequence * a.kv.table_stride + t / c.page_tokens];
                uint64_t at = page * a.kv.page_bytes + head * (a.kv.page_bytes / c.kv_heads) +
                              (uint64_t)(t % c.page_tokens) * row_bytes;
                m.k.come_late(at, row_bytes);
                m.v.come_late(at, row_bytes);
            }
    }
}

static strata__attention_args prepare(const attention_case &c, attention_memory &m)
{
    strata__attention_args a = {};
    a.rows = total_rows(c);
    a.heads = c.kv_heads * c.group;
    a.window = c.window;
    a.scale = 1.0f / sqrtf((float)c.head_size);
    a.segment_count = (uint32_t)c.segments.size();
    for (const strata__segment &s : c.segments) {
        a.max_segment_rows = std::max(a.max_segment_rows, s.rows);
        a.max_kv_tokens = std::max(a.max_kv_tokens, s.position + s.rows);
    }
    upload_segments(c.segments, m.segments);
    a.segments = m.segments.as<strata__segment>();
    a.kv.table_stride = a.max_kv_tokens / c.page_tokens + 2;
    uint32_t pages = fill_table(c, m, a.kv.table_stride);
    a.kv.page_table = m.table.as<int32_t>();
    a.kv.page_tokens = c.page_tokens;
    a.kv.kv_heads = c.kv_heads;
    a.kv.head_size = c.head_size;
    a.kv.format = c.format;
    a.kv.page_bytes = c.kv_heads * c.page_tokens * cache_row_bytes(c.format, c.head_size);
    m.k.reset(pages * a.kv.page_bytes, 0xFF);
    m.v.reset(pages * a.kv.page_bytes, 0xFF);
    a.kv.k = m.k.as<void>();
    a.kv.v = m.v.as<void>();
    a.split_keys = c.split_keys;
    a.settled = c.split_keys && g_seed % 2;
    if (c.split_keys)
        a.ahead = {m.k.as<void>(), m.k.bytes / 16 * 16};
    if (c.split_keys) {
        a.scratch.bytes = strata__attention_split_bytes(a.rows, a.heads, c.head_size,
                                                        a.max_kv_tokens, c.split_keys);
        m.scratch.reset(a.scratch.bytes, 0xFF);
        a.scratch.data = m.scratch.as<void>();
    }
    fill_inputs(c, m, a);
    make_late(c, m, a);
    return a;
}

static void poison_output(attention_memory &m, strata__attention_args &a)
{
    m.out.reset((uint64_t)a.rows * a.heads * a.kv.head_size * 2, 0xFF);
    m.out_scale.reset(a.rows * 4, 0xFF);
    a.out = {m.out.as<void>(), m.out_scale.as<float>()};
}

static bool launch(const strata__cuda_state &state, const strata__attention_args &a)
{
    if (strata__cuda_attention(&state, 0, &a) == STRATA_OK)
        return true;
    printf("launch: %s\n", strata__error_text());
    return false;
}

static std::vector<__half> read_halves(const void *source, size_t count)
{
    std::vector<__half> host(count);
    CHECK_CUDA(cudaMemcpy(host.data(), source, count * 2, cudaMemcpyDeviceToHost));
    return host;
}

/* Error norms over the whole and by row and head; false when a value is not a number. */
static bool measure(const std::vector<__half> &out, const std::vector<float> &scale,
                    const std::vector<double> &reference, uint32_t head_size, uint32_t heads,
                    double *whole, double *worst_row)
{
    double error = 0.0, norm = 0.0;
    *worst_row = 0.0;
    for (size_t at = 0; at < out.size(); at += head_size) {
        double e = 0.0, n = 0.0;
        for (size_t d = at; d < at + head_size; d++) {
            double x = (double)__half2float(out[d]) * scale[at / head_size / heads];
            e += (x - reference[d]) * (x - reference[d]);
            n += reference[d] * reference[d];
        }
        error += e;
        norm += n;
        double row = sqrt(e / (n + 1e-6));
        if (!(row <= *worst_row))
            *worst_row = row;
    }
    *whole = sqrt(error / (norm + 1e-30));
    return *whole == *whole && *worst_row == *worst_row;
}

static std::vector<double> run_reference(const attention_case &c, attention_memory &m,
                                         const strata__attention_args &a)
{
    size_t count = (size_t)a.rows * a.heads * c.head_size;
    m.reference.reset(count * 8, 0xFF);
    m.scores.reset((size_t)a.max_segment_rows * a.heads * a.max_kv_tokens * 8, 0xFF);
    for (uint32_t i = 0; i < a.segment_count; i++)
        reference_attention<<<dim3(c.segments[i].rows, a.heads), 256>>>(
            a, i, m.scores.as<double>(), a.max_kv_tokens, m.reference.as<double>());
    std::vector<double> host(count);
    CHECK_CUDA(cudaMemcpy(host.data(), m.reference.as<void>(), count * 8, cudaMemcpyDeviceToHost));
    return host;
}

/* The single segment again in launches of `chunk` rows: the same bits. */
static bool same_in_chunks(const strata__cuda_state &state, const attention_case &c,
                           attention_memory &m, strata__attention_args a, uint32_t chunk,
                           const std::vector<__half> &whole)
{
    uint64_t width = (uint64_t)a.heads * c.head_size;
    strata__attention_args part = a;
    part.settled = 0; /* rows before a part's are marked as late */
    poison_output(m, a);
    for (uint32_t first = 0; first < a.rows; first += chunk) {
        strata__segment s = c.segments[0];
        s.rows = std::min(chunk, a.rows - first);
        s.position += first;
        upload_segments({s}, m.segments);
        part.rows = part.max_segment_rows = s.rows;
        part.max_kv_tokens = s.position + s.rows;
        part.q = {(__half *)a.q.data + first * width, a.q.scale + first};
        part.out = {(__half *)a.out.data + first * width, a.out.scale + first};
        if (!launch(state, part))
            return false;
        CHECK_CUDA(cudaDeviceSynchronize());
    }
    std::vector<__half> again = read_halves(a.out.data, whole.size());
    return memcmp(again.data(), whole.data(), whole.size() * 2) == 0;
}

static const char *check_case(const strata__cuda_state &state, const attention_case &c,
                              attention_memory &m, tally &t)
{
    g_seed += 101;
    strata__attention_args a = prepare(c, m);
    poison_output(m, a);
    if (!launch(state, a))
        return "launch";
    CHECK_CUDA(cudaDeviceSynchronize());
    std::vector<__half> out = read_halves(a.out.data, (size_t)a.rows * a.heads * c.head_size);
    std::vector<float> scale(a.rows);
    CHECK_CUDA(cudaMemcpy(scale.data(), a.out.scale, a.rows * 4, cudaMemcpyDeviceToHost));
    if (!m.out.intact() || !m.out_scale.intact() || (c.split_keys && !m.scratch.intact()))
        return "guard zone";
    double whole, row;
    if (!measure(out, scale, run_reference(c, m, a), c.head_size, a.heads, &whole, &row))
        return "not a number";
    t.worst = std::max(t.worst, whole);
    /* Probabilities are rounded to half; q8_0 and float32 keys and values are too. */
    double bound = c.format == STRATA__KV_F16 ? 6e-4 : 1.5e-3;
    if (whole > bound || row > 4 * bound) {
        printf("error %.3e, of a row %.3e\n", whole, row);
        return "error";
    }
    if (a.segment_count == 1)
        for (uint32_t chunk : {1u, 7u, 33u})
            if (chunk < a.rows && (chunk > 1 || a.rows <= 65) &&
                !same_in_chunks(state, c, m, a, chunk, out))
                return "chunks change bits";
    return nullptr;
}

static void run_case(const strata__cuda_state &state, const attention_case &c, attention_memory &m,
                     tally &t)
{
    const char *fault = check_case(state, c, m, t);
    t.cases++;
    if (fault) {
        t.failures++;
        describe(c, state.level, fault);
    }
}

static void check_shapes(const strata__cuda_state &state, uint32_t format, uint32_t head_size,
                         bool small, attention_memory &m, tally &t)
{
    static const uint32_t windows[] = {0, 1, 16, 128, 0}, pages[] = {64, 128, 192};
    uint32_t turn = head_size / 32 + format;
    for (uint32_t group : {1u, 4u, 8u, 6u})
        for (uint32_t rows : {1u, 7u, 64u, 65u, 129u})
            for (uint32_t position : {0u, 63u, 5000u}) {
                turn++;
                if (small && (group != 4 || position != 63 || (rows != 1 && rows != 65)))
                    continue;
                attention_case c = {format,
                                    head_size,
                                    2,
                                    group,
                                    windows[turn % 5],
                                    pages[turn % 3],
                                    turn % 2 == 0,
                                    {{0, rows, position, 0}}};
                run_case(state, c, m, t);
                c.split_keys = rows > 7 ? 0 : turn % 2 ? 64 : 512;
                if (c.split_keys)
                    run_case(state, c, m, t);
            }
    attention_case many = {
        format, head_size,
        2,      4,
        0,      64,
        true,   {{0, 1, 777, 2}, {1, 7, 0, 0}, {8, 64, 63, 4}, {72, 3, 128, 1}, {75, 129, 190, 3}}};
    run_case(state, many, m, t);
    many.window = 128;
    many.sinks = false;
    run_case(state, many, m, t);
    for (strata__segment &s : many.segments) {
        s.first_row = s.sequence;
        s.rows = 1;
    }
    std::sort(many.segments.begin(), many.segments.end(),
              [](const strata__segment &x, const strata__segment &y) {
                  return x.first_row < y.first_row;
              });
    run_case(state, many, m, t);
    many.split_keys = 128;
    run_case(state, many, m, t);
}

/* only_head 0: all sizes. */
static uint32_t check_attention(strata__cuda_state state, bool small, uint32_t only_head)
{
    static attention_memory m;
    uint32_t failures = 0;
    for (uint32_t level : {80u, 90u}) {
        state.level = level;
        if (level == 90 && !state.hopper_attention)
            continue;
        for (uint32_t format : {STRATA__KV_F16, STRATA__KV_Q8_0, STRATA__KV_F32}) {
            if (level == 90 && format != STRATA__KV_F16)
                continue;
            for (uint32_t head_size : {64u, 96u, 128u, 256u}) {
                if (only_head && head_size != only_head)
                    continue;
                tally t;
                check_shapes(state, format, head_size, small, m, t);
                printf("attention level %u %-4s head %3u: %3u cases, %u failed, error up to %.2e\n",
                       level, format_name(format), head_size, t.cases, t.failures, t.worst);
                fflush(stdout);
                failures += t.failures;
            }
        }
    }
    return failures;
}

struct timing_case {
    const char *name;
    uint32_t format, heads, kv_heads, head_size, rows, position, window;
    bool sinks;
    uint32_t split_keys;
};

/* Median of several launches in microseconds. */
template <typename LAUNCH> static double median_us(LAUNCH launch_once, int runs)
{
    std::vector<float> times;
    cudaEvent_t start, end;
    CHECK_CUDA(cudaEventCreate(&start));
    CHECK_CUDA(cudaEventCreate(&end));
    for (int i = 0; i < runs + 2; i++) {
        float ms;
        CHECK_CUDA(cudaEventRecord(start));
        launch_once();
        CHECK_CUDA(cudaEventRecord(end));
        CHECK_CUDA(cudaEventSynchronize(end));
        CHECK_CUDA(cudaEventElapsedTime(&ms, start, end));
        if (i >= 2)
            times.push_back(ms * 1e3f);
    }
    std::sort(times.begin(), times.end());
    CHECK_CUDA(cudaEventDestroy(start));
    CHECK_CUDA(cudaEventDestroy(end));
    return times[times.size() / 2];
}

/* Products of a head that the mask leaves, as floating-point operations. */
static double attention_flops(const timing_case &c)
{
    double pairs = 0.0;
    for (uint32_t i = 0; i < c.rows; i++) {
        double keys = (double)c.position + i + 1;
        pairs += c.window ? std::min(keys, (double)c.window) : keys;
    }
    return 4.0 * c.heads * c.head_size * pairs;
}

static void time_attention(strata__cuda_state state, bool quick)
{
    static const timing_case cases[] = {
        {"32K prompt", STRATA__KV_F16, 32, 4, 128, 32768, 0, 0, false, 0},
        {"8K prompt", STRATA__KV_F16, 32, 4, 128, 8192, 0, 0, false, 0},
        {"4K prompt", STRATA__KV_F16, 32, 4, 128, 4096, 0, 0, false, 0},
        {"512 prompt", STRATA__KV_F16, 32, 4, 128, 512, 0, 0, false, 0},
        {"4K at 28K", STRATA__KV_F16, 32, 4, 128, 4096, 28672, 0, false, 0},
        {"decode at 4K", STRATA__KV_F16, 32, 4, 128, 1, 4095, 0, false, 0},
        {"decode at 32K", STRATA__KV_F16, 32, 4, 128, 1, 32767, 0, false, 0},
        {"decode at 4K, by 256", STRATA__KV_F16, 32, 4, 128, 1, 4095, 0, false, 256},
        {"decode at 32K, by 512", STRATA__KV_F16, 32, 4, 128, 1, 32767, 0, false, 512},
        {"decode at 32K, by 1024", STRATA__KV_F16, 32, 4, 128, 1, 32767, 0, false, 1024},
        {"decode q8_0 32K, by 512", STRATA__KV_Q8_0, 32, 4, 128, 1, 32767, 0, false, 512},
        {"8K hd 64 sinks", STRATA__KV_F16, 64, 8, 64, 8192, 0, 0, true, 0},
        {"8K hd 64 window 128", STRATA__KV_F16, 64, 8, 64, 8192, 0, 128, true, 0},
        {"8K hd 256", STRATA__KV_F16, 16, 2, 256, 8192, 0, 0, false, 0},
        {"8K hd 96", STRATA__KV_F16, 32, 8, 96, 8192, 0, 0, false, 0},
        {"8K q8_0", STRATA__KV_Q8_0, 32, 4, 128, 8192, 0, 0, false, 0},
        {"8K f32", STRATA__KV_F32, 32, 4, 128, 8192, 0, 0, false, 0}};
    static attention_memory m;
    printf("%-24s %6s %12s %10s\n", "attention", "level", "us", "TFLOP/s");
    for (const timing_case &c : cases)
        for (uint32_t level : {80u, 90u}) {
            bool hopper = state.hopper_attention && c.format == STRATA__KV_F16 &&
                          c.head_size != 96 && c.split_keys == 0;
            if (level == 90 && !hopper)
                continue;
            if (quick && level == 80 && hopper)
                continue;
            state.level = level;
            attention_case ac = {c.format,    c.head_size, c.kv_heads, c.heads / c.kv_heads,
                                 c.window,    64,          c.sinks,    {{0, c.rows, c.position, 0}},
                                 c.split_keys};
            strata__attention_args a = prepare(ac, m);
            poison_output(m, a);
            double us = median_us([&] { launch(state, a); }, c.rows > 8192 ? 5 : 9);
            printf("%-24s %6u %12.1f %10.1f\n", c.name, level, us, attention_flops(c) / us * 1e-6);
            fflush(stdout);
        }
}

/* Qwen3-30B-A3B's shape: norm by head, then rotation; bytes read and written once. */
static void time_qkv(const strata__cuda_state &state)
{
    static qkv_memory m;
    qkv_case c = {};
    c.format = STRATA__KV_F16;
    c.head_size = c.rope_width = 128;
    c.heads = 32;
    c.kv_heads = 4;
    c.style = STRATA__ROPE_NEOX;
    c.norm = STRATA__QK_NORM_HEAD_BEFORE_ROPE;
    c.magnitude = c.spread = 1.0f;
    c.segments = {{0, 8192, 0, 0}};
    strata__qkv_args a = prepare_qkv(c, m);
    double us = median_us([&] { strata__cuda_qkv(&state, 0, &a); }, 9);
    double bytes = 8192.0 * 128 * 40 * 6;
    printf("%-24s %6s %12.1f %10.1f GB/s\n", "qkv, 8192 rows", "", us, bytes / us * 1e-3);
}

static bool asked(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], word) == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        printf("no GPU: skipped\n");
        return 77;
    }
    cudaDeviceProp device;
    CHECK_CUDA(cudaGetDeviceProperties(&device, 0));
    strata__cuda_state state = {};
    state.compute_capability = (uint32_t)(device.major * 10 + device.minor);
    state.multiprocessors = (uint32_t)device.multiProcessorCount;
    state.shared_memory_bytes = device.sharedMemPerBlockOptin;
    state.level = state.compute_capability >= 90 ? 90 : 80;
    state.overlaps = state.compute_capability >= 90 && !asked(argc, argv, "plain");
    if (strata__cuda_attention_load(&state) != STRATA_OK) {
        printf("load: %s\n", strata__error_text());
        return 1;
    }
    printf("%s, Hopper kernels %s\n", device.name, state.hopper_attention ? "on" : "off");
    bool small = asked(argc, argv, "small");
    uint32_t failures = 0, head = 0;
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], "head=", 5))
            head = (uint32_t)strtoul(argv[i] + 5, nullptr, 10);
    if (asked(argc, argv, "check") && head == 0)
        failures += check_qkv(state, small);
    if (asked(argc, argv, "check"))
        failures += check_attention(state, small, head);
    if (asked(argc, argv, "time")) {
        time_attention(state, asked(argc, argv, "quick"));
        time_qkv(state);
    }
    printf(failures ? "FAILED\n" : "passed\n");
    return failures ? 1 : 0;
}
