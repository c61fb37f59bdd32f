/* SPDX-License-Identifier: MIT */
/* Final norm and logits, in tiles of rows, to the caller's memory through page-locked memory. */
#include <string.h>

#include "base/error.h"
#include "session/step.h"

static strata_status norm(strata__step *step, uint32_t first, uint32_t rows, strata__rows xn,
                          float *inv_rms)
{
    strata_session *session = step->session;
    strata__norm_args args = {0};
    args.x = step->x + (uint64_t)first * session->geometry->width;
    args.weight = session->weights.output_norm;
    args.out = xn;
    args.inv_rms = inv_rms;
    args.rows = rows;
    args.width = session->geometry->width;
    args.eps = session->geometry->norm_eps;
    return session->kernels->ops->norm(session->kernels, session->stream->native, &args);
}

static strata_status project(strata__step *step, uint32_t rows, strata__rows xn, float *logits)
{
    strata_session *session = step->session;
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
    return session->kernels->ops->dense(session->kernels, session->stream->native, &args);
}

static strata_status run_tile(strata__step *step, uint32_t first, uint32_t rows, float *out)
{
    strata_session *session = step->session;
    const strata__device_ops *ops = session->device->ops;
    const strata__layout_buffer *host =
        strata__layout_find_work_host(step->work, STRATA__BUFFER_HOST_LOGITS);
    uint64_t bytes = (uint64_t)rows * session->geometry->vocabulary * sizeof *out;
    strata__taker taker = {step, STRATA_OK};
    strata__rows xn =
        strata__take_rows(&taker, STRATA__BUFFER_FINAL_XN, STRATA__BUFFER_FINAL_XN_SCALE, 0, rows);
    float *inv_rms = strata__take_needed(&taker, STRATA__BUFFER_FINAL_INV_RMS, 0, rows);
    float *logits = strata__take_needed(&taker, STRATA__BUFFER_LOGITS, 0, rows);
    strata_status status = taker.status;
    if (status == STRATA_OK && (!host || bytes > host->bytes))
        status = strata__fail(STRATA_ERR_CAPACITY,
                              "the logits of %u rows take %llu bytes of host memory, %llu are "
                              "planned",
                              rows, (unsigned long long)bytes,
                              (unsigned long long)(host ? host->bytes : 0));
    if (status == STRATA_OK)
        status = norm(step, first, rows, xn, inv_rms);
    if (status == STRATA_OK)
        status = project(step, rows, xn, logits);
    if (status == STRATA_OK)
        status =
            ops->copy(session->device, session->stream, step->host + host->offset, logits, bytes);
    if (status == STRATA_OK)
        status = ops->stream_synchronize(session->device, session->stream);
    if (status == STRATA_OK)
        memcpy(out, step->host + host->offset, bytes);
    return status;
}

strata_status strata__step_logits(strata__step *step, uint32_t first, uint32_t rows, float *out)
{
    uint32_t most = step->work->logit_tile;
    strata_status status = STRATA_OK;
    strata__step_layer(step, step->session->geometry->layers);
    for (uint32_t done = 0; done < rows && status == STRATA_OK; done += most) {
        uint32_t now = rows - done < most ? rows - done : most;
        status = run_tile(step, first + done, now,
                          out + (uint64_t)done * step->session->geometry->vocabulary);
    }
    return status;
}
