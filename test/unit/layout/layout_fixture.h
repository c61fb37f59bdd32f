/* SPDX-License-Identifier: MIT */
/* Inputs for the tests of lib/layout, and what must hold for every layout. */
#ifndef TEST_LAYOUT_FIXTURE_H
#define TEST_LAYOUT_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/format.h"
#include "layout/layout.h"

enum { FIXTURE_MAX_LAYERS = 96 };

/* An input that owns its arrays. */
typedef struct layout_fixture {
    strata__layout_input input;
    strata__layout_layer layers[FIXTURE_MAX_LAYERS];
    uint64_t tensors[4];
    uint8_t layer_paths[FIXTURE_MAX_LAYERS];
} layout_fixture;

/* A set of formats as coverage has it; ends with UINT32_MAX. */
uint64_t formats(uint32_t first, ...);

/* Facts like those of an accelerator (compute capability 86) that covers everything. */
strata__layout_facts fixture_accelerator(void);

/* 48 layers, width 2560, 512 experts of 640, top-10: 34 IQ2_S, 11 IQ2_XXS, 3 IQ1_M (8, 13, 37). */
void fixture_mixed(layout_fixture *f);

/* A small accelerator model: `layers` layers with experts of IQ2_XS. */
void fixture_small(layout_fixture *f, uint32_t layers);

/* Anything within small bounds. */
void fixture_random(layout_fixture *f, uint64_t *seed);
uint64_t fixture_next(uint64_t *seed, uint64_t least, uint64_t most);

/* Fails the test, with the detail text, unless the status is STRATA_OK. */
void fixture_ok(strata_status status);
void fixture_text_has(const char *part);

strata__layout *fixture_build(const layout_fixture *f, const strata__layout_choice *choice);
strata__layout *fixture_plan(const layout_fixture *f);

/* Everything that holds for every layout. */
void fixture_check(const strata__layout *layout);

/* Both say the same, whatever their addresses. */
bool fixture_equal(const strata__layout *a, const strata__layout *b);

/* Bytes of a buffer that live in a stage at most, rounded up: no arena can be smaller. */
uint64_t fixture_live_bytes(const strata__layout_config *config, uint64_t alignment);

#endif
