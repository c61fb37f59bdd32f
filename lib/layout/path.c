/* SPDX-License-Identifier: MIT */
#include "layout/path.h"

#include "base/error.h"
#include "base/format.h"
#include "layout/cost.h"

/* What a path's instructions need of an accelerator; host devices need nothing. */
static const struct {
    uint32_t compute_capability;
    uint32_t shared_memory_bytes;
} needs[STRATA__LAYOUT_PATH_COUNT] = {
    [STRATA__LAYOUT_DIRECT] = {0, 0},
    [STRATA__LAYOUT_FUSED] = {80, 99 * 1024},
    [STRATA__LAYOUT_MMQ] = {80, 99 * 1024},
    [STRATA__LAYOUT_FP16] = {75, 48 * 1024},
};

typedef enum lack { LACKS_NOTHING, LACKS_KERNELS, LACKS_CAPABILITY, LACKS_SHARED_MEMORY } lack;

static lack device_lacks(const strata__layout_facts *facts, uint32_t path)
{
    if (facts->coverage[path] == 0)
        return LACKS_KERNELS;
    if (facts->compute_capability == 0)
        return LACKS_NOTHING;
    if (facts->compute_capability < needs[path].compute_capability)
        return LACKS_CAPABILITY;
    if (facts->shared_memory_bytes && facts->shared_memory_bytes < needs[path].shared_memory_bytes)
        return LACKS_SHARED_MEMORY;
    return LACKS_NOTHING;
}

strata_status strata__layout_path_on_device(const strata__layout_facts *facts, uint32_t path)
{
    const char *name = strata__layout_path_name(path);
    switch (device_lacks(facts, path)) {
    case LACKS_KERNELS:
        return strata__fail(STRATA_ERR_UNSUPPORTED, "path %s has no kernels on this device", name);
    case LACKS_CAPABILITY:
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "path %s needs compute capability %u, the device has %u", name,
                            needs[path].compute_capability, facts->compute_capability);
    case LACKS_SHARED_MEMORY:
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "path %s needs %u bytes of shared memory a block, the device has %llu",
                            name, needs[path].shared_memory_bytes,
                            (unsigned long long)facts->shared_memory_bytes);
    default:
        return STRATA_OK;
    }
}

bool strata__layout_path_covers(const strata__layout_facts *facts, uint32_t path,
                                const strata__layout_layer *layer)
{
    uint64_t covered = facts->coverage[path];
    const uint32_t formats[] = {layer->gate_format, layer->up_format, layer->down_format};
    for (uint32_t i = 0; i < 3; ++i)
        if (formats[i] >= STRATA__FORMAT_LIMIT || !(covered >> formats[i] & 1))
            return false;
    return true;
}

static const char *format_text(uint32_t id)
{
    const char *name = strata__format_name(id);
    return name ? name : "an unknown format";
}

/* `path`: the one that does not take the layer's experts; PATH_NONE: there is none that does. */
static strata_status fail_coverage(const strata__layout_problem *p, uint32_t layer, uint32_t path)
{
    const strata__layout_layer *l = &p->geometry.layers[layer];
    const char *gate = format_text(l->gate_format), *up = format_text(l->up_format),
               *down = format_text(l->down_format);
    if (path == STRATA__LAYOUT_PATH_NONE)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "layer %u: no path of this device takes experts of %s (gate), %s (up) "
                            "and %s (down)",
                            layer, gate, up, down);
    return strata__fail(STRATA_ERR_UNSUPPORTED,
                        "layer %u: path %s does not take experts of %s (gate), %s (up) and %s "
                        "(down) on this device",
                        layer, strata__layout_path_name(path), gate, up, down);
}

static strata_status check_exception(const strata__layout_problem *p, const strata__layout_class *c)
{
    const strata__layout_layer *l = &p->geometry.layers[c->layer];
    strata_status status;
    if (c->exception == STRATA__LAYOUT_PATH_AUTO)
        return STRATA_OK;
    status = strata__layout_path_on_device(&p->facts, c->exception);
    if (status != STRATA_OK)
        return status;
    if (l->expert_width == 0)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "layer %u has no experts to run on path %s",
                            c->layer, strata__layout_path_name(c->exception));
    if (!strata__layout_path_covers(&p->facts, c->exception, l))
        return fail_coverage(p, c->layer, c->exception);
    return STRATA_OK;
}

strata_status strata__layout_policy_check(const strata__layout_problem *problem)
{
    uint32_t path = problem->request.path;
    if (problem->expert_layers && path != STRATA__LAYOUT_PATH_AUTO) {
        strata_status status = strata__layout_path_on_device(&problem->facts, path);
        if (status != STRATA_OK)
            return status;
    }
    for (uint32_t i = 0; i < problem->class_count; ++i) {
        strata_status status = check_exception(problem, &problem->classes[i]);
        if (status != STRATA_OK)
            return status;
    }
    return STRATA_OK;
}

