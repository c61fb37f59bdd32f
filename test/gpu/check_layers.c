/* SPDX-License-Identifier: MIT */
/*
 * check_layers PACK [option=value...]
 *
 * Each layer of a pack alone: a device gets the residual that the CPU device, the reference, has
 * before the layer, and its choice of experts; what the layer adds to the residual is compared,
 * after attention and as a whole. So are the embedding and the logits. One line for each kernel
 * level; exit code 0: all right, 1: something is wrong, 2: no answer, 77: no device.
 *
 *   device=cuda:0   rows=300   chunk=200   path=auto   kv=f16   seed=1   level=80 (both)
 *   large=1         gains of norms that make activations of 1e6 and more
 *   tight=1         the smallest budget that holds all experts, and with it the smallest scratch
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "session/plan.h"
#include "session/plan_input.h"
#include "session/step.h"

/*
 * Normalised mean squared error. Codes of q8_0 differ by one where a value lies between two; a
 * value of 1e6 brings random scores so close that halves decide between them.
 */
static const double LAYER_LIMIT = 1e-5, LOOSE_LIMIT = 1e-4;

typedef struct settings {
    const char *pack, *device, *path;
    uint32_t rows, chunk, kv, seed, level, large, tight;
    bool both_levels;
} settings;

/* The choice of experts of all rows of a layer. */
typedef struct routing {
    int32_t *ids;
    float *weights;
    uint64_t rows;
} routing;

/* A session, and its kernels with the choice of experts tapped. */
typedef struct side {
    strata_session *session;
    strata_prefill *prefill;
    strata__step step;
    strata__kernels_ops ops;
    const strata__kernels_ops *inner;
    routing *written; /* the choices are kept here, */
    routing *given;   /* or taken from here */
} side;

static side reference, tested;

static void ok(strata_status status, const char *what)
{
    if (status == STRATA_OK)
        return;
    printf("FATAL %s: %d %s\n", what, (int)status, strata__error_text());
    exit(status == STRATA_ERR_NO_DEVICE ? 77 : 2);
}

static void *take(uint64_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory)
        exit(2);
    return memory;
}

static void copy(const side *s, void *target, const void *source, uint64_t bytes)
{
    strata__device *device = s->session->device;
    ok(device->ops->copy(device, s->session->stream, target, source, bytes), "copying");
    ok(device->ops->stream_synchronize(device, s->session->stream), "waiting");
}

static strata_status keep_choice(strata__kernels *kernels, void *stream,
                                 const strata__select_args *args)
{
    routing *r = reference.written;
    uint64_t at = r->rows * args->top_k, count = (uint64_t)args->rows * args->top_k;
    ok(reference.inner->select(kernels, stream, args), "the choice of experts");
    copy(&reference, r->ids + at, args->ids, count * sizeof *r->ids);
    copy(&reference, r->weights + at, args->weights, count * sizeof *r->weights);
    r->rows += args->rows;
    return STRATA_OK;
}

static strata_status give_choice(strata__kernels *kernels, void *stream,
                                 const strata__select_args *args)
{
    routing *r = tested.given;
    uint64_t at = r->rows * args->top_k, count = (uint64_t)args->rows * args->top_k;
    ok(tested.inner->select(kernels, stream, args), "the choice of experts");
    copy(&tested, args->ids, r->ids + at, count * sizeof *r->ids);
    copy(&tested, args->weights, r->weights + at, count * sizeof *r->weights);
    r->rows += args->rows;
    return STRATA_OK;
}

/* Whether the session's device has a plan in that budget. */
static bool fits(const strata_session *session, strata__pack *pack, strata_plan_options options,
                 uint64_t budget)
{
    strata__layout_facts facts;
    strata__plan_input plan;
    strata_plan *made = NULL;
    strata_status status;
    options.device_budget_bytes = budget;
    strata__plan_facts(&session->device->facts, &session->kernels->facts, NULL, &facts);
    ok(strata__plan_input_init(&plan, &session->context->allocator, pack, &facts, &options),
       "a plan's input");
    status = strata__plan_create(pack, &plan.input, &made);
    strata__plan_input_finish(&plan);
    strata__plan_release(made);
    if (status != STRATA_ERR_PLAN_INFEASIBLE)
        ok(status, "a plan");
    return status == STRATA_OK;
}

