/* SPDX-License-Identifier: MIT */
/* A plan read out for the tool, and its two outputs. */
#ifndef STRATA_TOOL_PLAN_VIEW_H
#define STRATA_TOOL_PLAN_VIEW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <strata/strata.h>

#include "tool.h"

/* A configuration with its buffers. */
typedef struct plan_configuration {
    strata_plan_configuration info;
    strata_plan_buffer *buffers;
} plan_configuration;

/* Everything a plan says. Offsets of device buffers count from the start of the device memory. */
typedef struct plan_view {
    const char *pack_path;
    strata_plan_info info;
    strata_plan_band *bands;
    strata_plan_layer *layers;          /* [layers][bands] */
    strata_plan_buffer *persistent;     /* behind them those of decoding */
    plan_configuration *configurations; /* the same */
    uint64_t prefill_offset;            /* where the region of the prefill begins */
    bool is_cpu;                        /* the CPU's: device memory is memory like any other */
} plan_view;

/* Reads a plan; the caller frees the view also on failure. */
strata_status plan_view_read(const strata_plan *plan, const char *pack_path, plan_view *view);
void plan_view_free(plan_view *view);

const strata_plan_layer *plan_view_layer(const plan_view *view, uint32_t layer, uint32_t band);

/* Where a buffer lies in the device memory (host buffers: in their own region). */
uint64_t plan_view_offset(const plan_view *view, const strata_plan_buffer *buffer);

/* With what could not be saved of it. */
void plan_view_json(const plan_view *view, const failure *unsaved, FILE *out);
void plan_view_text(const plan_view *view, FILE *out);

/* Rows are stages, columns the addresses of the arena, letters the buffers that live there. */
void plan_picture(const plan_view *view, const plan_configuration *configuration, FILE *out);

#endif
