/* SPDX-License-Identifier: MIT */
/* Devices by name and by number. */
#include "device/device.h"

#include <string.h>

#include "base/error.h"

void strata__device_hold(strata__device *device)
{
    atomic_fetch_add_explicit(&device->extra_holders, 1, memory_order_relaxed);
}

void strata__device_release(strata__device *device)
{
    if (device && atomic_fetch_sub_explicit(&device->extra_holders, 1, memory_order_acq_rel) == 0)
        device->ops->destroy(device);
}

static strata_status no_graphs(const strata__device *device)
{
    return strata__fail(STRATA_ERR_UNSUPPORTED, "%s: no graphs on this device", device->facts.name);
}

strata_status strata__no_capture_begin(strata__device *device, strata__stream *stream)
{
    (void)stream;
    return no_graphs(device);
}

strata_status strata__no_capture_end(strata__device *device, strata__stream *stream,
                                     strata__device_graph **out)
{
    (void)stream;
    (void)out;
    return no_graphs(device);
}

strata_status strata__no_graph_launch(strata__device *device, strata__device_graph *graph,
                                      strata__stream *stream)
{
    (void)graph;
    (void)stream;
    return no_graphs(device);
}

void strata__no_graph_destroy(strata__device *device, strata__device_graph *graph)
{
    (void)device;
    (void)graph;
}

strata_status strata__device_count(strata_context *context, uint32_t *out_count)
{
    (void)context;
    return strata__cuda_device_count(out_count);
}

strata_status strata__device_facts_get(strata_context *context, uint32_t index,
                                       strata__device_facts *out)
{
    uint32_t count;
    strata_status status = strata__device_count(context, &count);
    if (status != STRATA_OK)
        return status;
    if (index >= count)
        return strata__fail(STRATA_ERR_NO_DEVICE, "no accelerator %u: this machine has %u", index,
                            count);
    return strata__cuda_device_facts(index, out);
}

/* Decimal digits up to the end of the text, within 32 bits. */
static bool parse_index(const char *text, uint32_t *out)
{
    uint64_t value = 0;
    if (*text == '\0')
        return false;
    for (; *text; ++text) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > UINT32_MAX)
            return false;
    }
    *out = (uint32_t)value;
    return true;
}

strata_status strata__device_open(strata_context *context, const char *name, strata__device **out)
{
    static const char cuda_prefix[] = "cuda:";
    uint32_t index;
    if (!name || strcmp(name, "cpu") == 0)
        return strata__cpu_device_open(context, out);
    if (strncmp(name, cuda_prefix, sizeof cuda_prefix - 1) == 0 &&
        parse_index(name + sizeof cuda_prefix - 1, &index))
        return strata__cuda_device_open(context, index, out);
    return strata__fail(STRATA_ERR_NO_DEVICE,
                        "no device is named \"%.64s\"; names are \"cpu\" and \"cuda:N\"", name);
}
