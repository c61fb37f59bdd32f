/* SPDX-License-Identifier: MIT */
/* The list of dense tensors and their placing agree, tensor by tensor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/context.h"
#include "session/weights.h"

enum {
    WIDTH = 8,
    HEADS = 2,
    KV_HEADS = 1,
    HEAD = 4,
    EXPERTS = 3,
    EXPERT_WIDTH = 4,
    VOCABULARY = 5
};

static float pool[4096];

static strata__projection projection(uint32_t *used, uint32_t inputs, uint32_t outputs, bool bias)
{
    strata__projection p = {.inputs = inputs, .outputs = outputs, .format = STRATA__F32};
    p.data = pool + *used;
    p.bytes = (uint64_t)inputs * outputs * 4;
    *used += inputs * outputs;
    if (bias) {
        p.bias = pool + *used;
        *used += outputs;
    }
    return p;
}

static const float *floats(uint32_t *used, uint32_t count)
{
    const float *at = pool + *used;
    *used += count;
    return at;
}

/*
 * A model whose layers differ, with every kind of dense tensor in it. Returns the floats they hold.
 */
static uint32_t make_model(strata__geometry *geometry, strata__layer layers[2])
{
    uint32_t used = 0;
    memset(geometry, 0, sizeof *geometry);
    memset(layers, 0, 2 * sizeof *layers);
    geometry->layers = 2;
    geometry->width = WIDTH;
    geometry->experts = EXPERTS;
    geometry->embedding = projection(&used, WIDTH, VOCABULARY, false);
    geometry->output = projection(&used, WIDTH, VOCABULARY, true);
    geometry->output_norm = floats(&used, WIDTH);
    geometry->rope_table_count = 1;
    geometry->rope_frequencies[0] = floats(&used, HEAD / 2);
    for (int i = 0; i < 2; ++i) {
        strata__layer *l = &layers[i];
        l->heads = HEADS;
        l->kv_heads = KV_HEADS;
        l->head_size = HEAD;
        l->rope_width = HEAD;
        l->attention_norm = floats(&used, WIDTH);
        l->ffn_norm = floats(&used, WIDTH);
        l->q = projection(&used, WIDTH, HEADS * HEAD, true);
        l->k = projection(&used, WIDTH, KV_HEADS * HEAD, true);
        l->v = projection(&used, WIDTH, KV_HEADS * HEAD, true);
        l->attention_out = projection(&used, HEADS * HEAD, WIDTH, false);
        l->qk_norm = i ? STRATA__QK_NORM_ROW_BEFORE_ROPE : STRATA__QK_NORM_HEAD_AFTER_ROPE;
        l->q_norm = floats(&used, i ? HEADS * HEAD : HEAD);
        l->k_norm = floats(&used, i ? KV_HEADS * HEAD : HEAD);
    }
    layers[0].sinks = floats(&used, HEADS);
    layers[0].gate = projection(&used, WIDTH, 6, false);
    layers[0].up = projection(&used, WIDTH, 6, false);
    layers[0].down = projection(&used, 6, WIDTH, false);
    layers[1].router = projection(&used, WIDTH, EXPERTS, true);
    layers[1].selection_bias = floats(&used, EXPERTS);
    layers[1].expert_scale = floats(&used, EXPERTS);
    layers[1].expert_gate.outputs = EXPERT_WIDTH;
    layers[1].expert_gate.bias = floats(&used, EXPERTS * EXPERT_WIDTH);
    layers[1].expert_up.outputs = EXPERT_WIDTH;
    layers[1].expert_up.bias = floats(&used, EXPERTS * EXPERT_WIDTH);
    layers[1].expert_down.outputs = WIDTH;
    layers[1].expert_down.bias = floats(&used, EXPERTS * WIDTH);
    layers[1].shared_gate = projection(&used, WIDTH, 6, false);
    layers[1].shared_up = projection(&used, WIDTH, 6, false);
    layers[1].shared_down = projection(&used, 6, WIDTH, false);
    layers[1].shared_router = projection(&used, WIDTH, 1, false);
    for (uint32_t i = 0; i < used; ++i)
        pool[i] = (float)i;
    return used;
}

