/* SPDX-License-Identifier: MIT */
/*
 * What the checks of attention and qkv share: device buffers with guard zones, random inputs, paged
 * caches whose unwritten values are not numbers, and the float64 reference.
 */
#ifndef STRATA_TEST_GPU_ATTENTION_CASE_CUH
#define STRATA_TEST_GPU_ATTENTION_CASE_CUH

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include <cuda_fp16.h>

#include "kernels/cuda/cuda_kernels.h"
#include "late.h"

#define CHECK_CUDA(call)                                                                           \
    do {                                                                                           \
        cudaError_t code_ = (call);                                                                \
        if (code_ != cudaSuccess) {                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(code_));         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { GUARD_BYTES = 4096, GUARD_BYTE = 0x5A };

/* Device memory between two guard zones, filled with a byte before each use. */
struct guarded {
    char *base = nullptr;
    size_t bytes = 0, capacity = 0;

    void reset(size_t wanted, int fill)
    {
        if (wanted > capacity) {
            if (base)
                CHECK_CUDA(cudaFree(base));
            capacity = wanted + wanted / 2;
            CHECK_CUDA(cudaMalloc(&base, capacity + 2 * GUARD_BYTES));
        }
        bytes = wanted;
        CHECK_CUDA(cudaMemset(base, GUARD_BYTE, GUARD_BYTES));
        CHECK_CUDA(cudaMemset(base + GUARD_BYTES, fill, bytes));
        CHECK_CUDA(cudaMemset(base + GUARD_BYTES + bytes, GUARD_BYTE, GUARD_BYTES));
    }

    /* See late.h. */
    void come_late(size_t first, size_t count) const
    {
        cuda_host_late(base + GUARD_BYTES + first, count);
    }

    template <typename T> T *as() const
    {
        return (T *)(base + GUARD_BYTES);
    }

    bool intact() const
    {
        std::vector<char> zone(GUARD_BYTES);
        for (size_t at : {(size_t)0, GUARD_BYTES + bytes}) {
            CHECK_CUDA(cudaMemcpy(zone.data(), base + at, GUARD_BYTES, cudaMemcpyDeviceToHost));
            for (char c : zone)
                if (c != GUARD_BYTE)
                    return false;
        }
        return true;
    }
};

static __host__ __device__ inline uint32_t hash_bits(uint64_t index, uint32_t seed)
{
    uint64_t x = index * 0x9E3779B97F4A7C15ull + ((uint64_t)seed << 32 | 0x632BE5ABu);
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93ull;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93ull;
    return (uint32_t)(x >> 32);
}

/* Near a unit normal: the sum of four uniform values. */
static __host__ __device__ inline float random_value(uint64_t index, uint32_t seed)
{
    float sum = 0.0f;
    for (uint32_t i = 0; i < 4; i++)
        sum += (float)(hash_bits(index * 4 + i, seed) >> 8) * (1.0f / 16777216.0f) - 0.5f;
    return sum * 1.7320508f;
}

static __global__ void fill_float(float *x, uint64_t count, uint32_t seed, float scale)
{
    uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
    if (i < count)
        x[i] = random_value(i, seed) * scale;
}

/* Query rows: half values and a scale of 1, 2 or 4 by row. */
static __global__ void fill_queries(__half *q, float *scale, uint64_t width, uint64_t count,
                                    uint32_t seed)
{
    uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    float s = (float)(1u << (hash_bits(i / width, seed + 1) % 3));
    q[i] = __float2half_rn(2.0f * random_value(i, seed) / s);
    if (i % width == 0)
        scale[i / width] = s;
}

static inline uint64_t cache_row_bytes(uint32_t format, uint32_t head_size)
{
    return format == STRATA__KV_F16    ? head_size * 2
           : format == STRATA__KV_Q8_0 ? head_size + head_size / 16
                                       : head_size * 4;
}

/* Start of a head's rows in the page that holds a position, and the position's row there. */
static __host__ __device__ inline char *cache_head(const strata__kv_view &kv, void *base,
                                                   uint32_t sequence, uint32_t position,
                                                   uint32_t head, uint32_t *row)
{
    int32_t page = kv.page_table[(uint64_t)sequence * kv.table_stride + position / kv.page_tokens];
    *row = position % kv.page_tokens;
    return (char *)base + (uint64_t)page * kv.page_bytes + head * (kv.page_bytes / kv.kv_heads);
}

static __host__ __device__ inline double cache_value(const strata__kv_view &kv, const char *head,
                                                     uint32_t row, uint32_t d)
{
    uint32_t size = kv.head_size;
    if (kv.format == STRATA__KV_F16)
        return (double)__half2float(((const __half *)head)[row * size + d]);
    if (kv.format == STRATA__KV_F32)
        return (double)((const float *)head)[row * size + d];
    const __half *scales = (const __half *)(head + kv.page_tokens * size);
    return (double)__half2float(scales[row * (size / 32) + d / 32]) *
           ((const int8_t *)head)[row * size + d];
}

/* Random keys and values at positions 0 .. tokens - 1 of a sequence; a thread writes 32 values. */
static __global__ void fill_cache(strata__kv_view kv, uint32_t sequence, uint32_t tokens,
                                  uint32_t seed)
{
    uint32_t blocks = kv.head_size / 32;
    uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
    uint32_t block = i % blocks, head = i / blocks % kv.kv_heads;
    uint64_t token = i / blocks / kv.kv_heads;
    if (token >= tokens)
        return;
    for (uint32_t which = 0; which < 2; which++) {
        uint32_t row;
        char *rows = cache_head(kv, which ? kv.v : kv.k, sequence, (uint32_t)token, head, &row);
        uint64_t at = (uint64_t)row * kv.head_size + block * 32;
        if (kv.format == STRATA__KV_Q8_0)
            ((__half *)(rows + kv.page_tokens * kv.head_size))[row * blocks + block] =
                __float2half_rn(0.02f + 0.02f * (float)(hash_bits(i, seed + 2) & 255) / 255.0f);
        for (uint32_t d = 0; d < 32; d++) {
            uint64_t index = ((uint64_t)sequence * 2 + which) << 40 | (i * 32 + d);
            float x = random_value(index, seed) + (which ? 0.5f : 0.0f);
            if (kv.format == STRATA__KV_F16)
                ((__half *)rows)[at + d] = __float2half_rn(x);
            else if (kv.format == STRATA__KV_F32)
                ((float *)rows)[at + d] = x;
            else
                ((int8_t *)rows)[at + d] = (int8_t)fminf(fmaxf(rintf(x * 40.0f), -127.0f), 127.0f);
        }
    }
}

static __device__ double block_reduce(double x, bool maximum, double *scratch)
{
    scratch[threadIdx.x] = x;
    __syncthreads();
    for (uint32_t step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) {
            double other = scratch[threadIdx.x + step];
            scratch[threadIdx.x] =
                maximum ? fmax(scratch[threadIdx.x], other) : scratch[threadIdx.x] + other;
        }
        __syncthreads();
    }
    double result = scratch[0];
    __syncthreads();
    return result;
}

