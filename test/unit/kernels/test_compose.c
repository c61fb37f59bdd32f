/* SPDX-License-Identifier: MIT */
/* Composed operations give the bits of what they are composed of; spans of split attention. */
#include "support.h"

enum { WIDTH = 64, HIDDEN = 32, EXPERTS = 6, TOP_K = 2, ROWS = 3, PAIRS = ROWS * TOP_K };

/* A model part and the buffers of one way to run it. */
typedef struct part {
    float *x, *gains, *router;
    void *blobs[3][EXPERTS], *dense[3];
} part;

typedef struct buffers {
    float *x, *xn, *inv_rms, *out, *logits, *weights, *h, *y, *scratch;
    int32_t *ids;
    uint32_t *offsets, *sorted_row, *sorted_index;
} buffers;

static void fill_part(part *p, uint64_t seed)
{
    test_random random = {seed};
    p->x = test_buffer(ROWS * WIDTH * 4);
    p->gains = test_buffer(WIDTH * 4);
    p->router = test_buffer(EXPERTS * WIDTH * 4);
    test_fill(&random, p->x, ROWS * WIDTH, 1);
    test_fill(&random, p->gains, WIDTH, 1);
    test_fill(&random, p->router, EXPERTS * WIDTH, 1);
    for (int m = 0; m < 3; m++) {
        float *values;
        p->dense[m] = test_weight(&random, STRATA__Q8_0, WIDTH * WIDTH, &values);
        free(values);
        for (int e = 0; e < EXPERTS; e++) {
            p->blobs[m][e] = test_weight(&random, STRATA__Q8_0, WIDTH * HIDDEN, &values);
            free(values);
        }
    }
}

static void release_part(part *p)
{
    test_release(p->x);
    test_release(p->gains);
    test_release(p->router);
    for (int m = 0; m < 3; m++) {
        free(p->dense[m]);
        for (int e = 0; e < EXPERTS; e++)
            free(p->blobs[m][e]);
    }
}

static void make_buffers(buffers *b, const part *p)
{
    b->x = test_buffer(ROWS * WIDTH * 4);
    memcpy(b->x, p->x, ROWS * WIDTH * 4);
    b->xn = test_buffer(ROWS * WIDTH * 4);
    b->inv_rms = test_buffer(ROWS * 4);
    b->out = test_buffer(ROWS * 3 * WIDTH * 4);
    b->logits = test_buffer(ROWS * EXPERTS * 4);
    b->weights = test_buffer(PAIRS * 4);
    b->h = test_buffer(PAIRS * HIDDEN * 4);
    b->y = test_buffer(PAIRS * WIDTH * 4);
    b->scratch = test_buffer(128 * WIDTH * 4);
    b->ids = test_buffer(PAIRS * 4);
    b->offsets = test_buffer((EXPERTS + 1) * 4);
    b->sorted_row = test_buffer(PAIRS * 4);
    b->sorted_index = test_buffer(PAIRS * 4);
}

static void release_buffers(buffers *b)
{
    void *all[] = {b->x, b->xn,      b->inv_rms, b->out,     b->logits,     b->weights,     b->h,
                   b->y, b->scratch, b->ids,     b->offsets, b->sorted_row, b->sorted_index};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        test_release(all[i]);
}

static strata__project_args project_of(const part *p, const buffers *b)
{
    strata__project_args a = {0};
    a.norm.x = b->x;
    a.norm.weight = p->gains;
    a.norm.out.data = b->xn;
    a.norm.inv_rms = b->inv_rms;
    a.norm.rows = ROWS;
    a.norm.width = WIDTH;
    a.norm.eps = 1e-6f;
    a.part_count = 3;
    for (int i = 0; i < 3; i++) {
        strata__dense_args *d = &a.parts[i];
        d->weight.data = p->dense[i];
        d->weight.format = STRATA__Q8_0;
        d->weight.inputs = d->weight.outputs = WIDTH;
        d->in = a.norm.out;
        d->out_f32 = b->out + i * WIDTH;
        d->scratch = (strata__scratch){b->scratch, 128 * WIDTH * 4};
        d->rows = ROWS;
        d->out_stride = 3 * WIDTH;
        d->alpha = 1;
    }
    return a;
}