static bool takes_rows(uint32_t path, uint32_t rows)
{
    return path != STRATA__LAYOUT_DIRECT || rows <= STRATA__DIRECT_ROWS;
}

static bool can_run(const strata__layout_problem *p, const strata__layout_layer *layer,
                    uint32_t path, uint32_t rows)
{
    return takes_rows(path, rows) && strata__layout_path_covers(&p->facts, path, layer) &&
           device_lacks(&p->facts, path) == LACKS_NOTHING;
}

/* The path of least predicted time; where times are equal the more exact one. */
static uint32_t cheapest(const strata__layout_problem *p, const strata__layout_layer *layer,
                         uint32_t rows)
{
    /* The vector must not depend on tiles: logits are the same for all of them. */
    const strata__layout_spec spec = {
        .chunk = rows, .expert_tile = UINT32_MAX, .scratch_bytes = 64u << 20};
    static const uint8_t order[] = {STRATA__LAYOUT_FP16, STRATA__LAYOUT_DIRECT,
                                    STRATA__LAYOUT_FUSED, STRATA__LAYOUT_MMQ};
    uint32_t best = STRATA__LAYOUT_PATH_NONE;
    double best_seconds = 0;
    for (uint32_t i = 0; i < STRATA__LAYOUT_PATH_COUNT; ++i) {
        double seconds;
        if (!can_run(p, layer, order[i], rows))
            continue;
        seconds = strata__layout_expert_seconds(p, &spec, layer, order[i], rows);
        if (best == STRATA__LAYOUT_PATH_NONE || seconds < best_seconds) {
            best = order[i];
            best_seconds = seconds;
        }
    }
    return best;
}

static uint32_t choose(const strata__layout_problem *p, const strata__layout_class *c,
                       uint32_t rows, uint32_t *reason)
{
    const strata__layout_layer *layer = &p->geometry.layers[c->layer];
    uint32_t wanted = c->exception;
    *reason = STRATA__LAYOUT_REASON_NONE;
    if (layer->expert_width == 0)
        return STRATA__LAYOUT_PATH_NONE;
    *reason = STRATA__LAYOUT_REASON_EXCEPTION;
    if (wanted == STRATA__LAYOUT_PATH_AUTO) {
        wanted = p->request.path;
        *reason = STRATA__LAYOUT_REASON_POLICY;
    }
    if (wanted == STRATA__LAYOUT_PATH_AUTO)
        *reason = STRATA__LAYOUT_REASON_COST;
    else if (!strata__layout_path_covers(&p->facts, wanted, layer))
        *reason = STRATA__LAYOUT_REASON_NOT_COVERED;
    else if (!takes_rows(wanted, rows))
        *reason = STRATA__LAYOUT_REASON_ROWS;
    else
        return wanted;
    return cheapest(p, layer, rows);
}

strata_status strata__layout_paths_choose(const strata__layout_problem *problem,
                                          const strata__layout_spec *spec, uint8_t *paths,
                                          uint8_t *reasons)
{
    uint32_t bands = spec->band_count;
    for (uint32_t i = 0; i < problem->class_count; ++i) {
        const strata__layout_class *c = &problem->classes[i];
        for (uint32_t band = 0; band < bands; ++band) {
            uint32_t reason;
            uint32_t path = choose(problem, c, spec->band_rows[band], &reason);
            if (path == STRATA__LAYOUT_PATH_NONE && reason != STRATA__LAYOUT_REASON_NONE)
                return fail_coverage(problem, c->layer, path);
            paths[c->layer * bands + band] = (uint8_t)path;
            if (reasons)
                reasons[c->layer * bands + band] = (uint8_t)reason;
        }
    }
    for (uint32_t i = 0; i < problem->geometry.layer_count * bands; ++i) {
        uint32_t first = problem->classes[problem->class_of[i / bands]].layer;
        paths[i] = paths[first * bands + i % bands];
        if (reasons)
            reasons[i] = reasons[first * bands + i % bands];
    }
    return STRATA_OK;
}

strata_status strata__layout_paths_check(const strata__layout_problem *problem,
                                         const strata__layout_spec *spec, const uint8_t *paths)
{
    for (uint32_t i = 0; i < problem->geometry.layer_count * spec->band_count; ++i) {
        uint32_t layer = i / spec->band_count, rows = spec->band_rows[i % spec->band_count];
        const strata__layout_layer *l = &problem->geometry.layers[layer];
        bool good = paths[i] == STRATA__LAYOUT_PATH_NONE;
        if (l->expert_width)
            good = paths[i] < STRATA__LAYOUT_PATH_COUNT && can_run(problem, l, paths[i], rows);
        if (!good)
            return strata__fail(STRATA_ERR_UNSUPPORTED,
                                "layer %u: path %s cannot be taken for %u rows on this device",
                                layer, strata__layout_path_name(paths[i]), rows);
    }
    return STRATA_OK;
}
