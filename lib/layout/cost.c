/* SPDX-License-Identifier: MIT */
#include "layout/cost.h"

#include "base/checked.h"
#include "layout/demand.h"

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double ceil_div(uint64_t a, uint64_t b)
{
    return (double)strata__divide_up_u64(a, b);
}

uint64_t strata__layout_ns(double seconds)
{
    double ns = seconds * 1e9;
    uint64_t whole;
    if (!(ns < 1e19))
        return (uint64_t)1e19;
    whole = (uint64_t)ns;
    return whole + (ns > (double)whole);
}

double strata__layout_touched(const strata__layout_problem *problem, uint32_t rows)
{
    double base = 1.0 - (double)problem->geometry.top_k / problem->geometry.experts;
    double untouched = 1;
    for (; rows; rows >>= 1, base *= base)
        if (rows & 1)
            untouched *= base;
    return 1 - untouched;
}

/* A round of a product over k values. */
static double round_seconds(const strata__layout_facts *f, double k, double flops)
{
    return 2 * k * f->round_outputs / flops;
}

double strata__layout_launch_seconds(const strata__layout_problem *problem,
                                     const strata__layout_layer *layer, uint32_t path)
{
    const strata__layout_facts *f = &problem->facts;
    double k = (double)problem->geometry.width + layer->expert_width;
    if (path == STRATA__LAYOUT_DIRECT)
        return 4 * f->launch_seconds;
    return 6 * f->launch_seconds + round_seconds(f, k, f->path_flops[path]);
}

/*
 * Launches of one step, and how often the scratch is filled again in them: by as many experts as
 * fill their last round better than a launch does.
 */
static double kernel_seconds(const strata__layout_problem *problem, const strata__layout_spec *spec,
                             const strata__layout_layer *layer, uint32_t path, double launches,
                             double touched)
{
    const strata__layout_facts *f = &problem->facts;
    uint64_t width = problem->geometry.width;
    uint64_t k = width > layer->expert_width ? width : layer->expert_width;
    double held = (double)strata__layout_scratch_rows(problem, spec, k, UINT64_MAX / 2) * (double)k;
    double values = touched * (double)width * layer->expert_width;
    double all = launches * strata__layout_launch_seconds(problem, layer, path);
    if (path == STRATA__LAYOUT_DIRECT)
        return all;
    return all +
           larger(0, 2 * values / held - launches) *
               (3 * f->launch_seconds + round_seconds(f, width / 2.0, f->path_flops[path])) +
           larger(0, values / held - launches) *
               (2 * f->launch_seconds +
                round_seconds(f, layer->expert_width / 2.0, f->path_flops[path]));
}

double strata__layout_expert_seconds(const strata__layout_problem *problem,
                                     const strata__layout_spec *spec,
                                     const strata__layout_layer *layer, uint32_t path,
                                     uint32_t rows)
{
    const strata__layout_facts *f = &problem->facts;
    const strata__layout_geometry *g = &problem->geometry;
    uint64_t pairs = (uint64_t)rows * g->top_k;
    double touched = g->experts * strata__layout_touched(problem, rows);
    double per_expert = (double)pairs / touched;
    double values = 3.0 * g->width * layer->expert_width;
    double blob = (double)layer->gate_bytes + (double)layer->up_bytes + (double)layer->down_bytes;
    double launches = ceil_div(pairs, strata__layout_expert_rows(problem, spec, rows));
    bool own = layer->path_flops[path] > 0;
    double flops = own ? layer->path_flops[path] : f->path_flops[path];
    double half_rows = own ? layer->path_half_rows[path] : f->path_half_rows[path];
    double rate = flops * per_expert / (per_expert + half_rows);
    double row_bytes = 8.0 * g->width + 2.0 * layer->expert_width * f->activation_bytes;
    double moved = (double)pairs * row_bytes;
    /* Decoded weights are written, and about half of them leave the device's cache on the way. */
    if (path != STRATA__LAYOUT_DIRECT)
        moved += (touched + launches - 1) * (blob + 1.5 * values * f->decode_bytes_per_value);
    return larger(2 * values * (double)pairs / rate, touched * blob / f->memory_bytes_per_second) +
           moved / f->memory_bytes_per_second +
           kernel_seconds(problem, spec, layer, path, launches, touched);
}

double strata__layout_dense_seconds(const strata__layout_problem *problem,
                                    const strata__layout_spec *spec,
                                    const strata__layout_layer *layer, uint32_t rows)
{
    const strata__layout_facts *f = &problem->facts;
    const strata__layout_geometry *g = &problem->geometry;
    double width = g->width, q = (double)layer->heads * layer->head_size;
    double kv = (double)layer->kv_heads * layer->head_size;
    double inner = layer->expert_width ? layer->shared_width : layer->ffn_width;
    double values = width * (2 * q + 2 * kv + 3 * inner);
    double tiles = ceil_div(rows, strata__layout_dense_rows(spec, rows));
    double held = (double)strata__layout_scratch_rows(problem, spec, g->width, UINT64_MAX / 2) *
                  width * f->decode_bytes_per_value;
    double decoded, kernels, moved, idle;
    if (layer->expert_width)
        values += width * g->experts;
    decoded = values * f->decode_bytes_per_value;
    moved = tiles * ((double)layer->dense_bytes + 2 * decoded);
    moved += rows * (4.0 * g->residual_streams * width * 6 + 12 * (q + 2 * kv) + 12 * inner);
    kernels = tiles * (12 + 2 * larger(1, decoded / held));
    /* Products: q, k and v, the output, and where there is one the feed-forward part's. */
    idle = 3 * width + q + (inner > 0 ? 2 * width + inner : 0);
    return 2 * values * rows / f->dense_flops + moved / f->memory_bytes_per_second +
           kernels * f->launch_seconds + tiles * round_seconds(f, idle / 2, f->dense_flops);
}

