/* SPDX-License-Identifier: MIT */
/* Final norm and logits, in tiles of rows, to the caller's memory through page-locked memory. */
#include <string.h>

#include "base/error.h"
#include "session/step.h"

static strata__dense_args output_args(const strata__step *step, uint32_t rows, strata__rows xn,
                                      float *logits)
{
    const strata_session *session = step->session;
    strata__taker taker = {step, STRATA_OK};
    strata__dense_args args = {0};
    args.weight = session->weights.output;
    args.in = xn;
    args.out_f32 = logits;
    args.scratch = strata__take_scratch(&taker, STRATA__BUFFER_LOGIT_SCRATCH);
    args.rows = rows;
    args.out_stride = session->geometry->vocabulary;
    args.mode = STRATA__DENSE_STORE_F32;
    args.alpha = session->geometry->logit_scale;
    args.few = step->is_decode;
    return args;
}

/* Rows of logits in page-locked memory; NULL when there is no room for so many. */
static float *host_logits(const strata__step *step, uint32_t rows)
{
    const strata__layout_buffer *host =
        strata__layout_find_work_host(step->work, STRATA__BUFFER_HOST_LOGITS);
    if (host && rows <= host->row_capacity)
        return (float *)(step->host + host->offset);
    (void)strata__fail(STRATA_ERR_CAPACITY,
                       "the logits of %u rows in host memory, planned for %llu", rows,
                       (unsigned long long)(host ? host->row_capacity : 0));
    return NULL;
}

strata_status strata__step_enqueue_logits(strata__step *step, uint32_t first, uint32_t rows)
{
    strata_session *session = step->session;
    uint64_t vocabulary = session->geometry->vocabulary;
    strata__taker taker = {step, STRATA_OK};
    strata__rows xn =
        strata__take_rows(&taker, STRATA__BUFFER_FINAL_XN, STRATA__BUFFER_FINAL_XN_SCALE, 0, rows);
    float *inv_rms = strata__take_needed(&taker, STRATA__BUFFER_FINAL_INV_RMS, 0, rows);
    float *logits = strata__take_needed(&taker, STRATA__BUFFER_LOGITS, 0, rows);
    float *host = host_logits(step, rows);
    strata__project_args args = {.part_count = 1};
    strata_status status = taker.status;
    if (status == STRATA_OK && !host)
        status = STRATA_ERR_CAPACITY;
    if (status != STRATA_OK)
        return status;
    args.norm = strata__step_norm(step, session->weights.output_norm, first, rows);
    args.norm.out = xn;
    args.norm.inv_rms = inv_rms;
    args.parts[0] = output_args(step, rows, xn, logits);
    status = step->is_blind
                 ? session->kernels->ops->project(session->kernels, session->stream->native, &args)
                 : strata__compose_project(session->kernels, session->stream->native, &args);
    if (status != STRATA_OK)
        return status;
    return session->device->ops->copy(session->device, session->stream, host, logits,
                                      rows * vocabulary * sizeof *host);
}

const float *strata__step_host_logits(const strata__step *step, uint32_t row)
{
    return host_logits(step, 1) + (uint64_t)row * step->session->geometry->vocabulary;
}

strata_status strata__step_logits(strata__step *step, uint32_t first, uint32_t rows, float *out)
{
    strata_session *session = step->session;
    uint64_t vocabulary = session->geometry->vocabulary;
    uint32_t most = step->work->logit_tile;
    strata_status status = STRATA_OK;
    strata__step_layer(step, session->geometry->layers);
    for (uint32_t done = 0; done < rows && status == STRATA_OK; done += most) {
        uint32_t now = rows - done < most ? rows - done : most;
        status = strata__step_enqueue_logits(step, first + done, now);
        if (status == STRATA_OK)
            status = session->device->ops->stream_synchronize(session->device, session->stream);
        if (status == STRATA_OK)
            memcpy(out + done * vocabulary, strata__step_host_logits(step, 0),
                   now * vocabulary * sizeof *out);
    }
    return status;
}
