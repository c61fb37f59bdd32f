/* SPDX-License-Identifier: MIT */
/*
 * Speed of the CPU kernels on the machine it runs on:
 *
 *   bench-cpu-kernels [threads]
 *
 *   decoders   G values/s and GB/s of blocks of one thread, per format and instruction set
 *   dots       the same of products of one row with weights, which stay near in a cache or do not
 *   tile       GFLOP/s of the product tile of one thread, per instruction set and width
 *   prompt     every operation of a 512-token prompt of a small mixture (8 layers, D 1024, 16 heads
 *   and
 *              4 KV heads of 64, 32 experts, top-4, FF 512; dense weights Q8_0), and the tokens/s
 *              they add up to, without output head and host work
 *
 * Times are the best of several runs; decoders and tile count the thread's processor time, and so
 * do the figures in brackets of the prompt: what a machine without other work would do.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cpu/cpu.h"

static const char *const levels[] = {"base", "avx2", "avx512"};

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *memory(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p)
        exit(1);
    memset(p, 0, bytes);
    return p;
}

static void print_machine(uint32_t threads)
{
    char line[256] = "", model[256] = "unknown";
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            snprintf(model, sizeof model, "%s", strchr(line, ':') + 2);
            model[strcspn(model, "\n")] = 0;
            break;
        }
    if (file)
        fclose(file);
    printf("machine: %s, %u cores, level %s, %u threads\n", model, strata__pool_cores(),
           levels[strata__cpu_best_level()], threads);
}

/* Random blocks of moderate size: the top bits of every byte are clear, so halves are below 0.1. */
static uint8_t *blocks_of(uint32_t format, uint64_t values)
{
    const strata__format_info *info = strata__format_find(format);
    uint64_t bytes = values / info->block_values * info->block_bytes;
    uint8_t *data = memory(bytes);
    uint32_t state = format + 1;
    for (uint64_t i = 0; i < bytes; i++) {
        state = state * 1664525 + 1013904223;
        data[i] = (uint8_t)(state >> 24 & 0x2f);
    }
    return data;
}

static void bench_decoders(void)
{
    enum { VALUES = 1 << 14, ROUNDS = 60, REPEATS = 5 };
    float *out = memory(VALUES * sizeof *out);
    printf("\ndecoders, one thread: G values/s (GB/s of blocks)\n");
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; id++) {
        const strata__format_info *info = strata__format_find(id);
        if (!info)
            continue;
        uint8_t *blocks = blocks_of(id, VALUES);
        printf("%-8s", info->name);
        for (int level = 0; level <= (int)strata__cpu_best_level(); level++) {
            double best = 0;
            for (int r = 0; r < REPEATS; r++) {
                double start = seconds(CLOCK_THREAD_CPUTIME_ID);
                for (int i = 0; i < ROUNDS; i++)
                    strata__decode_row_level((strata__cpu_level)level, id, blocks, VALUES, out);
                double rate = 1e-9 * ROUNDS * VALUES / (seconds(CLOCK_THREAD_CPUTIME_ID) - start);
                best = rate > best ? rate : best;
            }
            printf("  %s %6.2f (%5.2f)", levels[level], best,
                   best * info->block_bytes / info->block_values);
        }
        printf("\n");
        free(blocks);
    }
    free(out);
}

/* G values/s of one row times `outputs` weight rows, again and again. */
static double dots_rate(int level, uint32_t id, const uint8_t *weights, uint32_t outputs,
                        const float *row, float *sums)
{
    enum { INPUTS = 1024, VALUES = 1 << 25, REPEATS = 5 };
    const strata__format_info *info = strata__format_find(id);
    const uint64_t row_bytes = INPUTS / info->block_values * info->block_bytes;
    const int rounds = (int)(VALUES / INPUTS / outputs) + 1;
    double best = 0;
    for (int r = 0; r < REPEATS; r++) {
        double start = seconds(CLOCK_THREAD_CPUTIME_ID);
        for (int i = 0; i < rounds; i++)
            strata__dots_level((strata__cpu_level)level, id, weights, row_bytes, INPUTS, outputs,
                               row, sums);
        double rate = 1e-9 * rounds * outputs * INPUTS / (seconds(CLOCK_THREAD_CPUTIME_ID) - start);
        best = rate > best ? rate : best;
    }
    return best;
}

