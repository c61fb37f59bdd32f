/* SPDX-License-Identifier: MIT */
/* Graphs of the CUDA device: what was captured runs when it is launched, as often as it is. */
#include "check.h"

/* The device's header is C11. */
using std::atomic_uint;

extern "C" {
#include "device/device.h"
}

namespace
{

struct graph_setup {
    strata_context *context = nullptr;
    strata__device *device = nullptr;
    strata__stream *stream = nullptr;
    uint8_t *memory = nullptr, *host = nullptr;

    graph_setup()
    {
        strata_context_options options = {};
        options.struct_size = sizeof options;
        require(strata__context_create(&options, &context), "context");
        require(strata__cuda_device_open(context, 0, &device), "device");
        require(device->ops->stream_create(device, &stream), "stream");
        require(device->ops->alloc(device, 4096, "the test", (void **)&memory), "memory");
        require(device->ops->host_alloc(device, 4096, "the test", (void **)&host), "memory");
    }
    ~graph_setup()
    {
        device->ops->host_free(device, host, 4096);
        device->ops->free(device, memory, 4096);
        device->ops->stream_destroy(device, stream);
        device->ops->destroy(device);
        strata__context_release(context);
    }
    graph_setup(const graph_setup &) = delete;
    graph_setup &operator=(const graph_setup &) = delete;
};

/* A fill and a copy to the host: nothing happens before the launch, and what is in page-locked
 * memory then counts. */
bool launches_what_was_captured(const graph_setup &g)
{
    const strata__device_ops *ops = g.device->ops;
    strata__device_graph *graph = nullptr;
    bool ok = true;
    memset(g.host, 1, 4096);
    require(ops->capture_begin(g.device, g.stream), "capture");
    require(ops->copy(g.device, g.stream, g.memory, g.host, 1024), "copy");
    require(ops->fill(g.device, g.stream, g.memory + 512, 7, 512), "fill");
    require(ops->copy(g.device, g.stream, g.host + 2048, g.memory, 1024), "copy");
    require(ops->capture_end(g.device, g.stream, &graph), "end of capture");
    require(ops->stream_synchronize(g.device, g.stream), "waiting");
    ok = ok && g.host[2048] == 1 && g.host[3071] == 1;
    for (uint8_t value : {(uint8_t)3, (uint8_t)4}) {
        memset(g.host, value, 1024);
        require(ops->graph_launch(g.device, graph, g.stream), "launch");
        require(ops->stream_synchronize(g.device, g.stream), "waiting");
        ok = ok && g.host[2048] == value && g.host[2048 + 511] == value;
        ok = ok && g.host[2048 + 512] == 7 && g.host[3071] == 7 && g.host[3072] == 1;
    }
    ops->graph_destroy(g.device, graph);
    ops->graph_destroy(g.device, nullptr);
    return ok;
}

/* A dropped recording leaves nothing behind, and the stream works. */
bool drops_a_recording(const graph_setup &g)
{
    const strata__device_ops *ops = g.device->ops;
    memset(g.host, 9, 16);
    require(ops->fill(g.device, g.stream, g.memory, 5, 16), "fill");
    require(ops->capture_begin(g.device, g.stream), "capture");
    require(ops->fill(g.device, g.stream, g.memory, 6, 16), "fill");
    require(ops->capture_end(g.device, g.stream, nullptr), "end of capture");
    require(ops->copy(g.device, g.stream, g.host, g.memory, 16), "copy");
    require(ops->stream_synchronize(g.device, g.stream), "waiting");
    return g.host[0] == 5 && g.host[15] == 5;
}

bool refuses_the_default_stream(const graph_setup &g)
{
    strata__stream *wrapped = nullptr;
    require(g.device->ops->stream_wrap(g.device, nullptr, &wrapped), "wrapping");
    bool ok = g.device->ops->capture_begin(g.device, wrapped) == STRATA_ERR_UNSUPPORTED;
    g.device->ops->stream_destroy(g.device, wrapped);
    return ok;
}

} /* namespace */

int check_graph()
{
    graph_setup g;
    int failures = 0;
    tally t;
    report(t, g.device->facts.graphs == 1, 0, "the device says it has no graphs");
    report(t, launches_what_was_captured(g), 0, "a launch did not do what was captured");
    report(t, drops_a_recording(g), 0, "a dropped recording did something");
    report(t, refuses_the_default_stream(g), 0, "the legacy default stream was captured");
    close_tally(t, "device graphs", &failures);
    return failures;
}