static uint64_t smallest_budget(const strata_session *session, strata__pack *pack,
                                const strata_plan_options *options)
{
    uint64_t least = 0, most = 1;
    while (!fits(session, pack, *options, most))
        most *= 2;
    for (least = most / 2; most - least > 1;) {
        uint64_t middle = least + (most - least) / 2;
        if (fits(session, pack, *options, middle))
            most = middle;
        else
            least = middle;
    }
    return most;
}

static void open_side(side *s, strata__pack *pack, const settings *set, const char *device,
                      uint32_t level)
{
    strata_plan_options plan = {.struct_size = sizeof plan};
    strata_session_options options = {.struct_size = sizeof options, .plan_options = &plan};
    strata_prefill_options prefill = {.struct_size = sizeof prefill};
    plan.kv_format = set->kv;
    plan.context_tokens = set->rows;
    plan.prompt_tokens = set->rows;
    plan.chunk_tokens = set->chunk;
    plan.path = device ? set->path : NULL;
    plan.experts = device ? STRATA_EXPERTS_RESIDENT : STRATA_EXPERTS_AUTO;
    options.device = device ? device : "cpu";
    options.kernel_level = level;
    options.blas = 1;
    memset(s, 0, sizeof *s);
    ok(strata__session_create(pack, &options, &s->session), options.device);
    if (device && set->tight) {
        plan.device_budget_bytes = smallest_budget(s->session, pack, &plan);
        strata__session_release(s->session);
        ok(strata__session_create(pack, &options, &s->session), options.device);
    }
    ok(strata__prefill_create(s->session, &prefill, &s->prefill), "a prefill");
    s->inner = s->session->kernels->ops;
    s->ops = *s->inner;
    s->ops.select = device ? give_choice : keep_choice;
    s->ops.route = strata__compose_route; /* which comes by the choice above */
    s->session->kernels->ops = &s->ops;
}

static void close_side(side *s)
{
    strata__prefill_destroy(s->prefill);
    strata__session_release(s->session);
}

/* Scales a norm's gains, all of them or the first alone. */
static void scale_gains(side *s, const float **gains, float factor, bool all)
{
    uint64_t width = s->session->geometry->width, bytes = width * sizeof(float);
    float *scaled = take(bytes);
    copy(s, scaled, *gains, bytes);
    for (uint64_t i = 0; i < (all ? width : 1); i++)
        scaled[i] *= factor;
    if (s->session->device->facts.host_addressable) {
        *gains = scaled; /* for as long as the program runs: the pack's are read-only */
        return;
    }
    copy(s, (float *)(uintptr_t)*gains, scaled, bytes);
    free(scaled);
}

/*
 * One value beyond half's range before attention, whose values fit the cache; all before experts.
 */
static void make_large(side *s)
{
    for (uint32_t l = 0; l < s->session->geometry->layers; l++) {
        scale_gains(s, &s->session->weights.layers[l].attention_norm, 5e4f, false);
        scale_gains(s, &s->session->weights.layers[l].ffn_norm, 1e6f, true);
    }
}

static void begin_chunk(side *s, const strata__step_part *part, uint64_t index)
{
    strata__step *step = &s->step;
    memset(step, 0, sizeof *step);
    step->session = s->session;
    step->work = &s->session->layout->prompt;
    step->base = s->prefill->memory.base;
    strata__step_use(step, &s->prefill->host);
    step->timeline = &s->prefill->timeline;
    step->parts = part;
    step->part_count = 1;
    step->rows = part->rows;
    step->chunk = index;
    ok(strata__kv_reserve(&s->session->kv, 0, part->position + part->rows), "pages");
    ok(strata__step_begin(step), "a chunk");
    ok(strata__step_embed(step), "the embedding");
}

