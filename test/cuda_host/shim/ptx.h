/* SPDX-License-Identifier: MIT */
/*
 * Instructions that kernels name in assembly, operands in the order of the PTX ISA. Products of
 * tensor cores are summed in float64 and rounded once, which no device does exactly so.
 */
#ifndef STRATA_CUDA_HOST_PTX_H
#define STRATA_CUDA_HOST_PTX_H

#include <math.h>

#include "machine.h"

uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector);

namespace cuda_host
{

/* A lane's part of d = a b + c. */
struct half_product {
    float d[4];
    uint32_t a[4], b[2];
    float c[4];
};

struct int8_product {
    int d[4];
    uint32_t a[4], b[2];
    int c[4];
};

/* Matrices of 8 x 8 halves: 32 row addresses, 1 to 4 words of each lane. */
struct matrix_load {
    uint32_t address;
    uint32_t words[4];
};

void multiply_half_16x8x16(half_product &own);
void multiply_tf32_16x8x8(half_product &own);
void multiply_int8_16x8x32(int8_product &own);
void multiply_int8_16x8x16(int8_product &own);
void load_matrices(matrix_load &own, uint32_t count, bool transposed);

/* 1 / x, rounded as CUDA_HOST_RECIPROCAL says. */
float approximate_reciprocal(float x);

namespace ptx
{

inline void mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float &d0, float &d1, float &d2,
                                                              float &d3, uint32_t a0, uint32_t a1,
                                                              uint32_t a2, uint32_t a3, uint32_t b0,
                                                              uint32_t b1, float c0, float c1,
                                                              float c2, float c3)
{
    half_product own = {{}, {a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}};
    multiply_half_16x8x16(own);
    d0 = own.d[0], d1 = own.d[1], d2 = own.d[2], d3 = own.d[3];
}

inline void mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(float &d0, float &d1, float &d2,
                                                               float &d3, uint32_t a0, uint32_t a1,
                                                               uint32_t a2, uint32_t a3,
                                                               uint32_t b0, uint32_t b1, float c0,
                                                               float c1, float c2, float c3)
{
    half_product own = {{}, {a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}};
    multiply_tf32_16x8x8(own);
    d0 = own.d[0], d1 = own.d[1], d2 = own.d[2], d3 = own.d[3];
}

inline void mma_sync_aligned_m16n8k32_row_col_s32_s8_s8_s32(int &d0, int &d1, int &d2, int &d3,
                                                            uint32_t a0, uint32_t a1, uint32_t a2,
                                                            uint32_t a3, uint32_t b0, uint32_t b1,
                                                            int c0, int c1, int c2, int c3)
{
    int8_product own = {{}, {a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}};
    multiply_int8_16x8x32(own);
    d0 = own.d[0], d1 = own.d[1], d2 = own.d[2], d3 = own.d[3];
}

inline void mma_sync_aligned_m16n8k16_row_col_s32_s8_s8_s32(int &d0, int &d1, int &d2, int &d3,
                                                            uint32_t a0, uint32_t a1, uint32_t b,
                                                            int c0, int c1, int c2, int c3)
{
    int8_product own = {{}, {a0, a1, 0, 0}, {b, 0}, {c0, c1, c2, c3}};
    multiply_int8_16x8x16(own);
    d0 = own.d[0], d1 = own.d[1], d2 = own.d[2], d3 = own.d[3];
}

inline void ldmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t &r0, uint32_t &r1, uint32_t &r2,
                                                     uint32_t &r3, uint32_t address)
{
    matrix_load own = {address, {}};
    load_matrices(own, 4, false);
    r0 = own.words[0], r1 = own.words[1], r2 = own.words[2], r3 = own.words[3];
}

inline void ldmatrix_sync_aligned_m8n8_x2_shared_b16(uint32_t &r0, uint32_t &r1, uint32_t address)
{
    matrix_load own = {address, {}};
    load_matrices(own, 2, false);
    r0 = own.words[0], r1 = own.words[1];
}

inline void ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(uint32_t &r0, uint32_t &r1, uint32_t &r2,
                                                           uint32_t &r3, uint32_t address)
{
    matrix_load own = {address, {}};
    load_matrices(own, 4, true);
    r0 = own.words[0], r1 = own.words[1], r2 = own.words[2], r3 = own.words[3];
}

