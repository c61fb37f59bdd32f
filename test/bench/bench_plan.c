/* SPDX-License-Identifier: MIT */
/* Time of planning a model of 94 layers, 128 experts each, for several budgets and prompts. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/error.h"
#include "base/format.h"
#include "layout/layout.h"

enum { LAYERS = 94, TIMES = 25 };

/* Of this process: the machine may be busy. */
static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static void set_facts(strata__layout_facts *f)
{
    f->compute_capability = 90;
    f->activation_bytes = 2;
    f->row_scale_bytes = 4;
    f->decode_bytes_per_value = 2;
    f->alignment_bytes = 256;
    f->group_scratch_bytes_per_expert = 512;
    f->link_bytes_per_second = 55e9;
    f->link_latency_seconds = 2.6e-6;
    f->staging_bytes_per_second = 9e9;
    f->memory_bytes_per_second = 4.1e12;
    f->launch_seconds = 3e-6;
    f->dense_flops = 6e14;
    f->attention_flops = 3.3e14;
    for (uint32_t i = 0; i < STRATA__LAYOUT_PATH_COUNT; ++i) {
        f->coverage[i] = UINT64_MAX;
        f->path_flops[i] = 1e14 * (i + 1);
        f->path_half_rows[i] = 32 * i;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int measure(const strata__layout_input *input)
{
    double elapsed[TIMES];
    for (int i = 0; i < TIMES; ++i) {
        strata__layout *layout;
        double start = milliseconds();
        if (strata__layout_plan(strata__allocator_default(), input, &layout, NULL) != STRATA_OK) {
            fprintf(stderr, "%s\n", strata__error_text());
            return 1;
        }
        elapsed[i] = milliseconds() - start;
        strata__layout_destroy(layout);
    }
    qsort(elapsed, TIMES, sizeof elapsed[0], compare);
    printf("budget %5.1f GiB, prompt %6llu: median %.2f ms, largest %.2f ms\n",
           (double)input->request.device_budget_bytes / (1 << 30),
           (unsigned long long)input->request.prompt_tokens, elapsed[TIMES / 2],
           elapsed[TIMES - 1]);
    return 0;
}

int main(void)
{
    static const uint64_t prompts[] = {512, 4096, 32768, 131072};
    static strata__layout_layer layers[LAYERS];
    uint64_t weights[] = {8ull << 30};
    strata__layout_input input = {
        .geometry = {.layers = layers,
                     .tensor_bytes = weights,
                     .layer_count = LAYERS,
                     .tensor_count = 1,
                     .width = 4096,
                     .vocabulary = 151936,
                     .experts = 128,
                     .top_k = 8,
                     .residual_streams = 1},
        .request = {.context_tokens = 131072,
                    .path = STRATA__LAYOUT_PATH_AUTO,
                    .expert_source = 1,
                    .kv_format = STRATA__LAYOUT_KV_Q8_0},
    };
    int failed = 0;
    set_facts(&input.facts);
    for (uint32_t i = 0; i < LAYERS; ++i) {
        /* Formats that change from layer to layer. */
        uint64_t bytes = 1536ull * 4096 / 256 * (i % 3 ? 82 : 66);
        layers[i] = (strata__layout_layer){.heads = 64,
                                           .kv_heads = 4,
                                           .head_size = 128,
                                           .expert_width = 1536,
                                           .dense_bytes = 90u << 20,
                                           .gate_format = i % 3 ? STRATA__IQ2_S : STRATA__IQ2_XXS,
                                           .gate_bytes = bytes,
                                           .up_bytes = bytes,
                                           .down_bytes = bytes};
    }
    for (uint64_t gib = 22; gib <= 112 && !failed; gib += 30)
        for (uint32_t i = 0; i < sizeof prompts / sizeof prompts[0] && !failed; ++i) {
            input.request.device_budget_bytes = gib << 30;
            input.request.prompt_tokens = prompts[i];
            failed = measure(&input);
        }
    return failed;
}