double strata__layout_attention_seconds(const strata__layout_problem *problem,
                                        const strata__layout_spec *spec,
                                        const strata__layout_layer *layer, uint32_t rows,
                                        double position)
{
    const strata__layout_facts *f = &problem->facts;
    double q = (double)layer->heads * layer->head_size;
    double pairs = rows * (position + (rows + 1) / 2.0);
    double tiles = ceil_div(rows, strata__layout_attention_rows(spec, rows));
    double kv_bytes = 4.0 * layer->kv_heads * layer->head_size * (position + rows);
    if (layer->window && pairs > (double)rows * layer->window)
        pairs = (double)rows * layer->window;
    return 4 * q * pairs / f->attention_flops + tiles * f->launch_seconds +
           tiles * kv_bytes / f->memory_bytes_per_second;
}

/* Times of one step, by class first, then for every layer. */
static void fill_step(strata__layout_times *times, const strata__layout_problem *problem,
                      const strata__layout_spec *spec, const uint8_t *paths, uint32_t index)
{
    const strata__layout_step *step = &times->steps[index];
    double *before = times->before[index], *experts = times->experts[index];
    double *launch = times->launch[index];
    double before_sum = 0, expert_sum = 0;
    for (uint32_t i = 0; i < problem->geometry.layer_count; ++i) {
        uint32_t first = problem->classes[problem->class_of[i]].layer;
        const strata__layout_layer *layer = &problem->geometry.layers[i];
        uint8_t path = paths[i * spec->band_count + step->band];
        before[i] = before[first];
        experts[i] = experts[first];
        launch[i] = launch[first];
        if (i == first)
            before[i] =
                strata__layout_dense_seconds(problem, spec, layer, step->rows) +
                strata__layout_attention_seconds(problem, spec, layer, step->rows, step->position);
        if (layer->expert_width == 0) {
            experts[i] = launch[i] = 0;
        } else if (i == first || path != paths[first * spec->band_count + step->band]) {
            experts[i] = strata__layout_expert_seconds(problem, spec, layer, path, step->rows);
            launch[i] = strata__layout_launch_seconds(problem, layer, path);
        }
        before_sum += before[i];
        expert_sum += experts[i];
    }
    times->before_seconds += before_sum * step->count;
    times->expert_seconds += expert_sum * step->count;
}

static void add_step(strata__layout_times *times, const strata__layout_spec *spec, uint32_t rows,
                     uint64_t first, uint64_t count)
{
    strata__layout_step *step = &times->steps[times->step_count];
    if (count == 0)
        return;
    *step = (strata__layout_step){
        .rows = rows,
        .count = (uint32_t)count,
        .band = strata__layout_band_index(spec, rows),
        .cold = first == 0,
        .position = ((double)first + (double)(count - 1) / 2) * spec->chunk,
    };
    times->step_count++;
}

static void fill_edge(strata__layout_times *times, const strata__layout_problem *problem,
                      uint64_t tokens)
{
    const strata__layout_facts *f = &problem->facts;
    double values = (double)problem->geometry.width * problem->geometry.vocabulary;
    times->edge_seconds = 2 * values / f->dense_flops +
                          (double)problem->geometry.output_bytes / f->memory_bytes_per_second +
                          (double)tokens * 8 * problem->geometry.width / f->memory_bytes_per_second;
}

void strata__layout_times_init(strata__layout_times *times, const strata__layout_problem *problem,
                               const strata__layout_spec *spec, const uint8_t *paths)
{
    const uint64_t runs = STRATA__LAYOUT_MAX_STEPS - 2; /* the first and the last are apart */
    uint64_t tokens = problem->request.prompt_tokens, first = 1;
    uint64_t chunks = strata__divide_up_u64(tokens, spec->chunk);
    uint64_t last_rows = tokens - (chunks - 1) * spec->chunk, middle = chunks < 2 ? 0 : chunks - 2;
    times->step_count = 0;
    times->before_seconds = times->expert_seconds = 0;
    add_step(times, spec, chunks == 1 ? (uint32_t)last_rows : spec->chunk, 0, 1);
    for (uint64_t run = 0; run < runs; ++run) {
        uint64_t count = middle * (run + 1) / runs - middle * run / runs;
        add_step(times, spec, spec->chunk, first, count);
        first += count;
    }
    add_step(times, spec, (uint32_t)last_rows, first, chunks > 1);
    for (uint32_t i = 0; i < times->step_count; ++i)
        fill_step(times, problem, spec, paths, i);
    fill_edge(times, problem, tokens);
}

void strata__layout_times_bands(strata__layout_times *times, const strata__layout_problem *problem,
                                const strata__layout_spec *spec, const uint8_t *paths)
{
    times->step_count = 0;
    times->before_seconds = times->expert_seconds = 0;
    for (uint32_t band = 0; band < spec->band_count; ++band) {
        add_step(times, spec, spec->band_rows[band], 0, 1);
        fill_step(times, problem, spec, paths, band);
    }
    fill_edge(times, problem, spec->chunk);
}