static void bench_dots(void)
{
    enum { INPUTS = 1024, NEAR = 256, FAR = 1 << 17 };
    float *row = memory(INPUTS * sizeof *row), *sums = memory(FAR * sizeof *sums);
    printf(
        "\ndots, one thread: G values/s (GB/s of blocks), %d weight rows; %d at the best level\n",
        NEAR, FAR);
    for (uint32_t id = 0; id < STRATA__FORMAT_LIMIT; id++) {
        const strata__format_info *info = strata__format_find(id);
        if (!info)
            continue;
        const double bytes = (double)info->block_bytes / info->block_values;
        uint8_t *weights = blocks_of(id, (uint64_t)INPUTS * FAR);
        int level = 0;
        double rate;
        printf("%-8s", info->name);
        for (; level <= (int)strata__cpu_best_level(); level++) {
            rate = dots_rate(level, id, weights, NEAR, row, sums);
            printf("  %s %6.2f (%5.2f)", levels[level], rate, rate * bytes);
        }
        rate = dots_rate(level - 1, id, weights, FAR, row, sums);
        printf("  far %6.2f (%5.2f)\n", rate, rate * bytes);
        free(weights);
    }
    free(row);
    free(sums);
}

static void bench_tile(void)
{
    enum { K = STRATA__K_STEP, STRIDE = K + 16, REPEATS = 5 };
    float *weights = memory(STRATA__TILE_OUTPUTS * STRIDE * sizeof *weights);
    float *packed = memory(K * STRATA__TILE_ROWS * sizeof *packed);
    float *sums = memory(STRATA__TILE_OUTPUTS * STRATA__TILE_ROWS * sizeof *sums);
    printf("\nproduct tile, one thread: GFLOP/s\n");
    for (int level = 0; level <= (int)strata__cpu_best_level(); level++)
        for (uint32_t width = 8; width <= STRATA__TILE_ROWS; width *= 2) {
            const strata__cpu_code *code = strata__cpu_code_of((strata__cpu_level)level);
            double best = 0;
            for (int r = 0; r < REPEATS; r++) {
                const int rounds = 100000 / (int)width;
                double start = seconds(CLOCK_THREAD_CPUTIME_ID);
                for (int i = 0; i < rounds; i++)
                    code->product(packed, width, weights, STRIDE, K, sums, width, 0);
                double rate = 2e-9 * STRATA__TILE_OUTPUTS * K * width * rounds /
                              (seconds(CLOCK_THREAD_CPUTIME_ID) - start);
                best = rate > best ? rate : best;
            }
            printf("%-6s %2u rows: %6.1f\n", levels[level], width, best);
        }
    free(weights);
    free(packed);
    free(sums);
}

enum {
    ROWS = 512,
    LAYERS = 8,
    D = 1024,
    HEADS = 16,
    KV_HEADS = 4,
    HEAD = 64,
    QKV = (HEADS + 2 * KV_HEADS) * HEAD,
    EXPERTS = 32,
    TOP_K = 4,
    FF = 512,
    PAIRS = ROWS * TOP_K,
    PAGE = 256,
    SCRATCH_ROWS = 256
};

static const uint64_t scratch_bytes = (uint64_t)SCRATCH_ROWS * D * sizeof(float);

typedef struct prompt {
    strata__kernels *kernels;
    float *x, *normed, *qkv, *attended, *inverse, *gain, *logits, *weights, *h, *y, *frequencies;
    uint8_t *dense, *experts;
    const void *blobs[3][EXPERTS];
    int32_t *ids;
    uint32_t *offsets, *sorted_row, *sorted_index;
    void *k, *v, *scratch;
    strata__segment segment;
    int32_t page_table[2];
    uint32_t format;
} prompt;

