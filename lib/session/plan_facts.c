/* SPDX-License-Identifier: MIT */
/* Numbers about devices: what is known of an opened one, what is typical, what the caller says. */
#include <string.h>

#include "session/plan_input.h"

/* Typical of a compute capability and those above it, up to the next. */
typedef struct rates {
    uint32_t compute_capability;
    double link_bytes_per_second;
    double link_latency_seconds;
    double memory_bytes_per_second;
    double launch_seconds;
    double dense_flops;
    double attention_flops;
    double path_flops[STRATA__LAYOUT_PATH_COUNT]; /* direct, fused, mmq, fp16 */
    double path_half_rows[STRATA__LAYOUT_PATH_COUNT];
    double multiprocessors; /* where the device does not tell */
    double tile_outputs;    /* of a product that a multiprocessor computes at a time */
} rates;

/*
 * The H200's link, memory and products are measured; the others are datasheet peaks times the share
 * of the peak that is usual for each kind of kernel. Where int8 tensor cores are four times as fast
 * as half with float32 sums (86, 89, 120), the int8 paths are the fast ones. On data-centre cards
 * float32 work between their dots makes them slower than fp16 where an expert has many rows; where
 * it has few, their rates here are below what they reach, so that fp16, which quantises no
 * activations, stays the choice. The last line of defence is the caller's own facts and costs. On
 * the CPU, direct and fp16 are the same.
 */
static const rates typical[] = {
    {0, 25e9, 1e-6, 20e9, 2e-6, 1e11, 5e10, {6e10, 5e10, 5e10, 6e10}, {8, 8, 8, 8}, 1, 0},
    {75,
     12e9,
     4e-6,
     0.30e12,
     4e-6,
     3e13,
     2e13,
     {2e12, 5e13, 4.8e13, 2.5e13},
     {1, 48, 48, 96},
     40,
     16384},
    {80,
     24e9,
     4e-6,
     1.5e12,
     4e-6,
     2e14,
     1.6e14,
     {8e12, 1e14, 9.5e13, 1.8e14},
     {1, 96, 96, 96},
     108,
     16384},
    {86,
     24e9,
     4e-6,
     0.85e12,
     4e-6,
     5e13,
     6e13,
     {4e12, 1.3e14, 1.2e14, 4.5e13},
     {1, 48, 48, 96},
     82,
     16384},
    {89,
     25e9,
     4e-6,
     0.95e12,
     4e-6,
     1.2e14,
     1.5e14,
     {5e12, 3e14, 2.8e14, 1.1e14},
     {1, 48, 48, 96},
     128,
     16384},
    {90,
     55e9,
     2.6e-6,
     4.1e12,
     5e-6,
     6e14,
     5.5e14,
     {2e13, 2e14, 2e14, 5.5e14},
     {1, 104, 116, 96},
     132,
     32768},
    {100,
     55e9,
     2.6e-6,
     6e12,
     3e-6,
     1e15,
     6e14,
     {3e13, 2.5e14, 2.4e14, 8e14},
     {1, 128, 128, 128},
     148,
     16384},
    {120,
     50e9,
     3e-6,
     1.6e12,
     3e-6,
     1.6e14,
     2e14,
     {8e12, 3.8e14, 3.6e14, 1.4e14},
     {1, 48, 48, 96},
     170,
     16384},
};

enum { TYPICAL_COUNT = sizeof typical / sizeof typical[0] };

/* Of device memory that is free, what is left to the driver. */
static const uint64_t reserve_bytes = 256u << 20;

