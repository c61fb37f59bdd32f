/* SPDX-License-Identifier: MIT */
/*
 * Dense and expert products: which kernels run, and in how many passes the scratch allows.
 *
 * A pass decodes as many whole experts as the scratch holds and multiplies their rows; when it does
 * not hold one expert, the passes go over slabs of its outputs. Results that become activation rows
 * are stored with scale 1; a value beyond half's range raises its row's scale, and a second
 * product, which without such rows only looks at the scales, writes these rows again.
 *
 * Dense products of at most STRATA__DIRECT_ROWS rows read the blocks in place, others are decoded:
 * the bits of a row depend on that, and on nothing else of the rows around it.
 */
#include "base/bounds.h"
#include "kernels/cuda/few.h"
#include "kernels/cuda/int8.h"

namespace
{

/* A product before it is cut in passes. */
struct product_job {
    const strata__cuda_state *state;
    cudaStream_t stream;
    strata__cuda_matrix matrix[2];
    uint32_t matrices;
    strata__product_args product; /* image, slabs, end and fix are set by pass */
    strata__scratch scratch;
};

bool makes_rows(const product_job &job)
{
    return job.matrices == 2 || job.product.mode == STRATA__DENSE_STORE_ROWS;
}

strata_status format_status(uint32_t format, uint32_t inputs)
{
    const strata__format_info *info = strata__format_find(format);
    if (!info)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "cuda: weights of type %u", format);
    if (inputs == 0 || inputs % info->block_values || inputs % 8)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "cuda: rows of %u values in %s", inputs,
                            info->name);
    return STRATA_OK;
}

strata_status job_status(const product_job &job)
{
    for (uint32_t m = 0; m < job.matrices; m++) {
        strata_status status = format_status(job.matrix[m].format, job.product.inputs);
        if (status != STRATA_OK)
            return status;
    }
    if (job.matrices == 2 && job.product.outputs % 8)
        return strata__fail(STRATA_ERR_UNSUPPORTED, "cuda: %u hidden values: not a multiple of 8",
                            job.product.outputs);
    return STRATA_OK;
}

strata_status multiply(const product_job &job, const strata__product_args &args)
{
    const strata__cuda_state *state = job.state;
#if defined(STRATA__HAVE_SM90A)
    if (state->hopper_products)
        return strata__cuda_product_sm90(state, job.stream, job.matrices == 2, &args);
#endif
    return strata__cuda_product_sm80(state->multiprocessors, job.stream, job.matrices == 2, &args);
}

/* Experts [skip, skip + experts) of the job, slabs [first_slab, first_slab + slabs). */
struct pass {
    uint32_t skip, experts, first_slab, slabs;
};

strata__cuda_range range_of(const product_job &job, const pass &p)
{
    strata__cuda_range range = job.product.range;
    range.offsets = range.offsets ? range.offsets + p.skip : nullptr;
    range.first_expert += p.skip;
    range.experts = p.experts;
    return range;
}

strata_status decode_pass(const product_job &job, const pass &p, bool reset_scales, bool fix)
{
    strata__decode_args args = {};
    args.matrix[0] = job.matrix[0];
    args.matrix[1] = job.matrix[1];
    args.range = range_of(job, p);
    args.image = static_cast<uint8_t *>(job.scratch.data);
    args.row_scale = reset_scales ? job.product.out_scale : nullptr;
    args.only = fix ? job.product.out_scale : nullptr;
    args.matrices = job.matrices;
    args.inputs = job.product.inputs;
    args.outputs = job.product.outputs;
    args.first_slab = p.first_slab;
    args.slabs = p.slabs;
    return strata__cuda_decode(job.state, job.stream, &args);
}

strata_status multiply_pass(const product_job &job, const pass &p, bool fix)
{
    strata__product_args args = job.product;
    uint32_t end = (p.first_slab + p.slabs) * (STRATA__SLAB_ROWS / job.matrices);
    args.range = range_of(job, p);
    args.image = static_cast<const uint8_t *>(job.scratch.data);
    args.first_slab = p.first_slab;
    args.slabs = p.slabs;
    args.end = end < args.outputs ? end : args.outputs;
    args.fix = fix;
    return multiply(job, args);
}

/* Whole experts: what is decoded serves both products. */
strata_status run_experts(const product_job &job, uint32_t per_pass, uint32_t slabs)
{
    strata_status status = STRATA_OK;
    uint32_t experts = job.product.range.experts;
    for (uint32_t skip = 0; skip < experts && status == STRATA_OK; skip += per_pass) {
        uint32_t left = experts - skip;
        pass p = {skip, left < per_pass ? left : per_pass, 0, slabs};
        status = decode_pass(job, p, makes_rows(job) && skip == 0, false);
        if (status == STRATA_OK)
            status = multiply_pass(job, p, false);
        if (status == STRATA_OK && makes_rows(job))
            status = multiply_pass(job, p, true);
    }
    return status;
}

