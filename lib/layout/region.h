/* SPDX-License-Identifier: MIT */
/* Inside lib/layout: the three regions, each carved by a cursor that only moves on. */
#ifndef STRATA_LAYOUT_REGION_H
#define STRATA_LAYOUT_REGION_H

#include "layout/demand.h"

/* The end of what has been carved; UINT64_MAX once a size has overflowed. */
typedef struct strata__carver {
    uint64_t end;
    uint64_t alignment;
} strata__carver;

/* Returns the offset of `bytes` more bytes. */
uint64_t strata__layout_carve(strata__carver *carver, uint64_t bytes);

/*
 * Persistent buffers of a work region and behind them an arena: sets offsets and arena_offset, and
 * returns the number of buffers, at most STRATA__DEMANDS_MAX.
 */
uint32_t strata__layout_place_work(const strata__layout_problem *problem,
                                   const strata__layout_spec *spec, uint64_t arena_bytes,
                                   strata__carver *carver, strata__layout_buffer *out,
                                   uint64_t *arena_offset);

/* Work of decoding: what request.decode_rows ask for. */
void strata__layout_decode_spec(const strata__layout_problem *problem, strata__layout_spec *spec);

/*
 * What a session holds before work of decoding and expert cache. With `layout`, also writes the
 * places of tensors, pages and states, and session buffers.
 */
void strata__layout_place_session(const strata__layout_problem *problem, strata__carver *carver,
                                  strata__layout *layout);

/*
 * The expert cache, with the places of the layers' residents; `lent` more bytes belong to a loan.
 */
void strata__layout_place_cache(const strata__layout_problem *problem, const uint32_t *resident,
                                uint64_t lent, strata__carver *carver, strata__layout *layout);

/*
 * Bytes of the experts that have to be copied to the device for a prompt: 0 where they are in
 * place.
 */
uint64_t strata__layout_missing_bytes(const strata__layout_problem *problem,
                                      const uint32_t *resident);

/* Page-locked memory, and how experts that are not resident get to the device. */
typedef struct strata__layout_host {
    uint64_t bytes; /* of the host region */
    uint64_t pinned_bytes;
    uint64_t staged_bytes;
    double seconds_per_byte; /* over both */
    uint32_t buffer_count;
    uint32_t fits; /* 0: the host budget does not even hold the region */
    strata__layout_buffer buffers[STRATA__DEMANDS_MAX];
} strata__layout_host;

/* The host region of decoding, which has no experts; `out` or NULL. Returns its bytes. */
uint64_t strata__layout_place_decode_host(const strata__layout_problem *problem,
                                          strata__layout_host *out);

void strata__layout_place_host(const strata__layout_problem *problem,
                               const strata__layout_spec *spec, uint64_t missing_bytes,
                               uint64_t group_bytes, strata__layout_host *out);

#endif