static void the_list_counts_every_tensor(void **state)
{
    strata__geometry geometry;
    strata__layer layers[2];
    uint64_t bytes[128], sum = 0;
    uint32_t used = make_model(&geometry, layers);
    uint32_t count = strata__weights_list(&geometry, layers, NULL);
    (void)state;
    assert_int_equal(strata__weights_list(&geometry, layers, bytes), count);
    for (uint32_t i = 0; i < count; ++i)
        sum += bytes[i];
    assert_int_equal(sum, used * 4);
}

static void a_tied_output_is_one_tensor(void **state)
{
    strata__geometry geometry;
    strata__layer layers[2];
    uint32_t count;
    (void)state;
    make_model(&geometry, layers);
    count = strata__weights_list(&geometry, layers, NULL);
    geometry.output = geometry.embedding;
    assert_int_equal(strata__weights_list(&geometry, layers, NULL), count - 2);
}

static void in_place_uses_the_packs_addresses(void **state)
{
    strata__geometry geometry;
    strata__layer layers[2];
    strata__weights weights;
    (void)state;
    make_model(&geometry, layers);
    assert_int_equal(strata__weights_init(&weights, strata__allocator_default(), &geometry, layers),
                     STRATA_OK);
    assert_ptr_equal(weights.embedding.data, geometry.embedding.data);
    assert_ptr_equal(weights.output.bias, geometry.output.bias);
    assert_ptr_equal(weights.layers[0].sinks, layers[0].sinks);
    assert_null(weights.layers[1].sinks);
    assert_null(weights.layers[1].gate.data);
    assert_ptr_equal(weights.layers[1].expert_down_bias, layers[1].expert_down.bias);
    assert_int_equal(weights.layers[1].router.outputs, EXPERTS);
    strata__weights_finish(&weights);
}

static void uploaded_tensors_are_copies_at_their_offsets(void **state)
{
    strata__geometry geometry;
    strata__layer layers[2];
    strata__weights weights;
    strata_context *context = NULL;
    strata_context_options options = {.struct_size = sizeof options};
    strata__device *device = NULL;
    strata__stream *stream = NULL;
    uint64_t bytes[128], offsets[128], used = 0;
    static uint8_t region[32768];
    uint32_t count;
    strata__weights_target target;
    (void)state;
    make_model(&geometry, layers);
    count = strata__weights_list(&geometry, layers, bytes);
    for (uint32_t i = 0; i < count; ++i) {
        offsets[i] = used;
        used += bytes[i] + 64;
    }
    assert_true(used < sizeof region);
    assert_int_equal(strata__context_create(&options, &context), STRATA_OK);
    assert_int_equal(strata__cpu_device_open(context, &device), STRATA_OK);
    assert_int_equal(device->ops->stream_create(device, &stream), STRATA_OK);
    target = (strata__weights_target){device, stream, region, offsets, count};
    memset(region, 0xee, sizeof region);
    assert_int_equal(
        strata__weights_upload(&weights, strata__allocator_default(), &geometry, layers, &target),
        STRATA_OK);
    assert_ptr_equal(weights.embedding.data, region);
    assert_memory_equal(weights.output.data, geometry.output.data, geometry.output.bytes);
    assert_memory_equal(weights.layers[1].q_norm, layers[1].q_norm, HEADS * HEAD * 4);
    assert_memory_equal(weights.layers[1].shared_router.data, layers[1].shared_router.data,
                        WIDTH * 4);
    assert_memory_equal(weights.layers[1].expert_gate_bias, layers[1].expert_gate.bias,
                        EXPERTS * EXPERT_WIDTH * 4);
    for (uint32_t i = 0; i < count; ++i)
        for (uint32_t k = 0; k < 64; ++k)
            assert_int_equal(region[offsets[i] + bytes[i] + k], 0xee);
    strata__weights_finish(&weights);
    for (int change = -1; change <= 1; change += 2) {
        target.count = count + (uint32_t)change;
        assert_int_equal(strata__weights_upload(&weights, strata__allocator_default(), &geometry,
                                                layers, &target),
                         STRATA_ERR_INTERNAL);
        strata__weights_finish(&weights);
    }
    device->ops->stream_destroy(device, stream);
    device->ops->destroy(device);
    strata__context_release(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_counts_every_tensor),
        cmocka_unit_test(a_tied_output_is_one_tensor),
        cmocka_unit_test(in_place_uses_the_packs_addresses),
        cmocka_unit_test(uploaded_tensors_are_copies_at_their_offsets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
