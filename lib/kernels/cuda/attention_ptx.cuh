/* SPDX-License-Identifier: MIT */
/*
 * Instructions of sm_80 that the portable attention uses, and the place of values in shared memory.
 */
#ifndef STRATA_KERNELS_CUDA_ATTENTION_PTX_CUH
#define STRATA_KERNELS_CUDA_ATTENTION_PTX_CUH

#include <stdint.h>

#include <cuda_fp16.h>

#include "kernels/cuda/shared.cuh"

static __device__ __forceinline__ void load_matrix_x4(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

static __device__ __forceinline__ void load_matrix_x4_transposed(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

static __device__ __forceinline__ void load_matrix_x2_transposed(uint32_t &r0, uint32_t &r1,
                                                                 uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(r0), "=r"(r1)
                 : "r"(address)
                 : "memory");
}

/* d += a (16 x 16) * b (16 x 8), half inputs, float32 sums */
static __device__ __forceinline__ void multiply_16x8x16(float (&d)[4], const uint32_t (&a)[4],
                                                        uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ uint32_t pack_half2(float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}

/*
 * Byte offset of 16-byte chunk `chunk` of row `row` in a tile of rows of HD halves. The chunks of a
 * row are permuted so that eight rows' equal chunks, which ldmatrix reads at once, lie in different
 * banks. Rows of 96 halves begin in only two places of the banks, so that four permutations do.
 */
template <int HD> static __device__ __forceinline__ uint32_t tile_offset(int row, int chunk)
{
    int key = HD == 96 ? (row >> 1) & 3 : row & 7;
    return (uint32_t)(row * HD * 2 + ((chunk ^ key) << 4));
}

#endif