static strata_status run_at_once(strata__task_queue *queue, strata__task_fn fn,
                                 const void *arguments, uint64_t bytes)
{
    _Alignas(16) char copy[STRATA__TASK_BYTES];
    (void)queue;
    memcpy(copy, arguments, bytes);
    fn(copy);
    return STRATA_OK;
}

static strata__task_queue stream = {run_at_once};

static void fill_prompt(prompt *p)
{
    uint32_t state = 1;
    for (int i = 0; i < ROWS * D; i++) {
        state = state * 1664525 + 1013904223;
        p->x[i] = (float)(int32_t)state * 0x1p-31f;
    }
    for (int i = 0; i < D; i++)
        p->gain[i] = 1;
    for (int i = 0; i < HEAD / 2; i++)
        p->frequencies[i] = powf(1e6f, -2.0f * (float)i / HEAD);
}

static void make_prompt(prompt *p, strata__kernels *kernels, uint32_t format)
{
    uint64_t matrix = (uint64_t)D * FF, bytes = 0;
    *p = (prompt){.kernels = kernels, .format = format, .page_table = {0, 1}};
    strata__format_row_bytes(format, matrix, &bytes);
    p->dense = blocks_of(STRATA__Q8_0, (uint64_t)D * (QKV + D));
    p->experts = blocks_of(format, matrix * 3 * EXPERTS);
    for (int m = 0; m < 3; m++)
        for (int e = 0; e < EXPERTS; e++)
            p->blobs[m][e] = p->experts + (uint64_t)(m * EXPERTS + e) * bytes;
    p->x = memory(ROWS * D * 4);
    p->normed = memory(ROWS * D * 4);
    p->qkv = memory(ROWS * QKV * 4);
    p->attended = memory(ROWS * D * 4);
    p->inverse = memory(ROWS * 4);
    p->gain = memory(D * 4);
    p->frequencies = memory(HEAD / 2 * 4);
    p->logits = memory(ROWS * EXPERTS * 4);
    p->weights = memory(PAIRS * 4);
    p->h = memory(PAIRS * FF * 4);
    p->y = memory(PAIRS * D * 4);
    p->ids = memory(PAIRS * 4);
    p->offsets = memory((EXPERTS + 1) * 4);
    p->sorted_row = memory(PAIRS * 4);
    p->sorted_index = memory(PAIRS * 4);
    p->k = memory((size_t)2 * PAGE * KV_HEADS * HEAD * 2);
    p->v = memory((size_t)2 * PAGE * KV_HEADS * HEAD * 2);
    p->scratch = memory(scratch_bytes);
    p->segment = (strata__segment){0, ROWS, 0, 0};
    fill_prompt(p);
}

