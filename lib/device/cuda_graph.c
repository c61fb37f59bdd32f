/* SPDX-License-Identifier: MIT */
/* Graphs of the CUDA device: what a stream is given between begin and end, launched as one. */
#include "base/error.h"
#include "device/cuda_device.h"

struct strata__device_graph {
    cudaGraphExec_t native;
};

static cudaStream_t native_of(const strata__stream *stream)
{
    return (cudaStream_t)stream->native;
}

strata_status strata__cuda_capture_begin(strata__device *device, strata__stream *stream)
{
    (void)device;
    if (!stream->native || native_of(stream) == cudaStreamLegacy)
        return strata__fail(STRATA_ERR_UNSUPPORTED,
                            "cuda: work of the legacy default stream cannot be captured");
    /* Relaxed: the thread may go on to use other streams while it records. */
    return strata__cuda_device_status(
        cudaStreamBeginCapture(native_of(stream), cudaStreamCaptureModeRelaxed),
        "beginning to capture a graph");
}

/* Ready to run, with what it needs on the device. */
static strata_status instantiate(cudaGraph_t graph, cudaStream_t stream, cudaGraphExec_t *out)
{
    cudaGraphExec_t native = NULL;
    strata_status status = strata__cuda_device_status(cudaGraphInstantiate(&native, graph, 0),
                                                      "instantiating a graph");
    if (status != STRATA_OK)
        return status;
    status = strata__cuda_device_status(cudaGraphUpload(native, stream), "uploading a graph");
    if (status != STRATA_OK)
        (void)cudaGraphExecDestroy(native);
    else
        *out = native;
    return status;
}

strata_status strata__cuda_capture_end(strata__device *device, strata__stream *stream,
                                       strata__device_graph **out)
{
    const strata__allocator *allocator = &device->context->allocator;
    cudaGraph_t graph = NULL;
    strata__device_graph *made = NULL;
    strata_status status = strata__cuda_device_status(
        cudaStreamEndCapture(native_of(stream), &graph), "ending the capture of a graph");
    if (status == STRATA_OK && out) {
        made = strata__calloc(allocator, 1, sizeof *made);
        status = made ? instantiate(graph, native_of(stream), &made->native)
                      : strata__fail_memory(sizeof *made, "a graph");
    }
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (status != STRATA_OK && made)
        strata__free(allocator, made, sizeof *made);
    else if (out)
        *out = made;
    return status;
}

strata_status strata__cuda_graph_launch(strata__device *device, strata__device_graph *graph,
                                        strata__stream *stream)
{
    (void)device;
    return strata__cuda_device_status(cudaGraphLaunch(graph->native, native_of(stream)),
                                      "launching a graph");
}

void strata__cuda_graph_destroy(strata__device *device, strata__device_graph *graph)
{
    if (!graph)
        return;
    (void)cudaGraphExecDestroy(graph->native);
    strata__free(&device->context->allocator, graph, sizeof *graph);
}
