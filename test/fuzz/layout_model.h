/* SPDX-License-Identifier: MIT */
/* The model whose saved layouts are the seeds of corpus/layout. */
#ifndef TEST_FUZZ_LAYOUT_MODEL_H
#define TEST_FUZZ_LAYOUT_MODEL_H

#include "base/format.h"
#include "layout/layout.h"

enum { FUZZ_LAYOUT_FINGERPRINT = 7 };

static const strata__layout_layer fuzz_layers[] = {
    {.heads = 4, .kv_heads = 2, .head_size = 32, .ffn_width = 96, .dense_bytes = 50000},
    {.heads = 4,
     .kv_heads = 2,
     .head_size = 32,
     .expert_width = 64,
     .shared_width = 32,
     .shared_gated = 1,
     .gate_format = STRATA__Q8_0,
     .up_format = STRATA__Q8_0,
     .down_format = STRATA__Q4_0,
     .gate_bytes = 8704,
     .up_bytes = 8704,
     .down_bytes = 4608,
     .dense_bytes = 40000},
    {.heads = 4,
     .kv_heads = 2,
     .head_size = 32,
     .window = 64,
     .expert_width = 64,
     .gate_format = STRATA__F16,
     .up_format = STRATA__F16,
     .down_format = STRATA__F16,
     .gate_bytes = 16384,
     .up_bytes = 16384,
     .down_bytes = 16384,
     .dense_bytes = 40000},
};

static const uint64_t fuzz_tensors[] = {50000, 40000, 40000};

static const strata__layout_geometry fuzz_geometry = {.layers = fuzz_layers,
                                                      .tensor_bytes = fuzz_tensors,
                                                      .layer_count = 3,
                                                      .tensor_count = 3,
                                                      .width = 128,
                                                      .vocabulary = 500,
                                                      .experts = 8,
                                                      .top_k = 2,
                                                      .residual_streams = 1};

#endif
