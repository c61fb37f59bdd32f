/* SPDX-License-Identifier: MIT */
/* What the files of the CUDA device share. */
#ifndef STRATA_DEVICE_CUDA_DEVICE_H
#define STRATA_DEVICE_CUDA_DEVICE_H

#include <cuda_runtime_api.h>

#include "device/device.h"

typedef struct strata__cuda_device {
    strata__device base;
    int ordinal;
    unsigned register_flags;   /* of cudaHostRegister for memory that kernels only read */
    atomic_bool lacks_batches; /* the driver has no copies in batches */
} strata__cuda_device;

/*
 * Status of a code; when it is a failure the text has what was being done and the code's name. A
 * failure that leaves the device usable is taken off the runtime's record.
 */
strata_status strata__cuda_device_status(cudaError_t code, const char *what);

/* Device memory in use, by whomever; false when nobody can tell. Sets up no context. */
bool strata__cuda_used_bytes(int ordinal, uint64_t *out_bytes);

strata_status strata__cuda_stream_create(strata__device *device, strata__stream **out);
strata_status strata__cuda_stream_wrap(strata__device *device, void *native, strata__stream **out);
void strata__cuda_stream_destroy(strata__device *device, strata__stream *stream);
strata_status strata__cuda_stream_synchronize(strata__device *device, strata__stream *stream);
strata_status strata__cuda_stream_wait(strata__device *device, strata__stream *stream,
                                       strata__event *event);

strata_status strata__cuda_event_create(strata__device *device, bool timing, strata__event **out);
void strata__cuda_event_destroy(strata__device *device, strata__event *event);
strata_status strata__cuda_event_record(strata__device *device, strata__event *event,
                                        strata__stream *stream);
strata_status strata__cuda_event_query(strata__device *device, strata__event *event,
                                       bool *out_done);
strata_status strata__cuda_event_synchronize(strata__device *device, strata__event *event);
strata_status strata__cuda_event_elapsed_ns(strata__device *device, strata__event *start,
                                            strata__event *end, uint64_t *out_ns);

strata_status strata__cuda_copy(strata__device *device, strata__stream *stream, void *target,
                                const void *source, uint64_t bytes);
strata_status strata__cuda_copy_many(strata__device *device, strata__stream *stream,
                                     const strata__copies *copies);
strata_status strata__cuda_fill(strata__device *device, strata__stream *stream, void *target,
                                uint8_t byte, uint64_t bytes);

strata_status strata__cuda_capture_begin(strata__device *device, strata__stream *stream);
strata_status strata__cuda_capture_end(strata__device *device, strata__stream *stream,
                                       strata__device_graph **out);
strata_status strata__cuda_graph_launch(strata__device *device, strata__device_graph *graph,
                                        strata__stream *stream);
void strata__cuda_graph_destroy(strata__device *device, strata__device_graph *graph);

#endif