/* One expert after the other in pieces of `per_pass` slabs; the second product decodes again. */
strata_status run_slabs(const product_job &job, uint32_t per_pass, uint32_t slabs)
{
    strata_status status = STRATA_OK;
    uint32_t rounds = makes_rows(job) ? 2 : 1;
    for (uint32_t skip = 0; skip < job.product.range.experts; skip++)
        for (uint32_t round = 0; round < rounds; round++)
            for (uint32_t slab = 0; slab < slabs && status == STRATA_OK; slab += per_pass) {
                pass p = {skip, 1, slab, slabs - slab < per_pass ? slabs - slab : per_pass};
                bool first = makes_rows(job) && skip == 0 && round == 0 && slab == 0;
                status = decode_pass(job, p, first, round == 1);
                if (status == STRATA_OK)
                    status = multiply_pass(job, p, round == 1);
            }
    return status;
}

/*
 * Experts of a pass when not all fit: a launch takes as long as its last round of tiles, so fewer
 * that fill whole rounds can be better. In units of the time of a block of values; PASS_COST is
 * about what three launches cost, TILE_COST what a tile costs beside its products.
 */
uint32_t experts_of_pass(const product_job &job, uint32_t capacity, uint32_t slabs)
{
    constexpr uint32_t PASS_COST = 20, TILE_COST = 4;
    const strata__cuda_range &range = job.product.range;
    uint64_t columns = job.state->hopper_products ? (slabs + 1) / 2 : slabs;
    uint64_t k_blocks = (job.product.inputs + STRATA__BLOCK_VALUES - 1) / STRATA__BLOCK_VALUES;
    /* Half a tile of rows more than the mean: the last one is half full. */
    uint64_t expert_tiles = (2ull * range.rows / range.experts / STRATA__TILE_ROWS + 1) * columns;
    uint32_t best = capacity;
    uint64_t best_cost = UINT64_MAX;
    if (capacity >= range.experts)
        return range.experts;
    for (uint32_t n = capacity; n > 0 && n >= capacity / 2; n--) {
        uint64_t rounds =
            (n * expert_tiles / 2 + job.state->multiprocessors - 1) / job.state->multiprocessors;
        uint64_t cost = (rounds * (k_blocks + TILE_COST) + PASS_COST) * 4096 / n;
        if (cost < best_cost) {
            best = n;
            best_cost = cost;
        }
    }
    return best;
}

strata_status run_decoded(const product_job &job)
{
    uint64_t k_blocks = (job.product.inputs + STRATA__BLOCK_VALUES - 1) / STRATA__BLOCK_VALUES;
    uint64_t slab_bytes = k_blocks * STRATA__BLOCK_BYTES, capacity = job.scratch.bytes / slab_bytes;
    uint32_t slab_rows = STRATA__SLAB_ROWS / job.matrices;
    uint32_t slabs = (job.product.outputs + slab_rows - 1) / slab_rows;
    if (capacity == 0)
        return strata__fail(STRATA_ERR_BUFFER_TOO_SMALL,
                            "cuda: %llu bytes of scratch for decoded weights: at least %llu",
                            (unsigned long long)job.scratch.bytes, (unsigned long long)slab_bytes);
    if (capacity < slabs)
        return run_slabs(job, (uint32_t)(capacity > 1 ? capacity & ~1ull : 1), slabs);
    capacity /= slabs;
    if (capacity > STRATA__PASS_EXPERTS)
        capacity = STRATA__PASS_EXPERTS;
    return run_experts(job, experts_of_pass(job, (uint32_t)capacity, slabs), slabs);
}

strata_status run_direct(const product_job &job)
{
    strata__direct_args args = {};
    strata_status status = STRATA_OK;
    args.matrix[0] = job.matrix[0];
    args.matrix[1] = job.matrix[1];
    args.matrices = job.matrices;
    args.product = job.product;
    args.product.end = job.product.outputs;
    if (makes_rows(job))
        status = strata__cuda_fill_values(job.stream, job.product.out_scale, job.product.range.rows,
                                          1.0f);
    if (status == STRATA_OK)
        status = strata__cuda_direct(job.stream, &args);
    args.product.fix = 1;
    if (status == STRATA_OK && makes_rows(job))
        status = strata__cuda_direct(job.stream, &args);
    return status;
}

strata__cuda_range range_of_experts(const strata__expert_range &from)
{
    strata__cuda_range range = {};
    range.offsets = from.offsets + from.first_expert;
    range.first_expert = from.first_expert;
    range.experts = from.last_expert - from.first_expert + 1;
    range.first_row = from.first_row;
    range.rows = from.rows;
    return range;
}

strata__cuda_matrix matrix_of_experts(const strata__expert_weight &from)
{
    strata__cuda_matrix matrix = {};
    matrix.blobs = from.blobs;
    matrix.bias = from.bias;
    matrix.format = from.format;
    return matrix;
}