static void free_prompt(prompt *p)
{
    void *all[] = {p->x,          p->normed,       p->qkv,     p->attended, p->inverse,
                   p->gain,       p->frequencies,  p->logits,  p->weights,  p->h,
                   p->y,          p->ids,          p->offsets, p->k,        p->v,
                   p->sorted_row, p->sorted_index, p->scratch, p->dense,    p->experts};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static strata_status run_norm(prompt *p)
{
    strata__norm_args a = {p->x, p->gain, {p->normed, NULL}, p->inverse, ROWS, D, 1e-6f};
    return p->kernels->ops->norm(p->kernels, &stream, &a);
}

static strata_status run_qkv_product(prompt *p)
{
    strata__dense_args a = {.weight = {p->dense, NULL, STRATA__Q8_0, D, QKV},
                            .in = {p->normed, NULL},
                            .out_f32 = p->qkv,
                            .scratch = {p->scratch, scratch_bytes},
                            .rows = ROWS,
                            .out_stride = QKV,
                            .mode = STRATA__DENSE_STORE_F32,
                            .alpha = 1};
    return p->kernels->ops->dense(p->kernels, &stream, &a);
}

static strata__kv_view cache(const prompt *p)
{
    return (strata__kv_view){p->k,
                             p->v,
                             p->page_table,
                             (uint64_t)PAGE * KV_HEADS * HEAD * 2,
                             2,
                             PAGE,
                             KV_HEADS,
                             HEAD,
                             STRATA__KV_F16,
                             0};
}

static strata_status run_rope(prompt *p)
{
    strata__qkv_args a = {.q = p->qkv,
                          .k = p->qkv + HEADS * HEAD,
                          .v = p->qkv + (HEADS + KV_HEADS) * HEAD,
                          .q_norm = p->gain,
                          .k_norm = p->gain,
                          .rope_frequencies = p->frequencies,
                          .q_out = {p->normed, NULL},
                          .kv = cache(p),
                          .segments = &p->segment,
                          .segment_count = 1,
                          .rows = ROWS,
                          .qkv_stride = QKV,
                          .heads = HEADS,
                          .rope_width = HEAD,
                          .rope_style = STRATA__ROPE_NEOX,
                          .qk_norm = STRATA__QK_NORM_HEAD_BEFORE_ROPE,
                          .rope_magnitude = 1,
                          .eps = 1e-6f};
    return p->kernels->ops->qkv(p->kernels, &stream, &a);
}

static strata_status run_attention(prompt *p)
{
    strata__attention_args a = {.q = {p->normed, NULL},
                                .out = {p->attended, NULL},
                                .kv = cache(p),
                                .segments = &p->segment,
                                .segment_count = 1,
                                .rows = ROWS,
                                .max_segment_rows = ROWS,
                                .max_kv_tokens = ROWS,
                                .heads = HEADS,
                                .scale = 0.125f};
    return p->kernels->ops->attention(p->kernels, &stream, &a);
}

static strata_status run_out_product(prompt *p)
{
    strata__dense_args a = {.weight = {p->dense, NULL, STRATA__Q8_0, HEADS * HEAD, D},
                            .in = {p->attended, NULL},
                            .out_f32 = p->y,
                            .scratch = {p->scratch, scratch_bytes},
                            .rows = ROWS,
                            .out_stride = D,
                            .mode = STRATA__DENSE_ADD_F32,
                            .alpha = 1};
    return p->kernels->ops->dense(p->kernels, &stream, &a);
}

static strata_status run_router(prompt *p)
{
    strata__router_args a = {.x = p->x,
                             .inv_rms = p->inverse,
                             .norm = p->gain,
                             .weight = {p->x, NULL, STRATA__F32, D, EXPERTS},
                             .scratch = {p->scratch, scratch_bytes},
                             .logits = p->logits,
                             .rows = ROWS};
    return p->kernels->ops->router(p->kernels, &stream, &a);
}

static strata_status run_select(prompt *p)
{
    strata__select_args a = {.logits = p->logits,
                             .ids = p->ids,
                             .weights = p->weights,
                             .rows = ROWS,
                             .experts = EXPERTS,
                             .top_k = TOP_K,
                             .gating = STRATA__GATING_SOFTMAX,
                             .normalise = 1,
                             .weight_scale = 1};
    /* Ids as a balanced router gives them, whatever the logits are. */
    strata_status status = p->kernels->ops->select(p->kernels, &stream, &a);
    for (uint32_t i = 0; i < PAIRS; i++)
        p->ids[i] = (int32_t)((i / TOP_K * 5 + i % TOP_K * 8) % 8 + i % TOP_K * 8);
    return status;
}

static strata_status run_group(prompt *p)
{
    strata__group_args a = {.ids = p->ids,
                            .offsets = p->offsets,
                            .sorted_row = p->sorted_row,
                            .sorted_index = p->sorted_index,
                            .rows = ROWS,
                            .top_k = TOP_K,
                            .experts = EXPERTS};
    return p->kernels->ops->group(p->kernels, &stream, &a);
}

static strata__expert_range whole_range(const prompt *p)
{
    return (strata__expert_range){p->offsets, NULL, 0, PAIRS, 0, EXPERTS - 1};
}

static strata_status run_gate_up(prompt *p)
{
    strata__gate_up_args a = {.gate = {p->blobs[0], NULL, p->format, D, FF, 0},
                              .up = {p->blobs[1], NULL, p->format, D, FF, 0},
                              .range = whole_range(p),
                              .sorted_row = p->sorted_row,
                              .in = {p->normed, NULL},
                              .h = {p->h, NULL},
                              .scratch = {p->scratch, scratch_bytes},
                              .path = STRATA__PATH_FP16};
    return p->kernels->ops->gate_up(p->kernels, &stream, &a);
}

static strata_status run_down(prompt *p)
{
    strata__down_args a = {.down = {p->blobs[2], NULL, p->format, FF, D, 0},
                           .range = whole_range(p),
                           .h = {p->h, NULL},
                           .y = p->y,
                           .scratch = {p->scratch, scratch_bytes},
                           .path = STRATA__PATH_FP16};
    return p->kernels->ops->down(p->kernels, &stream, &a);
}

static strata_status run_combine(prompt *p)
{
    strata__combine_args a = {p->y,  p->weights, p->sorted_index, p->attended, ROWS, TOP_K, D, 0,
                              PAIRS, 1};
    return p->kernels->ops->combine(p->kernels, &stream, &a);
}

static const struct {
    const char *name;
    strata_status (*run)(prompt *p);
    double flops; /* of products */
} operations[] = {
    {"norm", run_norm, 0},
    {"qkv product", run_qkv_product, 2.0 * ROWS *D *QKV},
    {"rope and cache", run_rope, 0},
    {"attention", run_attention, 2.0 * ROWS *ROWS *HEADS *HEAD},
    {"out product", run_out_product, 2.0 * ROWS *HEADS *HEAD *D},
    {"norm", run_norm, 0},
    {"router", run_router, 2.0 * ROWS *D *EXPERTS},
    {"select", run_select, 0},
    {"group", run_group, 0},
    {"gate and up", run_gate_up, 4.0 * PAIRS *D *FF},
    {"down", run_down, 2.0 * PAIRS *D *FF},
    {"combine", run_combine, 0},
};

static void bench_prompt(strata__kernels *kernels, uint32_t format)
{
    enum { COUNT = sizeof operations / sizeof operations[0], REPEATS = 7 };
    double best[COUNT], busy[COUNT], total = 0, total_busy = 0;
    uint32_t threads = strata__cpu_of(kernels)->threads;
    prompt p;
    make_prompt(&p, kernels, format);
    for (int i = 0; i < COUNT; i++)
        best[i] = busy[i] = 1e9;
    for (int r = 0; r < REPEATS; r++)
        for (int i = 0; i < COUNT; i++) {
            double start = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
            if (operations[i].run(&p))
                exit(1);
            double time = seconds(CLOCK_MONOTONIC) - start;
            cpu = (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) / threads;
            best[i] = time < best[i] ? time : best[i];
            busy[i] = cpu < busy[i] ? cpu : busy[i];
        }
    printf("\nprompt of %d tokens, experts %s: ms a layer, processor ms / threads (GFLOP/s)\n",
           ROWS, strata__format_name(format));
    for (int i = 0; i < COUNT; i++) {
        total += best[i];
        total_busy += busy[i];
        printf("  %-16s %7.3f %7.3f", operations[i].name, 1e3 * best[i], 1e3 * busy[i]);
        if (operations[i].flops > 0)
            printf("  (%.1f, %.1f)", 1e-9 * operations[i].flops / best[i],
                   1e-9 * operations[i].flops / busy[i]);
        printf("\n");
    }
    printf("  %-16s %7.3f %7.3f, %d layers: %.0f (%.0f) tokens/s\n", "layer", 1e3 * total,
           1e3 * total_busy, LAYERS, ROWS / (LAYERS * total), ROWS / (LAYERS * total_busy));
    free_prompt(&p);
}

int main(int argc, char **argv)
{
    static const uint32_t formats[] = {STRATA__Q4_K, STRATA__IQ2_XS, STRATA__F16};
    uint32_t threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : strata__pool_cores();
    strata__cpu_kernels_options options = {strata__allocator_default(), threads, 0};
    strata__kernels *kernels;
    print_machine(threads);
    bench_decoders();
    bench_dots();
    bench_tile();
    if (strata__cpu_kernels_create(&options, &kernels))
        return 1;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        bench_prompt(kernels, formats[i]);
    kernels->ops->destroy(kernels);
    return 0;
}
