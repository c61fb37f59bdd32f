/* SPDX-License-Identifier: MIT */
/* Dense products and router logits. */
#include <math.h>
#include <stddef.h>

#include "kernels/cpu/product.h"

STRATA__CPU_TASK(dense);
STRATA__CPU_TASK(router);

/* y = (sum + bias) * alpha * factor, stored, added or stored as activation rows. */
static void finish_dense(const strata__product_job *job, const strata__product_sums *sums)
{
    const strata__dense_args *a = job->args;
    uint32_t stride = a->mode == STRATA__DENSE_STORE_ROWS ? a->weight.outputs : a->out_stride;
    float *out = a->mode == STRATA__DENSE_STORE_ROWS ? a->out_rows.data : a->out_f32;
    const float *bias = a->weight.bias ? a->weight.bias + sums->first_output : NULL;
    for (uint32_t r = 0; r < sums->group->rows; r++) {
        uint32_t row = sums->group->first_row + r;
        float *to = out + (size_t)row * stride + sums->first_output;
        const float *in = sums->sums[0] + (size_t)r * sums->stride;
        float factor = a->row_factor ? a->row_factor[row] : 1.0f;
        for (uint32_t n = 0; n < sums->outputs; n++) {
            float y = (bias ? in[n] + bias[n] : in[n]) * a->alpha * factor;
            to[n] = a->mode == STRATA__DENSE_ADD_F32 ? to[n] + y : y;
        }
    }
}

static void run_dense(const void *arguments)
{
    const dense_task *task = arguments;
    const strata__dense_args *a = &task->args;
    strata__product_job job = {
        .cpu = task->cpu,
        .args = a,
        .finish = finish_dense,
        .inputs = a->weight.inputs,
        .outputs = a->weight.outputs,
        .matrices = 1,
        .formats = {a->weight.format},
        .rows = a->in.data,
        .few = a->few,
        .scratch = a->scratch,
    };
    strata__product_add(&job, a->weight.data, NULL, 0, 0, a->rows);
    strata__product_flush(&job);
}

strata_status strata__cpu_dense(strata__kernels *kernels, void *stream,
                                const strata__dense_args *args)
{
    strata_status status =
        strata__cpu_check_weight("dense", args->weight.format, args->weight.inputs);
    if (!status)
        status = strata__product_check_scratch("dense", &args->scratch, args->weight.inputs);
    return status || !args->rows ? status : dense_enqueue(kernels, stream, args, run_dense);
}

static void finish_router(const strata__product_job *job, const strata__product_sums *sums)
{
    const strata__router_args *a = job->args;
    const float *bias = a->weight.bias ? a->weight.bias + sums->first_output : NULL;
    for (uint32_t r = 0; r < sums->group->rows; r++) {
        float *to = a->logits + (size_t)(sums->group->first_row + r) * a->weight.outputs +
                    sums->first_output;
        const float *in = sums->sums[0] + (size_t)r * sums->stride;
        for (uint32_t n = 0; n < sums->outputs; n++) {
            float y = bias ? in[n] + bias[n] : in[n];
            to[n] = a->sigmoid ? (float)(1.0 / (1.0 + exp(-(double)y))) : y;
        }
    }
}

static void run_router(const void *arguments)
{
    const router_task *task = arguments;
    const strata__router_args *a = &task->args;
    strata__product_job job = {
        .cpu = task->cpu,
        .args = a,
        .finish = finish_router,
        .inputs = a->weight.inputs,
        .outputs = a->weight.outputs,
        .matrices = 1,
        .formats = {a->weight.format},
        .rows = a->x,
        .row_factor = a->inv_rms,
        .gain = a->norm,
        .scratch = a->scratch,
    };
    strata__product_add(&job, a->weight.data, NULL, 0, 0, a->rows);
    strata__product_flush(&job);
}

strata_status strata__cpu_router(strata__kernels *kernels, void *stream,
                                 const strata__router_args *args)
{
    strata_status status =
        strata__cpu_check_weight("router", args->weight.format, args->weight.inputs);
    if (!status)
        status = strata__product_check_scratch("router", &args->scratch, args->weight.inputs);
    return status || !args->rows ? status : router_enqueue(kernels, stream, args, run_router);
}
