# SPDX-License-Identifier: MIT
"""Faults of lib/layout: name -> file, text that is there once, text in its place."""

MUTANTS = {
    # What engines of this kind got wrong.
    "any for all: the first layer's path sizes the buffers of all": (
        "arena.c", "uint32_t band = i % bands, path = paths[i];",
        "uint32_t band = i % bands, path = paths[band];"),
    "all MMQ for all: a layer that MMQ lacks is no longer fused": (
        "path.c", "else if (!strata__layout_path_covers(&p->facts, wanted, layer))",
        "else if (!strata__layout_path_covers(&p->facts, wanted, layer) ||\n"
        "!strata__layout_path_covers(&p->facts, STRATA__LAYOUT_MMQ, layer))"),
    "floor constant: rows of experts never more than 1023 tokens'": (
        "demand.c", "uint64_t pairs = (uint64_t)rows * problem->geometry.top_k;\n    return",
        "uint64_t pairs = (uint64_t)rows * problem->geometry.top_k;\n"
        "if (rows > 1023) pairs = 1023ull * problem->geometry.top_k;\n    return"),
    "floor constant: a chunk's rows are 64 at most": (
        "demand.c", "static uint64_t chunk_rows(const ctx *c)\n{\n    return c->rows;",
        "static uint64_t chunk_rows(const ctx *c)\n{\n    return c->rows > 64 ? 64 : c->rows;"),
    "counted but not carved: the second buffer lies on the third": (
        "region.c", "out[i].offset = strata__layout_carve(carver, out[i].bytes);\n    *arena",
        "out[i].offset = i == 1 ? carver->end : strata__layout_carve(carver, out[i].bytes);\n"
        "    *arena"),
    "carved but not counted: the search forgets the logits": (
        "arena.c", "for (uint32_t i = 0; i <= count; ++i) {", "for (uint32_t i = 0; i < count; ++i) {"),
    "carved but not counted: the search forgets the smallest band": (
        "arena.c", "for (uint32_t i = 0; i <= count; ++i) {", "for (uint32_t i = 1; i <= count; ++i) {"),
    "two formulas: the normalised copy also in the fused read": (
        "demand.c", "return g->residual_streams > 1 && !g->fused_residual_read ?",
        "return g->residual_streams > 1 ?"),
    "two formulas: the stream scales forgotten": (
        "demand.c", "return streams > 1 ? 4ull * streams : 0;", "return 0ull * streams;"),
    "source flag differs: rings are planned without a source": (
        "candidates.c", "if (!p->copies || !p->request.expert_source ||", "if (!p->copies ||"),
    "source flag differs: built without asking for the source": (
        "build.c", "if (*out_streamed && !p->request.expert_source)", "if (0)"),
    "options read late: exceptions stay the caller's": (
        "build.c", "memcpy(layer_paths, p->request.layer_paths, layout->layer_count);\n"
        "    layout->request.layer_paths = layer_paths;",
        "memcpy(layer_paths, p->request.layer_paths, layout->layer_count);"),
    "threshold read late: a band ends a row early": (
        "find.c", "rows > work->bands[band].rows", "rows >= work->bands[band].rows"),
    "two groups do not fit the ring of decoding": (
        "build.c", "layout->group_bytes = ring->bytes / 2;", "layout->group_bytes = ring->bytes;"),
    "ring in slots": (
        "build.c", "spec->ring_bytes = choice->ring_bytes ? choice->ring_bytes : least;",
        "spec->ring_bytes = choice->ring_bytes ? choice->ring_bytes / 65536 *"
        " problem->largest_slot_bytes : least;"),
    "ring of one group": ("build.c", "return 2 * most;", "return most;"),
    "greedy: the first chunk that fits is taken": (
        "search.c", "        bounds[next] = UINT64_MAX;\n", "        break;\n"),
    # Refusals.
    "a row too many passes": ("find.c", "if (rows <= capacity)", "if (rows <= capacity + 1)"),
    "a buffer that is not there passes": (
        "find.c", "uint64_t capacity = 0;", "uint64_t capacity = UINT64_MAX;"),
    "direct for any rows": (
        "path.c", "return path != STRATA__LAYOUT_DIRECT || rows <= STRATA__DIRECT_ROWS;",
        "return path != STRATA__LAYOUT_DIRECT || rows;"),
    "any rows of decoding": ("problem.c", '{"decode rows", r->decode_rows, 0, STRATA__DIRECT_ROWS}',
                             '{"decode rows", r->decode_rows, 0, max_chunk}'),
    "coverage of the gate alone": ("path.c", "for (uint32_t i = 0; i < 3; ++i)",
                                   "for (uint32_t i = 0; i < 1; ++i)"),
    "compute capability not looked at": (
        "path.c", "if (facts->compute_capability < needs[path].compute_capability)", "if (0)"),
    "a path vector is not checked": (
        "build.c", "status = strata__layout_paths_check(p, spec, paths);", "status = STRATA_OK;"),
    # Lifetimes.
    "ids written over by later tiles of the router": (
        "demand.c", "{B(EXPERT_IDS), S(FFN_NORM), S(GROUP)", "{B(EXPERT_IDS), S(SELECT), S(SELECT)"),
    "weights gone after grouping": (
        "demand.c", "{B(EXPERT_WEIGHTS), S(FFN_NORM), S(COMBINE)",
        "{B(EXPERT_WEIGHTS), S(FFN_NORM), S(GROUP)"),
    "input of the experts gone after the first launch": (
        "demand.c", "{B(FFN_XN), S(FFN_NORM), S(COMBINE)", "{B(FFN_XN), S(FFN_NORM), S(EXPERT_UP)"),
    "sorted rows gone after the first launch": (
        "demand.c", "{B(SORTED_ROW), S(GROUP), S(COMBINE)", "{B(SORTED_ROW), S(GROUP), S(EXPERT_UP)"),
    "h gone before down": (
        "demand.c", "{B(EXPERT_H), S(EXPERT_UP), S(EXPERT_DOWN)",
        "{B(EXPERT_H), S(EXPERT_UP), S(EXPERT_UP)"),
    "y gone before it is added": (
        "demand.c", "{B(EXPERT_Y), S(EXPERT_DOWN), S(COMBINE)",
        "{B(EXPERT_Y), S(EXPERT_UP), S(EXPERT_UP)"),
    "buffers that meet in one stage share bytes": (
        "overlay.c", "return a->first_stage <= b->last_stage && b->first_stage <= a->last_stage;",
        "return a->first_stage < b->last_stage && b->first_stage < a->last_stage;"),
    "places not aligned": (
        "overlay.c", "return (bytes + alignment - 1) & ~(alignment - 1);",
        "return bytes + 0 * alignment;"),
    "nothing shares bytes": (
        "overlay.c", "            if (!meet(b, other))\n                continue;\n", ""),
    # Sizes.
    "row scales forgotten": (
        "demand.c", "return c->problem->facts.row_scale_bytes;", "return 0 * c->rows;"),
    "scratch below the least": (
        "demand.c", "return wanted < step ? step : wanted;", "return wanted ? wanted : 16;"),
    "gate and up rows for no path": (
        "demand.c", "return needs ? 8ull * c->layer->expert_width : 0;", "return 0ull * needs;"),
    "quantised rows for MMQ forgotten": (
        "demand.c", "INT8_PATHS = 1 << STRATA__LAYOUT_FUSED | 1 << STRATA__LAYOUT_MMQ,",
        "INT8_PATHS = 1 << STRATA__LAYOUT_FUSED,"),
    "segments of one sequence": ("demand.c", "return 2 * (sequences - 1) + dense",
                                 "return 0 * (sequences - 1) + dense"),
    "no flag behind the host's offsets": (
        "demand.c", "return (offsets_bytes(c) + 4 + 63) / 64 * 64;", "return offsets_bytes(c);"),
    "values on the keys' pages": (
        "region.c", "v = strata__layout_carve(carver, bytes);", "v = k;"),
    "page table of one sequence": (
        "region.c", "table_bytes = 4ull * problem->pages_per_sequence * problem->request.sequences;",
        "table_bytes = 4ull * problem->pages_per_sequence;"),
    "one copy of recurrent state": (
        "region.c", "uint64_t bytes = 2 * problem->geometry.layers[i].state_bytes",
        "uint64_t bytes = problem->geometry.layers[i].state_bytes"),
    "q8_0 pages without scales": (
        "region.c", "return values + 2 * ((values + 31) / 32);", "return values;"),
    "residents not counted": (
        "region.c", "strata__layout_carve(carver, resident[i] * c->slot_bytes);", "carver->end;"),
    "a loan outside the cache": (
        "build.c", "p->request.borrow ? prompt.end : 0", "p->request.borrow ? 0 : 0"),
    "overflow not seen": (
        "region.c", "        carver->end = UINT64_MAX;\n", "        carver->end = 0;\n"),
    # Planner.
    "a smaller expert of a later layer goes before": (
        "candidates.c", "        if (left == bytes)\n            bytes = 0;", "        if (0)\n"
        "            bytes = 0;"),
    "refill of a loan costs nothing": (
        "build.c", "copies.refill_bytes = layout->loan_bytes < missing ?",
        "copies.refill_bytes = 0 ?"),
    "the ring does not hold copies back": (
        "predict.c", "        if (m > 0)\n", "        if (0)\n"),
    "the ring holds copies back from the last layer alone": (
        "predict.c", "latest = larger(latest, start[m] +", "latest = larger(0, start[m] +"),
    "later chunks find an empty ring": (
        "predict.c", "cold ? 0 : ring * spb;", "cold ? 0 : 0 * ring * spb;"),
    "a chunk takes less than its copies": (
        "predict.c", "cold ? end : s->link_seconds);", "cold ? end : 0);"),
    "residents of the first layer are forgotten in the others": (
        "candidates.c", "slots -= p->classes[p->class_of[first++]].slot_bytes;",
        "slots -= p->classes[p->class_of[first]].slot_bytes;"),
    "launches that the ring cuts off cost nothing": (
        "predict.c", "s->layers[layer].launches * times->launch[step][layer];",
        "0 * s->layers[layer].launches;"),
    "small fillings of the scratch cost nothing": (
        "cost.c", "    if (path == STRATA__LAYOUT_DIRECT)\n        return all;\n", "    if (1)\n        return all;\n"),
    "the bound's launches are as long as the largest ring's": (
        "search.c", "    *least = planner->rings[first];", "    *least = planner->rings[last];"),
    "staging as fast as page-locked memory": (
        "region.c", "if (out->staged_bytes)", "if (0)"),
    "a bound too high": (
        "search.c", "return least_ns;", "return least_ns == UINT64_MAX ? least_ns : least_ns * 3 / 2;"),
    "arena larger than the level allows": (
        "candidates.c", "rows = bytes > base ? (bytes - base) / row_bytes : 0;",
        "rows = bytes > base ? (bytes - base) / row_bytes / 8 : 0;"),
    "a refusal names a budget that does not fit": (
        "refuse.c", "shortfall->needed_bytes = needed;", "shortfall->needed_bytes = needed - 4096;"),
    "a refusal names too long a context": (
        "refuse.c", "largest(planner, p->pages_per_sequence, pages_fit) *",
        "(largest(planner, p->pages_per_sequence, pages_fit) + 1) *"),
    # Saved layouts.
    "checksum not looked at": ("save.c", "if (sum != checksum(data, c->bytes))", "if (0)"),
    "a plan of another pack": ("save.c", "if (pack != fingerprint ||", "if ("),
    "totals not compared": (
        "save.c", "if (layout->session_bytes == sums->session_bytes &&",
        "if (1 || layout->session_bytes == sums->session_bytes &&"),
    "a plan for less memory": (
        "save.c", "if (layout->device_bytes > layout->budget_bytes)", "if (0)"),
    "residents not saved": (
        "save.c", "out->resident[i] = place.resident_count;", "out->resident[i] = 0;"),
}
