/* SPDX-License-Identifier: MIT */
/*
 * From projections to queries and cache: clamp, norm of queries and keys, rotary embedding, and the
 * writes. A thread block takes a row, a warp a head at a time with neighbouring values in a lane.
 * Of few rows two blocks share one, the queries and the rest, with warps for 32 heads.
 */
#include <cuda_fp16.h>

#include "attention_internal.h"
#include "base/bounds.h"
#include "launch.cuh"

enum { QKV_WARPS = 8, QKV_FEW_WARPS = 32, MAX_HEAD_SIZE = 256 };

struct row_place {
    uint32_t row;      /* of the tile */
    uint32_t position; /* in the sequence */
    uint32_t sequence;
    int32_t page; /* of the cache */
};

struct shared_row {
    alignas(16) float cosine[MAX_HEAD_SIZE / 2];
    alignas(16) float sine[MAX_HEAD_SIZE / 2];
    float *stage; /* [warps][head size] */
    float partial[2][QKV_FEW_WARPS];
    uint32_t segment;
};

template <int N> static __device__ __forceinline__ void load_values(float (&x)[N], const float *p)
{
    if constexpr (N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            float4 v = reinterpret_cast<const float4 *>(p)[i];
            x[4 * i] = v.x;
            x[4 * i + 1] = v.y;
            x[4 * i + 2] = v.z;
            x[4 * i + 3] = v.w;
        }
    } else if constexpr (N == 2) {
        float2 v = *reinterpret_cast<const float2 *>(p);
        x[0] = v.x;
        x[1] = v.y;
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = p[i];
    }
}

template <int N> static __device__ __forceinline__ void store_values(float *p, const float (&x)[N])
{
    if constexpr (N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N / 4; i++)
            reinterpret_cast<float4 *>(p)[i] =
                make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            p[i] = x[i];
    }
}

static __device__ __forceinline__ __half to_half(float x)
{
    return __float2half_rn(fminf(fmaxf(x, -65504.0f), 65504.0f));
}

template <int N> static __device__ __forceinline__ void store_halves(__half *p, const float (&x)[N])
{
    if constexpr (N % 2 == 0) {
        __half2 pairs[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            pairs[i] = __halves2half2(to_half(x[2 * i]), to_half(x[2 * i + 1]));
        if constexpr (N == 2)
            *reinterpret_cast<__half2 *>(p) = pairs[0];
        else if constexpr (N == 4)
            *reinterpret_cast<uint2 *>(p) = *reinterpret_cast<uint2 *>(pairs);
        else
            *reinterpret_cast<uint4 *>(p) = *reinterpret_cast<uint4 *>(pairs);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            p[i] = to_half(x[i]);
    }
}

static __device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

static __device__ __forceinline__ float warp_maximum(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

template <int N> static __device__ __forceinline__ float square_sum(const float (&x)[N])
{
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++)
        sum = __fmaf_rn(x[i], x[i], sum);
    return warp_sum(sum);
}

template <int N>
static __device__ __forceinline__ void load_head(float (&x)[N], const float *head, float clamp)
{
    load_values<N>(x, head + (threadIdx.x & 31) * N);
    if (clamp > 0.0f) {
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = fminf(fmaxf(x[i], -clamp), clamp);
    }
}

template <int N>
static __device__ __forceinline__ void apply_norm(float (&x)[N], const float *weight, float factor)
{
    float w[N];
    load_values<N>(w, weight + (threadIdx.x & 31) * N);
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = x[i] * factor * w[i];
}

/*
 * The angle position * frequency is exact in float64 (18 and 24 significant bits) and reduced
 * there: in float32 it would lose 1e-2 radians at position 262144.
 */
static __device__ __forceinline__ void fill_angles(const strata__qkv_args &args, uint32_t position,
                                                   shared_row &shared)
{
    const double turns_a_radian = 0.15915494309189533576888;
    for (uint32_t i = threadIdx.x; i < args.rope_width / 2; i += blockDim.x) {
        double turns = (double)position * (double)args.rope_frequencies[i] * turns_a_radian;
        float sine, cosine;
        sincospif((float)(2.0 * (turns - rint(turns))), &sine, &cosine);
        shared.sine[i] = sine * args.rope_magnitude;
        shared.cosine[i] = cosine * args.rope_magnitude;
    }
}

/*
 * Values first .. first + N - 1 of the head, all in pairs (i, i + n / 2) with neighbours likewise.
 */
template <int N>
static __device__ __forceinline__ void rotate_halves(float (&x)[N], const float *stage,
                                                     const shared_row &shared, int first, int half)
{
    bool low = first < half;
    float partner[N], c[N], s[N];
    load_values<N>(partner, stage + (low ? first + half : first - half));
    load_values<N>(c, shared.cosine + (low ? first : first - half));
    load_values<N>(s, shared.sine + (low ? first : first - half));
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = x[i] * c[i] + partner[i] * (low ? -s[i] : s[i]);
}

/* Any width and style, a value at a time. */
template <int N>
static __device__ __forceinline__ void rotate_values(float (&x)[N], const float *stage,
                                                     const shared_row &shared, int first, int half,
                                                     bool pairs)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        int at = first + i;
        if (at >= 2 * half)
            continue;
        bool low = pairs ? (at & 1) == 0 : at < half;
        int partner = pairs ? at ^ 1 : low ? at + half : at - half;
        int angle = pairs ? at / 2 : low ? at : at - half;
        float s = shared.sine[angle];
        x[i] = x[i] * shared.cosine[angle] + stage[partner] * (low ? -s : s);
    }
}

