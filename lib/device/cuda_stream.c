/* SPDX-License-Identifier: MIT */
/* Streams, events and copies of the CUDA device. */
#include "base/error.h"
#include "device/cuda_device.h"

typedef struct cuda_stream {
    strata__stream base;
    bool owned;
} cuda_stream;

struct strata__event {
    cudaEvent_t native;
    bool recorded;
};

static const strata__allocator *allocator_of(const strata__device *device)
{
    return &device->context->allocator;
}

static cudaStream_t native_of(const strata__stream *stream)
{
    return (cudaStream_t)stream->native;
}

static strata_status new_stream(strata__device *device, void *native, bool owned,
                                strata__stream **out)
{
    cuda_stream *stream = strata__calloc(allocator_of(device), 1, sizeof *stream);
    if (!stream)
        return strata__fail_memory(sizeof *stream, "a stream");
    stream->base.native = native;
    stream->owned = owned;
    *out = &stream->base;
    return STRATA_OK;
}

strata_status strata__cuda_stream_create(strata__device *device, strata__stream **out)
{
    cudaStream_t native;
    strata_status status = strata__cuda_device_status(
        cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking), "creating a stream");
    if (status != STRATA_OK)
        return status;
    status = new_stream(device, native, true, out);
    if (status != STRATA_OK)
        (void)cudaStreamDestroy(native);
    return status;
}

strata_status strata__cuda_stream_wrap(strata__device *device, void *native, strata__stream **out)
{
    return new_stream(device, native, false, out);
}

void strata__cuda_stream_destroy(strata__device *device, strata__stream *stream)
{
    if (!stream)
        return;
    if (((cuda_stream *)stream)->owned)
        (void)cudaStreamDestroy(native_of(stream));
    strata__free(allocator_of(device), stream, sizeof(cuda_stream));
}

strata_status strata__cuda_stream_synchronize(strata__device *device, strata__stream *stream)
{
    (void)device;
    return strata__cuda_device_status(cudaStreamSynchronize(native_of(stream)),
                                      "waiting for a stream");
}

strata_status strata__cuda_event_create(strata__device *device, bool timing, strata__event **out)
{
    strata__event *event = strata__calloc(allocator_of(device), 1, sizeof *event);
    strata_status status;
    if (!event)
        return strata__fail_memory(sizeof *event, "an event");
    status = strata__cuda_device_status(
        cudaEventCreateWithFlags(&event->native,
                                 timing ? cudaEventDefault : cudaEventDisableTiming),
        "creating an event");
    if (status != STRATA_OK) {
        strata__free(allocator_of(device), event, sizeof *event);
        return status;
    }
    *out = event;
    return STRATA_OK;
}

void strata__cuda_event_destroy(strata__device *device, strata__event *event)
{
    if (!event)
        return;
    (void)cudaEventDestroy(event->native);
    strata__free(allocator_of(device), event, sizeof *event);
}

strata_status strata__cuda_event_record(strata__device *device, strata__event *event,
                                        strata__stream *stream)
{
    strata_status status = strata__cuda_device_status(
        cudaEventRecord(event->native, native_of(stream)), "recording an event");
    (void)device;
    if (status == STRATA_OK)
        event->recorded = true;
    return status;
}

/* The runtime takes an event that was never recorded for a finished one. */
static strata_status require_recorded(const strata__event *event)
{
    if (!event->recorded)
        return strata__fail(STRATA_ERR_INTERNAL, "cuda: an event is used before it is recorded");
    return STRATA_OK;
}

strata_status strata__cuda_event_query(strata__device *device, strata__event *event, bool *out_done)
{
    strata_status status = require_recorded(event);
    cudaError_t code;
    (void)device;
    if (status != STRATA_OK)
        return status;
    code = cudaEventQuery(event->native);
    *out_done = code == cudaSuccess;
    if (code == cudaErrorNotReady)
        return STRATA_OK;
    return strata__cuda_device_status(code, "asking for an event");
}

strata_status strata__cuda_event_synchronize(strata__device *device, strata__event *event)
{
    strata_status status = require_recorded(event);
    (void)device;
    if (status != STRATA_OK)
        return status;
    return strata__cuda_device_status(cudaEventSynchronize(event->native), "waiting for an event");
}

strata_status strata__cuda_event_elapsed_ns(strata__device *device, strata__event *start,
                                            strata__event *end, uint64_t *out_ns)
{
    float milliseconds = 0;
    strata_status status = require_recorded(start);
    (void)device;
    if (status == STRATA_OK)
        status = require_recorded(end);
    if (status == STRATA_OK)
        status = strata__cuda_device_status(
            cudaEventElapsedTime(&milliseconds, start->native, end->native), "timing two events");
    if (status == STRATA_OK)
        *out_ns = milliseconds > 0 ? (uint64_t)((double)milliseconds * 1e6) : 0;
    return status;
}

strata_status strata__cuda_stream_wait(strata__device *device, strata__stream *stream,
                                       strata__event *event)
{
    strata_status status = require_recorded(event);
    (void)device;
    if (status != STRATA_OK)
        return status;
    return strata__cuda_device_status(cudaStreamWaitEvent(native_of(stream), event->native, 0),
                                      "making a stream wait");
}

strata_status strata__cuda_copy(strata__device *device, strata__stream *stream, void *target,
                                const void *source, uint64_t bytes)
{
    (void)device;
    if (!bytes)
        return STRATA_OK;
    return strata__cuda_device_status(
        cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, native_of(stream)), "copying");
}

/* In one call, which leaves the link less to do between copies than many calls. */
static cudaError_t copy_batch(const strata__copies *copies, cudaStream_t stream)
{
#if CUDART_VERSION >= 12080
    struct cudaMemcpyAttributes attributes = {.srcAccessOrder = cudaMemcpySrcAccessOrderStream};
    size_t first = 0;
#if CUDART_VERSION >= 13000
    return cudaMemcpyBatchAsync(copies->targets, copies->sources, copies->bytes, copies->count,
                                &attributes, &first, 1, stream);
#else
    size_t failed;
    return cudaMemcpyBatchAsync(copies->targets, (void **)copies->sources, copies->bytes,
                                copies->count, &attributes, &first, 1, &failed, stream);
#endif
#else
    (void)copies;
    (void)stream;
    return cudaErrorNotSupported;
#endif
}

strata_status strata__cuda_copy_many(strata__device *device, strata__stream *stream,
                                     const strata__copies *copies)
{
    strata__cuda_device *cuda = (strata__cuda_device *)device;
    strata_status status = STRATA_OK;
    if (copies->count > 1 && !atomic_load_explicit(&cuda->lacks_batches, memory_order_relaxed)) {
        cudaError_t code = copy_batch(copies, native_of(stream));
        if (code != cudaErrorNotSupported && code != cudaErrorCallRequiresNewerDriver)
            return strata__cuda_device_status(code, "copying in a batch");
        (void)cudaGetLastError();
        atomic_store_explicit(&cuda->lacks_batches, true, memory_order_relaxed);
    }
    for (uint64_t i = 0; i < copies->count && status == STRATA_OK; ++i)
        status = strata__cuda_copy(device, stream, copies->targets[i], copies->sources[i],
                                   copies->bytes[i]);
    return status;
}

strata_status strata__cuda_fill(strata__device *device, strata__stream *stream, void *target,
                                uint8_t byte, uint64_t bytes)
{
    (void)device;
    if (!bytes)
        return STRATA_OK;
    return strata__cuda_device_status(cudaMemsetAsync(target, byte, bytes, native_of(stream)),
                                      "filling");
}