static double error_of(const float *found, const float *right, const float *base, uint64_t count)
{
    double error = 0, norm = 0;
    for (uint64_t i = 0; i < count; i++) {
        double d = (double)found[i] - right[i], r = (double)right[i] - (base ? base[i] : 0);
        error += d * d;
        norm += r * r;
    }
    return norm > 0 ? error / norm : error > 0 ? INFINITY : 0;
}

typedef struct residuals {
    float *start; /* of every layer, instead of what the layer before left; or NULL */
    float *before, *right, *found;
    uint64_t count;
} residuals;

typedef struct worst {
    double embedding, attention, layer, logits, largest;
    uint32_t at_layer;
} worst;

static void keep_worst(double *worst_error, double error)
{
    if (!(error <= *worst_error)) /* also when it is no number */
        *worst_error = error;
}

static void read_both(residuals *r)
{
    copy(&reference, r->right, reference.step.x, r->count * sizeof(float));
    copy(&tested, r->found, tested.step.x, r->count * sizeof(float));
}

static void check_layer(residuals *r, uint32_t layer, routing *route, worst *w)
{
    uint64_t bytes = r->count * sizeof(float);
    double error;
    memcpy(r->before, r->start ? r->start : r->right, bytes);
    copy(&reference, reference.step.x, r->before, bytes);
    copy(&tested, tested.step.x, r->before, bytes);
    strata__step_layer(&reference.step, layer);
    strata__step_layer(&tested.step, layer);
    route->rows = 0;
    reference.written = route;
    tested.given = route;
    ok(strata__step_attention(&reference.step), "attention");
    ok(strata__step_attention(&tested.step), "attention");
    read_both(r);
    keep_worst(&w->attention, error_of(r->found, r->right, r->before, r->count));
    ok(strata__step_ffn(&reference.step), "experts");
    route->rows = 0;
    ok(strata__step_ffn(&tested.step), "experts");
    read_both(r);
    error = error_of(r->found, r->right, r->before, r->count);
    if (!(error <= w->layer))
        w->at_layer = layer;
    keep_worst(&w->layer, error);
    for (uint64_t i = 0; i < r->count; i++)
        w->largest = fmax(w->largest, fabs((double)r->right[i] - r->before[i]));
}

static void check_logits(const residuals *r, worst *w)
{
    uint64_t rows = reference.step.rows;
    uint64_t count = rows * reference.session->geometry->vocabulary;
    float *right = take(count * sizeof *right), *found = take(count * sizeof *found);
    copy(&tested, tested.step.x, r->right, r->count * sizeof(float));
    ok(strata__step_logits(&reference.step, 0, (uint32_t)rows, right), "logits");
    ok(strata__step_logits(&tested.step, 0, (uint32_t)rows, found), "logits");
    keep_worst(&w->logits, error_of(found, right, NULL, count));
    free(right);
    free(found);
}

static void check_chunk(const strata__step_part *part, uint64_t index, bool large, worst *w)
{
    const strata__geometry *g = reference.session->geometry;
    uint64_t count = (uint64_t)part->rows * g->width, pairs = (uint64_t)part->rows * g->top_k;
    residuals r = {NULL, take(count * sizeof(float)), take(count * sizeof(float)),
                   take(count * sizeof(float)), count};
    routing route = {take((pairs + 1) * sizeof(int32_t)), take((pairs + 1) * sizeof(float)), 0};
    begin_chunk(&reference, part, index);
    begin_chunk(&tested, part, index);
    read_both(&r);
    keep_worst(&w->embedding, error_of(r.found, r.right, NULL, count));
    /* Beside what such a layer adds, float32 would not hold what the next attention does. */
    if (large)
        r.start = memcpy(take(count * sizeof(float)), r.right, count * sizeof(float));
    for (uint32_t layer = 0; layer < g->layers; layer++)
        check_layer(&r, layer, &route, w);
    check_logits(&r, w);
    free(r.start);
    free(r.before);
    free(r.right);
    free(r.found);
    free(route.ids);
    free(route.weights);
}