template <int N>
static __device__ __forceinline__ void rotate_head(float (&x)[N], const strata__qkv_args &args,
                                                   shared_row &shared)
{
    if (args.rope_style == STRATA__ROPE_NONE || args.rope_width == 0)
        return;
    float *stage = shared.stage + (threadIdx.x >> 5) * 32 * N;
    int first = (int)(threadIdx.x & 31) * N, half = (int)args.rope_width / 2;
    __syncwarp();
    store_values<N>(stage + first, x);
    __syncwarp();
    bool pairs = args.rope_style == STRATA__ROPE_PAIRS;
    if (pairs || half % N != 0)
        rotate_values<N>(x, stage, shared, first, half, pairs);
    else if (first < 2 * half)
        rotate_halves<N>(x, stage, shared, first, half);
}

/*
 * One head of queries or keys from projection to what is stored; `row_factor` for norms of a row.
 */
template <int N>
static __device__ __forceinline__ void finish_head(float (&x)[N], const strata__qkv_args &args,
                                                   const float *norm, uint32_t head,
                                                   float row_factor, shared_row &shared)
{
    const float size = (float)(32 * N);
    if (args.qk_norm == STRATA__QK_NORM_HEAD_BEFORE_ROPE)
        apply_norm<N>(x, norm, 1.0f / sqrtf(square_sum<N>(x) / size + args.eps));
    else if (args.qk_norm == STRATA__QK_NORM_ROW_BEFORE_ROPE)
        apply_norm<N>(x, norm + head * 32 * N, row_factor);
    rotate_head<N>(x, args, shared);
    if (args.qk_norm == STRATA__QK_NORM_HEAD_AFTER_ROPE)
        apply_norm<N>(x, norm, 1.0f / sqrtf(square_sum<N>(x) / size + args.eps));
}

/* 1 / rms over all heads of a row; every thread gets it. Two calls use different slots. */
template <int N>
static __device__ __forceinline__ float row_factor(const float *row, uint32_t heads,
                                                   const strata__qkv_args &args, float *partial)
{
    uint32_t warp = threadIdx.x >> 5;
    float sum = 0.0f;
    for (uint32_t head = warp; head < heads; head += blockDim.x >> 5) {
        float x[N];
        load_head<N>(x, row + head * 32 * N, args.clamp);
        sum += square_sum<N>(x);
    }
    if ((threadIdx.x & 31) == 0)
        partial[warp] = sum;
    __syncthreads();
    sum = 0.0f;
    for (uint32_t i = 0; i < blockDim.x >> 5; i++)
        sum += partial[i];
    return 1.0f / sqrtf(sum / (float)(heads * 32 * N) + args.eps);
}