/* Attention in float64: a block takes a row and a query head; `scores` has kv_stride values each.
 */
static __global__ void reference_attention(strata__attention_args args, uint32_t segment_index,
                                           double *scores, uint64_t kv_stride, double *out)
{
    __shared__ double scratch[256];
    strata__segment segment = args.segments[segment_index];
    uint32_t size = args.kv.head_size, head = blockIdx.y;
    uint32_t kv_head = head / (args.heads / args.kv.kv_heads);
    uint64_t row = segment.first_row + blockIdx.x;
    int position = (int)(segment.position + blockIdx.x);
    int first = args.window ? max(0, position - (int)args.window + 1) : 0;
    const __half *q = (const __half *)args.q.data + (row * args.heads + head) * size;
    double *s = scores + ((uint64_t)blockIdx.x * gridDim.y + head) * kv_stride;
    double scale = (double)args.scale * args.q.scale[row], top = -1e300, sum = 0.0;
    for (int key = first + threadIdx.x; key <= position; key += blockDim.x) {
        uint32_t at;
        const char *k = cache_head(args.kv, args.kv.k, segment.sequence, key, kv_head, &at);
        double dot = 0.0;
        for (uint32_t d = 0; d < size; d++)
            dot += (double)__half2float(q[d]) * cache_value(args.kv, k, at, d);
        s[key - first] = dot * scale;
        top = fmax(top, dot * scale);
    }
    top = block_reduce(top, true, scratch);
    if (args.sinks)
        top = fmax(top, (double)args.sinks[head]);
    for (int key = first + threadIdx.x; key <= position; key += blockDim.x) {
        s[key - first] = exp(s[key - first] - top);
        sum += s[key - first];
    }
    sum = block_reduce(sum, false, scratch);
    if (args.sinks)
        sum += exp((double)args.sinks[head] - top);
    for (uint32_t d = threadIdx.x; d < size; d += blockDim.x) {
        double value = 0.0;
        for (int key = first; key <= position; key++) {
            uint32_t at;
            const char *v = cache_head(args.kv, args.kv.v, segment.sequence, key, kv_head, &at);
            value += s[key - first] * cache_value(args.kv, v, at, d);
        }
        out[(row * args.heads + head) * size + d] = value / sum;
    }
}

static inline unsigned blocks_for(uint64_t count)
{
    return (unsigned)((count + 255) / 256);
}

#endif