/* Compares all layers, chunk after chunk; how many limits were exceeded. */
static int check_level(strata__pack *pack, const settings *set, uint32_t level)
{
    worst w = {0};
    uint64_t random = set->seed * 0x9e3779b97f4a7c15u + 1;
    int32_t *tokens = take(set->rows * sizeof *tokens);
    strata__saved_device saved;
    bool loose = set->kv == STRATA_KV_Q8_0 || set->large;
    double limit = loose ? LOOSE_LIMIT : LAYER_LIMIT;
    bool right;
    open_side(&reference, pack, set, NULL, 0);
    open_side(&tested, pack, set, set->device, level);
    ok(tested.session->device->ops->enter(tested.session->device, &saved), "the device");
    if (set->large)
        make_large(&reference);
    if (set->large)
        make_large(&tested);
    for (uint32_t i = 0; i < set->rows; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t)((random >> 33) % reference.session->geometry->vocabulary);
    }
    ok(strata__experts_begin(reference.prefill, 1), "the reference's experts");
    ok(strata__experts_begin(tested.prefill, 1), "the experts");
    for (uint32_t first = 0, i = 0; first < set->rows; first += set->chunk, i++) {
        uint32_t rows = set->rows - first < set->chunk ? set->rows - first : set->chunk;
        strata__step_part part = {tokens + first, 0, rows, first};
        check_chunk(&part, i, set->large, &w);
    }
    right = w.embedding <= limit && w.attention <= limit && w.layer <= limit && w.logits <= limit;
    printf("level %-2u embedding %.1e, attention %.1e, layer %.1e (%u), logits %.1e, adds up to "
           "%.1e%s\n",
           level, w.embedding, w.attention, w.layer, w.at_layer, w.logits, w.largest,
           right ? "" : "  FAILED");
    fflush(stdout);
    tested.session->device->ops->leave(tested.session->device, &saved);
    close_side(&tested);
    close_side(&reference);
    free(tokens);
    return !right;
}

static void read_setting(settings *set, const char *text)
{
    const char *value = strchr(text, '=');
    uint32_t number = value ? (uint32_t)strtoul(value + 1, NULL, 10) : 0;
    size_t name = value ? (size_t)(value - text) : 0;
    struct {
        const char *name;
        uint32_t *number;
    } const numbers[] = {{"rows", &set->rows},   {"chunk", &set->chunk}, {"seed", &set->seed},
                         {"level", &set->level}, {"large", &set->large}, {"tight", &set->tight}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (name == strlen(numbers[i].name) && !strncmp(text, numbers[i].name, name)) {
            *numbers[i].number = number;
            set->both_levels &= numbers[i].number != &set->level;
            return;
        }
    if (name == 6 && !strncmp(text, "device", 6))
        set->device = value + 1;
    else if (name == 4 && !strncmp(text, "path", 4))
        set->path = value + 1;
    else if (name == 2 && !strncmp(text, "kv", 2))
        set->kv = !strcmp(value + 1, "f32")    ? STRATA_KV_F32
                  : !strcmp(value + 1, "q8_0") ? STRATA_KV_Q8_0
                                               : STRATA_KV_F16;
    else
        set->pack = text;
}

int main(int argc, char **argv)
{
    settings set = {.device = "cuda:0", .rows = 300, .chunk = 200, .seed = 1, .both_levels = true};
    strata_context_options options = {.struct_size = sizeof options};
    strata_context *context;
    strata__pack *pack;
    int failures = 0;
    for (int i = 1; i < argc; i++)
        read_setting(&set, argv[i]);
    if (!set.pack || !set.rows || !set.chunk)
        return 2;
    ok(strata__context_create(&options, &context), "a context");
    ok(strata__pack_open_path(context, set.pack, &pack), set.pack);
    if (set.both_levels)
        failures += check_level(pack, &set, 80);
    failures += check_level(pack, &set, set.level);
    strata__pack_release(pack);
    strata__context_release(context);
    return failures ? 1 : 0;
}