/*
 * 32 values a block: scale = largest magnitude / 127 rounded to half, code = value / scale rounded
 * to nearest even and kept within 127. The warp's lanes take a value each.
 */
template <int N>
static __device__ __forceinline__ void store_q8_0(char *head_rows, const strata__kv_view &kv,
                                                  uint32_t row, const float (&x)[N], float *stage)
{
    int lane = threadIdx.x & 31;
    __syncwarp();
    store_values<N>(stage + lane * N, x);
    __syncwarp();
    int8_t *codes = (int8_t *)head_rows + row * 32 * N;
    __half *scales = (__half *)(head_rows + kv.page_tokens * 32 * N) + row * N;
#pragma unroll
    for (int block = 0; block < N; block++) {
        float value = stage[block * 32 + lane];
        __half d = to_half(warp_maximum(fabsf(value)) / 127.0f);
        float scale = __half2float(d);
        float code = rintf(__fmul_rn(value, scale > 0.0f ? __frcp_rn(scale) : 0.0f));
        codes[block * 32 + lane] = (int8_t)fminf(fmaxf(code, -127.0f), 127.0f);
        if (lane == 0)
            scales[block] = d;
    }
}

template <int N>
static __device__ __forceinline__ void store_cache(void *cache, const strata__kv_view &kv,
                                                   const row_place &place, uint32_t head,
                                                   const float (&x)[N], float *stage)
{
    uint32_t lane = threadIdx.x & 31;
    uint32_t row = place.position % kv.page_tokens;
    char *rows =
        (char *)cache + (uint64_t)place.page * kv.page_bytes + head * (kv.page_bytes / kv.kv_heads);
    if (kv.format == STRATA__KV_F16)
        store_halves<N>((__half *)rows + row * 32 * N + lane * N, x);
    else if (kv.format == STRATA__KV_F32)
        store_values<N>((float *)rows + row * 32 * N + lane * N, x);
    else
        store_q8_0<N>(rows, kv, row, x, stage);
}

/*
 * Writes a head of queries divided by `scale`, a power of two; answers its largest magnitude here.
 */
template <int N>
static __device__ __forceinline__ float write_query(const strata__qkv_args &args, uint32_t row,
                                                    uint32_t head, float (&x)[N], float scale)
{
    __half *out = (__half *)args.q_out.data + ((uint64_t)row * args.heads + head) * 32 * N;
    float largest = 0.0f, inverse = 1.0f / scale;
#pragma unroll
    for (int i = 0; i < N; i++) {
        largest = fmaxf(largest, fabsf(x[i]));
        x[i] *= inverse;
    }
    store_halves<N>(out + (threadIdx.x & 31) * N, x);
    return largest;
}

/* Heads of a row in the order in which warps take them: queries, keys, values. */
static __device__ __forceinline__ const float *
head_source(const strata__qkv_args &args, uint32_t row, uint32_t task, uint32_t head_size)
{
    const float *base = args.q;
    if (task >= args.heads) {
        task -= args.heads;
        base = args.k;
        if (task >= args.kv.kv_heads) {
            task -= args.kv.kv_heads;
            base = args.v;
        }
    }
    return base + (uint64_t)row * args.qkv_stride + task * head_size;
}

/* Heads [first, end) of a row, as head_source() counts them. */
struct head_range {
    uint32_t first, end;
};

static __device__ __forceinline__ head_range heads_of_block(const strata__qkv_args &args)
{
    uint32_t all = args.heads + 2 * args.kv.kv_heads;
    if (gridDim.y == 1)
        return {0, all};
    return blockIdx.y == 0 ? head_range{0, args.heads} : head_range{args.heads, all};
}

