/* SPDX-License-Identifier: MIT */
/* From an index of tensors to a model: facts of the whole, then layer by layer. */
#include <string.h>

#include "base/error.h"
#include "pack/architecture.h"

enum { MAX_WIDTH = 1 << 20, MAX_VOCABULARY = 1 << 24 };

static strata_status read_sizes(strata__model *model)
{
    static const strata__key blocks = {"block_count", 1, STRATA__MAX_LAYERS, true};
    static const strata__key width = {"embedding_length", 1, MAX_WIDTH, true};
    static const strata__key context = {"context_length", 1, INT32_MAX, true};
    strata__key trailing = {"nextn_predict_layers", 0, 0, false};
    strata__geometry *geometry = model->geometry;
    uint32_t not_run = 0;
    strata_status status = strata__model_uint(model, &blocks, STRATA__NO_LAYER, &model->blocks);
    trailing.highest = (int64_t)model->blocks - 1;
    if (status == STRATA_OK)
        status = strata__model_uint(model, &trailing, STRATA__NO_LAYER, &not_run);
    if (status == STRATA_OK)
        status = strata__model_uint(model, &width, STRATA__NO_LAYER, &geometry->width);
    if (status == STRATA_OK)
        status = strata__model_uint(model, &context, STRATA__NO_LAYER, &geometry->context_tokens);
    if (status == STRATA_OK)
        status = strata__model_float(model, "attention.layer_norm_rms_epsilon", true, 0,
                                     &geometry->norm_eps);
    geometry->layers = model->blocks - not_run;
    return status;
}

static strata_status read_expert_counts(strata__model *model)
{
    static const strata__key experts = {"expert_count", 1, STRATA__MAX_EXPERTS, true};
    strata__key used = {"expert_used_count", 1, STRATA__MAX_TOP_K, true};
    strata__key dense = {"leading_dense_block_count", 0, 0, false};
    static const strata__key step = {"interleave_moe_layer_step", 1, STRATA__MAX_LAYERS, false};
    strata__geometry *geometry = model->geometry;
    strata_status status =
        strata__model_uint(model, &experts, STRATA__NO_LAYER, &geometry->experts);
    if (geometry->experts < STRATA__MAX_TOP_K)
        used.highest = geometry->experts;
    if (status == STRATA_OK)
        status = strata__model_uint(model, &used, STRATA__NO_LAYER, &geometry->top_k);
    dense.highest = (int64_t)geometry->layers - 1; /* at least one layer has experts */
    if (status == STRATA_OK && model->architecture->leading_dense)
        status = strata__model_uint(model, &dense, STRATA__NO_LAYER, &model->leading_dense);
    if (status == STRATA_OK && model->architecture->expert_step)
        status = strata__model_uint(model, &step, STRATA__NO_LAYER, &model->expert_step);
    return status;
}

static strata_status read_groups(strata__model *model)
{
    static const strata__key groups = {"expert_group_count", 0, STRATA__MAX_EXPERTS, false};
    strata__key used = {"expert_group_used_count", 1, 0, true};
    strata__geometry *geometry = model->geometry;
    const char *name = model->architecture->name;
    uint32_t size;
    strata_status status =
        strata__model_uint(model, &groups, STRATA__NO_LAYER, &geometry->expert_groups);
    if (status != STRATA_OK || geometry->expert_groups <= 1)
        return status;
    size = geometry->experts / geometry->expert_groups;
    if (geometry->experts % geometry->expert_groups || size < 2)
        return strata__fail(STRATA_ERR_FORMAT,
                            "key %s.expert_group_count: %" PRIu32
                            " groups of at least two do not divide %" PRIu32 " experts",
                            name, geometry->expert_groups, geometry->experts);
    used.highest = geometry->expert_groups;
    status = strata__model_uint(model, &used, STRATA__NO_LAYER, &geometry->expert_groups_used);
    if (status == STRATA_OK && geometry->top_k > geometry->expert_groups_used * size)
        return strata__fail(STRATA_ERR_FORMAT,
                            "key %s.expert_group_used_count: %" PRIu32 " groups of %" PRIu32
                            " experts are fewer than the %" PRIu32 " experts of a token",
                            name, geometry->expert_groups_used, size, geometry->top_k);
    return status;
}

static strata_status read_gating(strata__model *model)
{
    const strata__architecture *facts = model->architecture;
    strata__key key = {"expert_gating_func", STRATA__GATING_SOFTMAX,
                       STRATA__GATING_SOFTMAX_SELECTED, false};
    strata__geometry *geometry = model->geometry;
    bool normalise = facts->normalise == STRATA__NORMALISE_ALWAYS;
    strata_status status;
    geometry->gating = facts->gating;
    if (!facts->gating_key) /* a file that says otherwise is another model */
        key.lowest = key.highest = facts->gating;
    status = strata__model_uint(model, &key, STRATA__NO_LAYER, &geometry->gating);
    if (status == STRATA_OK && facts->normalise == STRATA__NORMALISE_BY_KEY)
        status = strata__model_bool(model, "expert_weights_norm", &normalise);
    geometry->normalise_weights = normalise;
    if (status == STRATA_OK && facts->scale_key)
        status = strata__model_float(model, "expert_weights_scale", false, -1e-30,
                                     &geometry->expert_weight_scale);
    if (geometry->expert_weight_scale == 0)
        geometry->expert_weight_scale = 1;
    return status;
}

static strata_status refuse_clamp(const strata__model *model)
{
    float clamp = 0;
    strata_status status = strata__model_float(model, "attention.clamp_kqv", false, -1e-30, &clamp);
    if (status == STRATA_OK && clamp != 0)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "key %s.attention.clamp_kqv is %g; this "
                            "architecture is run without it",
                            model->architecture->name, (double)clamp);
    return status;
}