static void set_rates(const strata__device_facts *device, strata__layout_facts *out)
{
    const rates *r = &typical[0];
    for (int i = 1; i < TYPICAL_COUNT; ++i)
        if (typical[i].compute_capability <= device->compute_capability)
            r = &typical[i];
    out->link_bytes_per_second = r->link_bytes_per_second;
    out->link_latency_seconds = r->link_latency_seconds;
    out->staging_bytes_per_second = r->link_bytes_per_second < 9e9 ? r->link_bytes_per_second : 9e9;
    out->memory_bytes_per_second = r->memory_bytes_per_second;
    out->launch_seconds = r->launch_seconds;
    out->dense_flops = r->dense_flops;
    out->attention_flops = r->attention_flops;
    memcpy(out->path_flops, r->path_flops, sizeof out->path_flops);
    memcpy(out->path_half_rows, r->path_half_rows, sizeof out->path_half_rows);
    out->round_outputs =
        (device->multiprocessors ? device->multiprocessors : r->multiprocessors) * r->tile_outputs;
}

static void set_kernels(const strata__kernels_facts *kernels, strata__layout_facts *out)
{
    out->activation_bytes = kernels->activation_bytes;
    out->row_scale_bytes = kernels->row_scale_bytes;
    out->decode_bytes_per_value = kernels->decode_bytes_per_value;
    out->gate_up_paths = kernels->gate_up_paths;
    memcpy(out->coverage, kernels->coverage, sizeof out->coverage);
    out->attention_scratch_bytes_per_row = kernels->attention_scratch_bytes_per_row;
    out->attention_split_keys = kernels->split_keys;
    out->group_scratch_bytes_per_expert = kernels->group_scratch_bytes_per_expert;
    out->group_scratch_bytes_fixed = kernels->group_scratch_bytes_fixed;
}

static void set_device(const strata__device_facts *device, strata__layout_facts *out)
{
    out->compute_capability = device->compute_capability;
    out->host_addressable = device->host_addressable;
    out->shared_memory_bytes = device->shared_memory_bytes;
    out->alignment_bytes = device->alignment_bytes;
    out->memory_bytes = device->memory_bytes;
    if (device->compute_capability && device->memory_free_bytes > 2 * reserve_bytes)
        out->memory_bytes = device->memory_free_bytes - reserve_bytes;
}

static void take_rate(double given, double *out)
{
    if (given > 0)
        *out = given;
}

static void take_bytes(uint64_t given, uint64_t *out)
{
    if (given)
        *out = given;
}

static void take_given(const strata_device_facts *given, strata__layout_facts *out)
{
    take_bytes(given->memory_bytes, &out->memory_bytes);
    take_bytes(given->shared_memory_bytes, &out->shared_memory_bytes);
    take_bytes(given->alignment_bytes, &out->alignment_bytes);
    take_rate(given->link_bytes_per_second, &out->link_bytes_per_second);
    take_rate(given->link_latency_seconds, &out->link_latency_seconds);
    take_rate(given->memory_bytes_per_second, &out->memory_bytes_per_second);
    take_rate(given->dense_flops, &out->dense_flops);
    take_rate(given->attention_flops, &out->attention_flops);
    for (int i = 0; i < STRATA__LAYOUT_PATH_COUNT; ++i)
        take_rate(given->path_flops[i], &out->path_flops[i]);
}

void strata__plan_facts(const strata__device_facts *device, const strata__kernels_facts *kernels,
                        const strata_device_facts *given, strata__layout_facts *out)
{
    memset(out, 0, sizeof *out);
    set_device(device, out);
    set_kernels(kernels, out);
    set_rates(device, out);
    if (given)
        take_given(given, out);
}

void strata__plan_facts_given(const strata_device_facts *given, strata__layout_facts *out)
{
    strata__device_facts device = {0};
    strata__kernels_facts kernels;
    if (given)
        device.compute_capability = given->compute_capability;
    device.host_addressable = device.compute_capability == 0;
    device.alignment_bytes =
        device.compute_capability ? STRATA__CUDA_ALIGNMENT_BYTES : STRATA__CPU_ALIGNMENT_BYTES;
    strata__kernels_facts_of(device.compute_capability, &kernels);
    strata__plan_facts(&device, &kernels, given, out);
}