inline void ldmatrix_sync_aligned_m8n8_x2_trans_shared_b16(uint32_t &r0, uint32_t &r1,
                                                           uint32_t address)
{
    matrix_load own = {address, {}};
    load_matrices(own, 2, true);
    r0 = own.words[0], r1 = own.words[1];
}

inline void ld_shared_u32(uint32_t &x, uint32_t address)
{
    x = *reinterpret_cast<const uint32_t *>(shared_at(address, 4, 4));
}

inline void mad_lo_u32(uint32_t &d, uint32_t a, uint32_t b, uint32_t c)
{
    d = a * b + c;
}

inline void prmt_b32(uint32_t &d, uint32_t a, uint32_t b, uint32_t selector)
{
    d = __byte_perm(a, b, selector);
}

inline void ld_shared_v2_f32(float &x, float &y, uint32_t address)
{
    const float *from = reinterpret_cast<const float *>(shared_at(address, 8, 8));
    x = from[0], y = from[1];
}

inline void ld_global_L1_no_allocate_L2_128B_v4_u32(uint32_t &x, uint32_t &y, uint32_t &z,
                                                    uint32_t &w, const void *from)
{
    if (reinterpret_cast<uintptr_t>(from) % 16 != 0)
        fault("16 bytes from %p, which is not aligned", from);
    const uint32_t *words = static_cast<const uint32_t *>(from);
    x = words[0], y = words[1], z = words[2], w = words[3];
}

inline void cp_async_cg_shared_global(uint32_t to, const void *from, uint32_t bytes,
                                      uint32_t source_bytes)
{
    if (reinterpret_cast<uintptr_t>(from) % 16 != 0 && source_bytes)
        fault("cp.async from %p, which is not aligned", from);
    begin_copy({shared_at(to, bytes, 16), static_cast<const uint8_t *>(from), source_bytes,
                bytes - source_bytes});
}

inline void cp_async_cg_shared_global_L2_128B(uint32_t to, const void *from, uint32_t bytes,
                                              uint32_t source_bytes)
{
    cp_async_cg_shared_global(to, from, bytes, source_bytes);
}

inline void cp_async_ca_shared_global(uint32_t to, const void *from, uint32_t bytes)
{
    if (reinterpret_cast<uintptr_t>(from) % bytes != 0)
        fault("cp.async from %p, which is not aligned", from);
    begin_copy({shared_at(to, bytes, bytes), static_cast<const uint8_t *>(from), bytes, 0});
}

inline void cp_async_ca_shared_global(uint32_t to, const void *from, uint32_t bytes,
                                      uint32_t source_bytes)
{
    if (reinterpret_cast<uintptr_t>(from) % bytes != 0 && source_bytes)
        fault("cp.async from %p, which is not aligned", from);
    begin_copy({shared_at(to, bytes, bytes), static_cast<const uint8_t *>(from), source_bytes,
                bytes - source_bytes});
}

/* Hints: what they name must be there. */
inline void prefetch_global_L2(const void *at)
{
    (void)*static_cast<const volatile uint8_t *>(at);
}

inline void cp_async_bulk_prefetch_L2_global(const void *from, uint32_t bytes)
{
    const volatile uint8_t *at = static_cast<const uint8_t *>(from);
    if (reinterpret_cast<uintptr_t>(from) % 16 != 0 || bytes % 16 != 0)
        fault("cp.async.bulk.prefetch of %u bytes from %p", bytes, from);
    if (bytes)
        (void)(at[0] + at[bytes - 1]);
}

inline void cp_async_commit_group()
{
    commit_copies();
}

inline void cp_async_wait_group(uint32_t groups)
{
    wait_copies(groups);
}

inline void bar_sync(uint32_t id, uint32_t threads)
{
    barrier(id, threads, false);
}

inline void griddepcontrol_wait()
{
    wait_for_earlier();
}

inline void griddepcontrol_launch_dependents()
{
}

inline void rcp_approx_ftz_f32(float &y, float x)
{
    y = approximate_reciprocal(x);
}

inline void max_NaN_f32(float &y, float a, float b)
{
    y = isnan(a) || isnan(b) ? NAN : a < b ? b : a;
}

inline void ex2_approx_ftz_f32(float &y, float x)
{
    y = exp2f(x);
    if (fabsf(y) < 0x1p-126f)
        y = 0.0f;
}

} /* namespace ptx */

} /* namespace cuda_host */

#endif
