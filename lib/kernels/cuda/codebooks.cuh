/* SPDX-License-Identifier: MIT */
/* The codebooks in device memory, and how a block of threads brings the one it needs near. */
#ifndef STRATA_KERNELS_CUDA_CODEBOOKS_CUH
#define STRATA_KERNELS_CUDA_CODEBOOKS_CUH

#include <stdint.h>

#include "kernels/cuda/cuda_kernels.h"

/* Of the tables in the list only the codebooks are used on the device. */
#define STRATA__TABLE(type, name, count)                                                           \
    [[maybe_unused]] static __device__ __align__(16) const type name[count]
#include "kernels/tables/grids.inc"
#undef STRATA__TABLE

template <int FORMAT> struct codebook {
    static constexpr uint32_t BYTES = FORMAT == STRATA__IQ2_XXS   ? sizeof strata__grid_iq2_xxs
                                      : FORMAT == STRATA__IQ2_XS  ? sizeof strata__grid_iq2_xs
                                      : FORMAT == STRATA__IQ2_S   ? sizeof strata__grid_iq2_s
                                      : FORMAT == STRATA__IQ3_XXS ? sizeof strata__grid_iq3_xxs
                                      : FORMAT == STRATA__IQ3_S   ? sizeof strata__grid_iq3_s
                                      : FORMAT == STRATA__IQ1_S || FORMAT == STRATA__IQ1_M
                                          ? sizeof strata__grid_iq1
                                          : 0;
    /* Shared memory for it; never empty. */
    static constexpr uint32_t WORDS = BYTES ? BYTES / 16 : 1;

    static __device__ __forceinline__ const void *source()
    {
        if constexpr (FORMAT == STRATA__IQ2_XXS)
            return strata__grid_iq2_xxs;
        else if constexpr (FORMAT == STRATA__IQ2_XS)
            return strata__grid_iq2_xs;
        else if constexpr (FORMAT == STRATA__IQ2_S)
            return strata__grid_iq2_s;
        else if constexpr (FORMAT == STRATA__IQ3_XXS)
            return strata__grid_iq3_xxs;
        else if constexpr (FORMAT == STRATA__IQ3_S)
            return strata__grid_iq3_s;
        else
            return strata__grid_iq1;
    }

    /* All threads of the block; ends with a barrier. */
    static __device__ __forceinline__ void load(uint4 (&shared)[WORDS])
    {
        if constexpr (BYTES != 0) {
            const uint4 *from = static_cast<const uint4 *>(source());
            for (uint32_t i = threadIdx.x; i < WORDS; i += blockDim.x)
                shared[i] = __ldg(from + i);
            __syncthreads();
        }
    }
};

#endif