static strata__route_args route_of(const part *p, const buffers *b)
{
    strata__route_args a = {0};
    a.norm = project_of(p, b).norm;
    a.router.x = b->x;
    a.router.inv_rms = b->inv_rms;
    a.router.norm = p->gains;
    a.router.weight.data = p->router;
    a.router.weight.inputs = WIDTH;
    a.router.weight.outputs = EXPERTS;
    a.router.scratch = (strata__scratch){b->scratch, 128 * WIDTH * 4};
    a.router.logits = b->logits;
    a.router.rows = ROWS;
    a.select.logits = b->logits;
    a.select.ids = b->ids;
    a.select.weights = b->weights;
    a.select.rows = ROWS;
    a.select.experts = EXPERTS;
    a.select.top_k = TOP_K;
    a.select.gating = STRATA__GATING_SOFTMAX;
    a.select.weight_scale = 1;
    a.group.ids = b->ids;
    a.group.offsets = b->offsets;
    a.group.sorted_row = b->sorted_row;
    a.group.sorted_index = b->sorted_index;
    a.group.rows = ROWS;
    a.group.top_k = TOP_K;
    a.group.experts = EXPERTS;
    return a;
}

static strata__expert_weight expert_weight(const part *p, int m, uint32_t inputs, uint32_t outputs)
{
    strata__expert_weight w = {
        (const void *const *)p->blobs[m], NULL, STRATA__Q8_0, inputs, outputs, 0};
    return w;
}

static strata__experts_args experts_of(const part *p, const buffers *b)
{
    strata__experts_args a = {0};
    strata__expert_range range = {b->offsets, NULL, 0, PAIRS, 0, EXPERTS - 1};
    a.gate_up.gate = expert_weight(p, 0, WIDTH, HIDDEN);
    a.gate_up.up = expert_weight(p, 1, WIDTH, HIDDEN);
    a.gate_up.range = range;
    a.gate_up.sorted_row = b->sorted_row;
    a.gate_up.in.data = b->xn;
    a.gate_up.h.data = b->h;
    a.gate_up.scratch = (strata__scratch){b->scratch, 128 * WIDTH * 4};
    a.down.down = expert_weight(p, 2, HIDDEN, WIDTH);
    a.down.range = range;
    a.down.h = a.gate_up.h;
    a.down.y = b->y;
    a.down.scratch = a.gate_up.scratch;
    a.combine.y = b->y;
    a.combine.weights = b->weights;
    a.combine.sorted_index = b->sorted_index;
    a.combine.x = b->x;
    a.combine.tokens = ROWS;
    a.combine.top_k = TOP_K;
    a.combine.width = WIDTH;
    a.combine.rows = PAIRS;
    a.combine.alpha = 0.5f;
    return a;
}

static void run_composed(strata__kernels *kernels, const part *p, const buffers *b)
{
    strata__project_args project = project_of(p, b);
    strata__route_args route = route_of(p, b);
    strata__experts_args experts = experts_of(p, b);
    assert_int_equal(kernels->ops->project(kernels, test_stream(), &project), STRATA_OK);
    assert_int_equal(kernels->ops->route(kernels, test_stream(), &route), STRATA_OK);
    assert_int_equal(kernels->ops->experts(kernels, test_stream(), &experts), STRATA_OK);
}

