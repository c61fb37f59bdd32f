/* SPDX-License-Identifier: MIT */
/* A caller's source of experts: the pack's own. */
#ifndef TEST_SUPPORT_EXPERT_SOURCE_H
#define TEST_SUPPORT_EXPERT_SOURCE_H

#include <stdint.h>

#include <strata/session.h>

#include "pack/pack.h"

typedef struct expert_source {
    const strata__layer *layers;
    uint32_t calls;
    uint32_t fail_at; /* the call that fails, from 1; 0: none */
} expert_source;

/* A strata_expert_fn; `user_data` is an expert_source. */
static inline strata_status give_expert(void *user_data, uint32_t layer, uint32_t expert,
                                        strata_expert_blob *out_blob)
{
    expert_source *s = user_data;
    const strata__layer *l = &s->layers[layer];
    if (++s->calls == s->fail_at)
        return STRATA_ERR_IO;
    out_blob->gate = (const uint8_t *)l->expert_gate.data + expert * l->expert_gate.stride_bytes;
    out_blob->up = (const uint8_t *)l->expert_up.data + expert * l->expert_up.stride_bytes;
    out_blob->down = (const uint8_t *)l->expert_down.data + expert * l->expert_down.stride_bytes;
    return STRATA_OK;
}

#endif