strata_status path_status(uint32_t path)
{
    if (path == STRATA__PATH_FP16 || path == STRATA__PATH_DIRECT)
        return STRATA_OK;
    return strata__fail(STRATA_ERR_UNSUPPORTED, "cuda: no kernels for path %u", path);
}

} /* namespace */

strata_status strata__cuda_dense(const strata__cuda_state *state, cudaStream_t stream,
                                 const strata__dense_args *args)
{
    product_job job = {};
    job.state = state;
    job.stream = stream;
    job.matrix[0].data = args->weight.data;
    job.matrix[0].format = args->weight.format;
    job.matrices = 1;
    job.scratch = args->scratch;
    job.product.range.experts = 1;
    job.product.range.rows = args->rows;
    job.product.in = static_cast<const uint16_t *>(args->in.data);
    job.product.in_scale = args->in.scale;
    job.product.bias = args->weight.bias;
    job.product.row_factor = args->row_factor;
    job.product.out = args->out_f32;
    job.product.out_rows = static_cast<uint16_t *>(args->out_rows.data);
    job.product.out_scale = args->out_rows.scale;
    job.product.out_stride = args->out_stride;
    job.product.inputs = args->weight.inputs;
    job.product.outputs = args->weight.outputs;
    job.product.mode = args->mode;
    job.product.alpha = args->alpha;
    strata_status status = job_status(job);
    if (status != STRATA_OK || args->rows == 0)
        return status;
    if (strata__few_takes_dense(args))
        return strata__cuda_few_dense(state, stream, args);
    return args->rows <= STRATA__DIRECT_ROWS ? run_direct(job) : run_decoded(job);
}

strata_status strata__cuda_gate_up(const strata__cuda_state *state, cudaStream_t stream,
                                   const strata__gate_up_args *args)
{
    if (args->path == STRATA__PATH_FUSED || args->path == STRATA__PATH_MMQ)
        return strata__cuda_int8_gate_up(state, stream, args);
    product_job job = {};
    job.state = state;
    job.stream = stream;
    job.matrix[0] = matrix_of_experts(args->gate);
    job.matrix[1] = matrix_of_experts(args->up);
    job.matrices = 2;
    job.scratch = args->scratch;
    job.product.range = range_of_experts(args->range);
    job.product.in = static_cast<const uint16_t *>(args->in.data);
    job.product.in_scale = args->in.scale;
    job.product.in_row = args->sorted_row;
    job.product.bias = args->gate.bias;
    job.product.up_bias = args->up.bias;
    job.product.out_rows = static_cast<uint16_t *>(args->h.data);
    job.product.out_scale = args->h.scale;
    job.product.inputs = args->gate.inputs;
    job.product.outputs = args->gate.outputs;
    job.product.activation = args->activation;
    job.product.alpha = 1.0f;
    strata_status status = job_status(job);
    if (status == STRATA_OK)
        status = path_status(args->path);
    if (status != STRATA_OK || args->range.rows == 0)
        return status;
    /* The direct kernel decodes both matrices with one decoder. */
    if (args->path == STRATA__PATH_DIRECT && args->gate.format == args->up.format)
        return run_direct(job);
    return run_decoded(job);
}

strata_status strata__cuda_down(const strata__cuda_state *state, cudaStream_t stream,
                                const strata__down_args *args)
{
    if (args->path == STRATA__PATH_FUSED || args->path == STRATA__PATH_MMQ)
        return strata__cuda_int8_down(state, stream, args);
    product_job job = {};
    job.state = state;
    job.stream = stream;
    job.matrix[0] = matrix_of_experts(args->down);
    job.matrices = 1;
    job.scratch = args->scratch;
    job.product.range = range_of_experts(args->range);
    job.product.in = static_cast<const uint16_t *>(args->h.data);
    job.product.in_scale = args->h.scale;
    job.product.bias = args->down.bias;
    job.product.expert_scale = args->expert_scale;
    job.product.out = args->y;
    job.product.out_stride = args->down.outputs;
    job.product.inputs = args->down.inputs;
    job.product.outputs = args->down.outputs;
    job.product.mode = STRATA__DENSE_STORE_F32;
    job.product.alpha = 1.0f;
    strata_status status = job_status(job);
    if (status == STRATA_OK)
        status = path_status(args->path);
    if (status != STRATA_OK || args->range.rows == 0)
        return status;
    return args->path == STRATA__PATH_DIRECT ? run_direct(job) : run_decoded(job);
}

strata_status strata__cuda_embed(const strata__cuda_state *state, cudaStream_t stream,
                                 const strata__embed_args *args)
{
    strata__float_rows_args rows = {};
    strata_status status = format_status(args->table.format, args->table.inputs);
    (void)state;
    rows.table = args->table.data;
    rows.index = args->tokens;
    rows.out = args->x;
    rows.format = args->table.format;
    rows.inputs = args->table.inputs;
    rows.rows = args->rows;
    rows.scale = args->scale;
    return status == STRATA_OK ? strata__cuda_float_rows(stream, &rows) : status;
}