static strata_status read_geometry(strata__model *model)
{
    strata__geometry *geometry = model->geometry;
    strata_status status;
    geometry->residual_streams = 1;
    geometry->activation = model->architecture->activation;
    geometry->expert_weight_scale = geometry->embedding_scale = 1;
    geometry->residual_scale = geometry->logit_scale = 1;
    model->expert_step = 1;
    model->rope_style = model->architecture->rope_style;
    status = read_sizes(model);
    if (status == STRATA_OK)
        status = read_expert_counts(model);
    if (status == STRATA_OK)
        status = read_groups(model);
    if (status == STRATA_OK)
        status = read_gating(model);
    if (status == STRATA_OK)
        status = refuse_clamp(model);
    if (status == STRATA_OK && model->architecture->read_keys)
        status = model->architecture->read_keys(model);
    return status;
}

/* Rows of the embedding: as many as the vocabulary has tokens, or what the tensor says. */
static strata_status find_vocabulary(strata__model *model)
{
    const strata__tensor *embedding = strata__pack_tensor_find(model->pack, "token_embd.weight");
    uint64_t tokens = strata__pack_token_count(model->pack);
    if (tokens == 0 && embedding)
        tokens = embedding->shape[1];
    if (tokens > MAX_VOCABULARY)
        return strata__fail(STRATA_ERR_FORMAT,
                            "tensor token_embd.weight: %" PRIu64 " tokens, more than %d", tokens,
                            MAX_VOCABULARY);
    model->geometry->vocabulary = (uint32_t)tokens;
    return STRATA_OK;
}

static strata_status load_ends(strata__model *model)
{
    strata__geometry *geometry = model->geometry;
    strata__projection_want embedding = {"token_embd",     geometry->width, geometry->vocabulary, 0,
                                         STRATA__REQUIRED, STRATA__NEVER};
    strata__projection_want output = {"output", geometry->width,  geometry->vocabulary,
                                      0,        STRATA__OPTIONAL, STRATA__NEVER};
    strata__want norm = {"output_norm.weight", {geometry->width, 1, 1}, STRATA__REQUIRED};
    strata_status status =
        strata__model_projection(model, STRATA__NO_LAYER, &embedding, &geometry->embedding);
    if (status == STRATA_OK)
        status = strata__model_floats(model, STRATA__NO_LAYER, &norm, &geometry->output_norm);
    if (status == STRATA_OK)
        status = strata__model_projection(model, STRATA__NO_LAYER, &output, &geometry->output);
    if (!geometry->output.data)
        geometry->output = geometry->embedding;
    return status;
}

static strata_status load_layers(strata__model *model)
{
    strata_status status = STRATA_OK;
    uint64_t ends_bytes = 0;
    for (uint32_t i = 0; status == STRATA_OK && i < model->geometry->layers; i++) {
        strata__layer *layer = &model->layers[i];
        model->layer = i;
        model->dense_bytes = &layer->dense_bytes;
        status = model->architecture->load_attention(model, layer);
        if (status == STRATA_OK)
            status = model->architecture->load_ffn(model, layer);
        model->geometry->dense_bytes += layer->dense_bytes;
    }
    model->dense_bytes = &ends_bytes;
    if (status == STRATA_OK)
        status = load_ends(model);
    model->geometry->dense_bytes += ends_bytes;
    return status;
}

/* Whether the tensor belongs to a trailing block that is not run. */
static bool in_trailing_block(const strata__model *model, const char *name)
{
    uint32_t number = 0;
    if (strncmp(name, "blk.", 4) != 0)
        return false;
    for (name += 4; *name >= '0' && *name <= '9' && number <= STRATA__MAX_LAYERS; name++)
        number = number * 10 + (uint32_t)(*name - '0');
    return *name == '.' && number >= model->geometry->layers && number < model->blocks;
}

/* A tensor that the graph has no place for would change the result: the model is another one. */
static strata_status check_unused(const strata__model *model)
{
    for (uint32_t i = 0; i < model->pack->tensors.count; i++) {
        const strata__tensor *tensor = strata__pack_tensors(model->pack) + i;
        if (!model->used[i] && !in_trailing_block(model, tensor->name))
            return strata__fail(STRATA_ERR_UNSUPPORTED,
                                "tensor %s has no place in the %s architecture", tensor->name,
                                model->architecture->name);
    }
    return STRATA_OK;
}

static strata_status build(strata__model *model)
{
    strata__pack *pack = model->pack;
    uint64_t bytes;
    strata_status status = read_geometry(model);
    if (status == STRATA_OK)
        status = find_vocabulary(model);
    if (status != STRATA_OK)
        return status;
    bytes = model->geometry->layers * sizeof(strata__layer);
    model->layers = strata__pool_alloc(&pack->pool, bytes);
    if (!model->layers)
        return strata__fail_memory(bytes, "the layers");
    pack->layers = model->layers;
    status = load_layers(model);
    return status == STRATA_OK ? check_unused(model) : status;
}

strata_status strata__model_build(strata__pack *pack)
{
    strata__model model = {.pack = pack, .geometry = &pack->geometry};
    uint64_t flags = pack->tensors.count;
    strata_status status;
    if (!pack->architecture[0])
        return strata__fail(STRATA_ERR_UNSUPPORTED, "key general.architecture is missing");
    model.architecture = strata__architecture_find(pack->architecture);
    if (!model.architecture)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "architecture \"%.64s\" is not known",
                            pack->architecture);
    model.used = strata__calloc(strata__pack_allocator(pack), flags, 1);
    if (!model.used)
        return strata__fail_memory(flags, "the marks of used tensors");
    status = build(&model);
    strata__free(strata__pack_allocator(pack), model.used, flags);
    return status;
}
