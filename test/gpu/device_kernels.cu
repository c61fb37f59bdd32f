/* SPDX-License-Identifier: MIT */
#include "device_kernels.h"

static __global__ void gate_kernel(volatile uint32_t *gate)
{
    for (uint32_t i = 0; *gate == 0 && i < 3000000; i++)
        __nanosleep(10000);
}

static __global__ void increment_kernel(uint8_t *bytes, uint64_t count)
{
    uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
    if (i < count)
        bytes[i] = (uint8_t)(bytes[i] + 1);
}

static __global__ void trap_kernel()
{
    asm volatile("trap;");
}

cudaError_t launch_gate(cudaStream_t stream, volatile uint32_t *gate)
{
    gate_kernel<<<1, 1, 0, stream>>>(gate);
    return cudaGetLastError();
}

cudaError_t launch_increment(cudaStream_t stream, uint8_t *bytes, uint64_t count)
{
    increment_kernel<<<(unsigned)((count + 255) / 256), 256, 0, stream>>>(bytes, count);
    return cudaGetLastError();
}

cudaError_t launch_trap(cudaStream_t stream)
{
    trap_kernel<<<1, 1, 0, stream>>>();
    return cudaGetLastError();
}