static void run_parts(strata__kernels *kernels, const part *p, const buffers *b)
{
    const strata__kernels_ops *ops = kernels->ops;
    strata__project_args project = project_of(p, b);
    strata__route_args route = route_of(p, b);
    strata__experts_args experts = experts_of(p, b);
    assert_int_equal(ops->norm(kernels, test_stream(), &project.norm), STRATA_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ops->dense(kernels, test_stream(), &project.parts[i]), STRATA_OK);
    assert_int_equal(ops->norm(kernels, test_stream(), &route.norm), STRATA_OK);
    assert_int_equal(ops->router(kernels, test_stream(), &route.router), STRATA_OK);
    assert_int_equal(ops->select(kernels, test_stream(), &route.select), STRATA_OK);
    assert_int_equal(ops->group(kernels, test_stream(), &route.group), STRATA_OK);
    assert_int_equal(ops->gate_up(kernels, test_stream(), &experts.gate_up), STRATA_OK);
    assert_int_equal(ops->down(kernels, test_stream(), &experts.down), STRATA_OK);
    assert_int_equal(ops->combine(kernels, test_stream(), &experts.combine), STRATA_OK);
}

static void composed_operations_are_their_parts(void **state)
{
    strata__kernels *kernels = test_kernels(0, 2, 0);
    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++) {
        part p;
        buffers one, other;
        fill_part(&p, seed);
        make_buffers(&one, &p);
        make_buffers(&other, &p);
        run_composed(kernels, &p, &one);
        run_parts(kernels, &p, &other);
        test_all_written(one.out, ROWS * 3 * WIDTH);
        test_same("projections", one.out, other.out, ROWS * 3 * WIDTH);
        test_same("weights", one.weights, other.weights, PAIRS);
        assert_memory_equal(one.sorted_row, other.sorted_row, PAIRS * 4);
        test_same("residual", one.x, other.x, ROWS * WIDTH);
        assert_memory_not_equal(one.x, p.x, ROWS * WIDTH * 4);
        release_buffers(&one);
        release_buffers(&other);
        release_part(&p);
    }
    kernels->ops->destroy(kernels);
}

/* A format that no kernel knows stops each of them where it is met. */
static void a_failing_part_is_told(void **state)
{
    strata__kernels *kernels = test_kernels(0, 1, 0);
    part p;
    buffers b;
    strata__project_args project;
    strata__route_args route;
    strata__experts_args experts;
    (void)state;
    fill_part(&p, 9);
    make_buffers(&b, &p);
    project = project_of(&p, &b);
    project.parts[2].weight.format = 60;
    assert_int_equal(kernels->ops->project(kernels, test_stream(), &project),
                     STRATA_ERR_UNSUPPORTED);
    route = route_of(&p, &b);
    route.router.weight.format = 60;
    assert_int_equal(kernels->ops->route(kernels, test_stream(), &route), STRATA_ERR_UNSUPPORTED);
    experts = experts_of(&p, &b);
    experts.gate_up.up.format = 60;
    assert_int_equal(kernels->ops->experts(kernels, test_stream(), &experts),
                     STRATA_ERR_UNSUPPORTED);
    assert_memory_equal(b.x, p.x, ROWS * WIDTH * 4);
    release_buffers(&b);
    release_part(&p);
    kernels->ops->destroy(kernels);
}

static void spans_cover_every_position_once(void **state)
{
    (void)state;
    assert_int_equal(strata__span_first(64, 128), 8192);
    assert_int_equal(strata__span_first(64 + 48, 128), 32768);
    assert_int_equal(strata__span_first(64 + 48 + 48, 128), 131072);
    assert_int_equal(strata__span_count(8192, 128), 64);
    assert_int_equal(strata__span_count(8193, 128), 65);
    assert_int_equal(strata__span_count(0, 128), 0);
    for (uint32_t keys = 64; keys <= 256; keys *= 2)
        for (uint32_t span = 0; span < 300; span++) {
            uint64_t first = strata__span_first(span, keys);
            assert_true(strata__span_first(span + 1, keys) > first);
            assert_int_equal(first % keys, 0);
            assert_int_equal(strata__span_count(first, keys), span);
            assert_int_equal(strata__span_count(first + 1, keys), span + 1);
        }
    assert_int_equal(strata__attention_split_bytes(2, 3, 128, 8193, 128), 2 * 3 * 65 * 132 * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(composed_operations_are_their_parts),
        cmocka_unit_test(a_failing_part_is_told),
        cmocka_unit_test(spans_cover_every_position_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
