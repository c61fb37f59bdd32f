/* SPDX-License-Identifier: MIT */
/* Writes the seeds of corpus/layout: fuzz-make-layout-corpus FOLDER */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "layout_model.h"

static strata__layout_input input_of(uint32_t seed, const uint8_t *layer_paths)
{
    strata__layout_input input = {.geometry = fuzz_geometry};
    strata__layout_facts *f = &input.facts;
    f->compute_capability = seed == 0 ? 0 : 86;
    f->host_addressable = seed == 0;
    f->activation_bytes = seed == 0 ? 4 : 2;
    f->row_scale_bytes = seed == 0 ? 0 : 4;
    f->decode_bytes_per_value = f->activation_bytes;
    f->alignment_bytes = seed == 0 ? 64 : 256;
    f->link_bytes_per_second = 25e9;
    f->link_latency_seconds = 4e-6;
    f->staging_bytes_per_second = 8e9;
    f->memory_bytes_per_second = 1e12;
    f->launch_seconds = 4e-6;
    f->dense_flops = f->attention_flops = 5e13;
    f->round_outputs = 1e5 * seed;
    for (uint32_t i = 0; i < STRATA__LAYOUT_PATH_COUNT; ++i) {
        f->coverage[i] = seed == 2 && i == STRATA__LAYOUT_FUSED ? 1u << STRATA__F16 : UINT64_MAX;
        f->path_flops[i] = 1e13;
        f->path_half_rows[i] = 32;
    }
    input.request.context_tokens = 600;
    input.request.sequences = 1 + seed;
    input.request.path = seed == 2 ? STRATA__LAYOUT_FUSED : STRATA__LAYOUT_PATH_AUTO;
    input.request.expert_source = 1;
    input.request.experts = seed == 0 ? 0 : seed;
    input.request.decode_rows = seed;
    input.request.borrow = seed == 2;
    input.request.kv_tokens = seed == 2 ? 700 : 0;
    input.request.layer_paths = seed == 1 ? layer_paths : NULL;
    return input;
}

int main(int argc, char **argv)
{
    static const uint8_t layer_paths[] = {STRATA__LAYOUT_PATH_AUTO, STRATA__LAYOUT_FP16,
                                          STRATA__LAYOUT_PATH_AUTO};
    for (uint32_t seed = 0; seed < 3 && argc > 1; ++seed) {
        strata__layout_input input = input_of(seed, layer_paths);
        static uint8_t data[4096];
        char path[512];
        strata__layout *layout;
        uint64_t bytes;
        FILE *file;
        if (strata__layout_plan(strata__allocator_default(), &input, &layout, NULL) != STRATA_OK) {
            fprintf(stderr, "%s\n", strata__error_text());
            return 1;
        }
        bytes = strata__layout_save(layout, FUZZ_LAYOUT_FINGERPRINT, data, sizeof data);
        snprintf(path, sizeof path, "%s/%u", argv[1], seed);
        file = fopen(path, "wb");
        if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0)
            return 1;
        strata__layout_destroy(layout);
    }
    return argc > 1 ? 0 : 2;
}
