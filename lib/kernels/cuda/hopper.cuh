/* SPDX-License-Identifier: MIT */
/* Instructions of sm_90a: barriers in shared memory, bulk copies, products of a warpgroup. */
#ifndef STRATA_KERNELS_CUDA_HOPPER_CUH
#define STRATA_KERNELS_CUDA_HOPPER_CUH

#include <stdint.h>

static __device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];\n" ::"r"(barrier)
                 : "memory");
}

static __device__ __forceinline__ void barrier_arrive_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier),
        "r"(bytes)
        : "memory");
}

/* Returns when the phase of that parity is complete. */
static __device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "retry:\n"
                 "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra complete;\n"
                 "bra retry;\n"
                 "complete:\n"
                 "}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Ordinary writes to shared memory before it are seen by wgmma and copies after it. */
static __device__ __forceinline__ void fence_async_proxy()
{
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

/*
 * One piece of global memory to shared memory; its bytes count at the barrier when they are there.
 */
static __device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, uint32_t bytes,
                                                 uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];\n" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

template <int COUNT> static __device__ __forceinline__ void registers_lower()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(COUNT));
}

template <int COUNT> static __device__ __forceinline__ void registers_raise()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(COUNT));
}

static __device__ __forceinline__ void products_fence()
{
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

static __device__ __forceinline__ void products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

template <int PENDING> static __device__ __forceinline__ void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(PENDING) : "memory");
}

/*
 * Descriptor of an operand in shared memory whose rows are 64 halves (128 bytes), with their chunks
 * permuted by row & 7; groups of eight rows follow each other at 1024 bytes. Adding 2 moves it by
 * 16 values.
 */
static __device__ __forceinline__ uint64_t operand_at(uint32_t address)
{
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

#define STRATA__SUMS(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])

/* d (64 x 256) = a (64 x 16) * b (256 x 16, transposed) + (add ? d : 0) */
static __device__ __forceinline__ void multiply_64x256x16(float (&d)[32][4], uint64_t a, uint64_t b,
                                                          int add)
{
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "
                 "%110, %111, "
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, "
                 "%125, %126, %127"
                 "}, %128, %129, add, 1, 1, 0, 0;\n"
                 "}\n"
                 : STRATA__SUMS(0), STRATA__SUMS(1), STRATA__SUMS(2), STRATA__SUMS(3),
                   STRATA__SUMS(4), STRATA__SUMS(5), STRATA__SUMS(6), STRATA__SUMS(7),
                   STRATA__SUMS(8), STRATA__SUMS(9), STRATA__SUMS(10), STRATA__SUMS(11),
                   STRATA__SUMS(12), STRATA__SUMS(13), STRATA__SUMS(14), STRATA__SUMS(15),
                   STRATA__SUMS(16), STRATA__SUMS(17), STRATA__SUMS(18), STRATA__SUMS(19),
                   STRATA__SUMS(20), STRATA__SUMS(21), STRATA__SUMS(22), STRATA__SUMS(23),
                   STRATA__SUMS(24), STRATA__SUMS(25), STRATA__SUMS(26), STRATA__SUMS(27),
                   STRATA__SUMS(28), STRATA__SUMS(29), STRATA__SUMS(30), STRATA__SUMS(31)
                 : "l"(a), "l"(b), "r"(add));
}

#undef STRATA__SUMS

#endif