static __device__ __forceinline__ void fetch_norms(const strata__qkv_args &args,
                                                   const head_range &range, uint32_t head_size)
{
    bool rows = args.qk_norm == STRATA__QK_NORM_ROW_BEFORE_ROPE;
    if (range.first < args.heads)
        fetch_table(args.q_norm, (rows ? args.heads : 1) * head_size);
    if (range.end > args.heads)
        fetch_table(args.k_norm, (rows ? args.kv.kv_heads : 1) * head_size);
}

/*
 * The heads of a block, the next one's values on their way; answers the largest query of this lane.
 */
template <int N>
static __device__ __forceinline__ float
write_heads(const strata__qkv_args &args, const row_place &place, const head_range &range,
            float (&next)[N], float q_factor, float k_factor, shared_row &shared)
{
    uint32_t heads = args.heads, kv_heads = args.kv.kv_heads, warps = blockDim.x >> 5;
    float *stage = shared.stage + (threadIdx.x >> 5) * 32 * N, largest = 0.0f;
    for (uint32_t task = range.first + (threadIdx.x >> 5); task < range.end; task += warps) {
        float x[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = next[i];
        if (task + warps < range.end)
            load_head<N>(next, head_source(args, place.row, task + warps, 32 * N), args.clamp);
        if (task < heads) {
            finish_head<N>(x, args, args.q_norm, task, q_factor, shared);
            largest = fmaxf(largest, write_query<N>(args, place.row, task, x, 1.0f));
        } else if (task < heads + kv_heads) {
            finish_head<N>(x, args, args.k_norm, task - heads, k_factor, shared);
            store_cache<N>(args.kv.k, args.kv, place, task - heads, x, stage);
        } else {
            store_cache<N>(args.kv.v, args.kv, place, task - heads - kv_heads, x, stage);
        }
    }
    return largest;
}

/* The queries again, for a row that leaves half's range. */
template <int N>
static __device__ __forceinline__ void write_scaled_queries(const strata__qkv_args &args,
                                                            uint32_t row, float factor, float scale,
                                                            shared_row &shared)
{
    for (uint32_t head = threadIdx.x >> 5; head < args.heads; head += blockDim.x >> 5) {
        float x[N];
        load_head<N>(x, head_source(args, row, head, 32 * N), args.clamp);
        finish_head<N>(x, args, args.q_norm, head, factor, shared);
        (void)write_query<N>(args, row, head, x, scale);
    }
}

/* The smallest power of two, 1 or more, that brings the row into half's range. */
static __device__ __forceinline__ float row_scale(float largest)
{
    int exponent = 0;
    if (largest > 65504.0f)
        frexpf(largest / 65504.0f, &exponent);
    return ldexpf(1.0f, exponent);
}

/* The segment of a row, found by the block's threads; segments do not overlap. */
static __device__ __forceinline__ bool find_place(const strata__qkv_args &args, uint32_t row,
                                                  shared_row &shared, row_place &place)
{
    if (threadIdx.x == 0)
        shared.segment = UINT32_MAX;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < args.segment_count; i += blockDim.x) {
        strata__segment segment = args.segments[i];
        if (row >= segment.first_row && row - segment.first_row < segment.rows)
            shared.segment = i;
    }
    __syncthreads();
    if (shared.segment == UINT32_MAX)
        return false;
    strata__segment segment = args.segments[shared.segment];
    place.row = row;
    place.position = segment.position + (row - segment.first_row);
    place.sequence = segment.sequence;
    place.page = args.kv.page_table[(uint64_t)place.sequence * args.kv.table_stride +
                                    place.position / args.kv.page_tokens];
    return true;
}

/* The largest magnitude that any lane of the block saw. */
static __device__ __forceinline__ float block_maximum(float largest, float *partial)
{
    largest = warp_maximum(largest);
    if ((threadIdx.x & 31) == 0)
        partial[threadIdx.x >> 5] = largest;
    __syncthreads();
    for (uint32_t i = 0; i < blockDim.x >> 5; i++)
        largest = fmaxf(largest, partial[i]);
    return largest;
}

/* N = head size / 32 */
template <int N>
static __global__ void __launch_bounds__(QKV_FEW_WARPS * 32)
    qkv_rows(const __grid_constant__ strata__qkv_args args)
{
    extern __shared__ __align__(16) float stage[];
    __shared__ __align__(16) shared_row shared;
    row_place place;
    float first[N] = {};
    head_range range = heads_of_block(args);
    uint32_t task = range.first + (threadIdx.x >> 5);
    let_next_start();
    if (threadIdx.x == 0)
        shared.stage = stage;
    fetch_norms(args, range, 32 * N);
    if (!find_place(args, blockIdx.x, shared, place)) {
        wait_for_earlier();
        return;
    }
    if (args.rope_style != STRATA__ROPE_NONE)
        fill_angles(args, place.position, shared);
    wait_for_earlier();
    if (task < range.end)
        load_head<N>(first, head_source(args, blockIdx.x, task, 32 * N), args.clamp);
    float q_factor = 1.0f, k_factor = 1.0f;
    if (args.qk_norm == STRATA__QK_NORM_ROW_BEFORE_ROPE) {
        uint64_t start = (uint64_t)place.row * args.qkv_stride;
        q_factor = row_factor<N>(args.q + start, args.heads, args, shared.partial[0]);
        k_factor = row_factor<N>(args.k + start, args.kv.kv_heads, args, shared.partial[1]);
    }
    __syncthreads();
    float largest = write_heads<N>(args, place, range, first, q_factor, k_factor, shared);
    float scale = 1.0f;
    if (__syncthreads_or(largest > 65504.0f)) {
        scale = row_scale(block_maximum(largest, shared.partial[0]));
        write_scaled_queries<N>(args, place.row, q_factor, scale, shared);
    }
    if (threadIdx.x == 0 && range.first == 0 && args.q_out.scale)
        args.q_out.scale[place.row] = scale;
}

static bool misaligned(const void *pointer)
{
    return (uintptr_t)pointer % 16 != 0;
}

static strata_status check_qkv(const strata__qkv_args *args)
{
    strata_status status = strata__cuda_check_kv(&args->kv, args->heads, "qkv");
    if (status != STRATA_OK)
        return status;
    if (args->rope_width % 2 != 0 || args->rope_width > args->kv.head_size)
        return strata__fail(STRATA_ERR_INVALID_ARGUMENT,
                            "qkv: a rotated width of %u does not fit heads of %u", args->rope_width,
                            args->kv.head_size);
    if (misaligned(args->q) || misaligned(args->k) || misaligned(args->v) ||
        args->qkv_stride % 4 != 0)
        return strata__fail(STRATA_ERR_MISALIGNED,
                            "qkv: projections must start and step at multiples of 16 bytes");
    return STRATA_OK;
}

extern "C" strata_status strata__cuda_qkv(const strata__cuda_state *state, cudaStream_t stream,
                                          const strata__qkv_args *args)
{
    strata_status status = check_qkv(args);
    if (status != STRATA_OK || args->rows == 0)
        return status;
    uint32_t size = args->kv.head_size;
    void (*kernel)(strata__qkv_args) = size == 64    ? qkv_rows<2>
                                       : size == 96  ? qkv_rows<3>
                                       : size == 128 ? qkv_rows<4>
                                                     : qkv_rows<8>;
    bool few = args->rows <= STRATA__DIRECT_ROWS;
    uint32_t warps = few ? QKV_FEW_WARPS : QKV_WARPS;
    return launch_overlapped(state, stream, kernel, dim3(args->rows, few ? 2 : 1), warps * 32,
                             warps * size * 4, *args, "launching qkv");
}

extern "C" strata_status strata__cuda_qkv_load(void)
{
    const void *kernels[] = {(const void *)qkv_rows<2>, (const void *)qkv_rows<3>,
                             (const void *)qkv_rows<4>, (const void *)qkv_rows<8>};
    cudaError_t code = cudaSuccess;
    for (int i = 0; i < 4 && code == cudaSuccess; i++) {
        cudaFuncAttributes attributes;
        code = cudaFuncGetAttributes(&attributes, kernels[i]);
    }
    return strata__cuda_status(code, "loading the qkv kernels");
}
