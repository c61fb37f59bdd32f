/* SPDX-License-Identifier: MIT */
/*
 * Every format and its decoder, for tables of what is made of them:
 * X(id, name, values of a block, bytes of a block).
 */
#ifndef STRATA_KERNELS_CPU_DECODE_LIST_H
#define STRATA_KERNELS_CPU_DECODE_LIST_H

#include "kernels/cpu/decode_iq.h"
#include "kernels/cpu/decode_k.h"
#include "kernels/cpu/decode_simple.h"

#define STRATA__DECODER_LIST(X)                                                                    \
    X(STRATA__F32, f32, 1, 4)                                                                      \
    X(STRATA__F16, f16, 1, 2)                                                                      \
    X(STRATA__BF16, bf16, 1, 2)                                                                    \
    X(STRATA__Q4_0, q4_0, 32, 18)                                                                  \
    X(STRATA__Q4_1, q4_1, 32, 20)                                                                  \
    X(STRATA__Q5_0, q5_0, 32, 22)                                                                  \
    X(STRATA__Q5_1, q5_1, 32, 24)                                                                  \
    X(STRATA__Q8_0, q8_0, 32, 34)                                                                  \
    X(STRATA__Q2_K, q2_k, 256, 84)                                                                 \
    X(STRATA__Q3_K, q3_k, 256, 110)                                                                \
    X(STRATA__Q4_K, q4_k, 256, 144)                                                                \
    X(STRATA__Q5_K, q5_k, 256, 176)                                                                \
    X(STRATA__Q6_K, q6_k, 256, 210)                                                                \
    X(STRATA__IQ1_S, iq1_s, 256, 50)                                                               \
    X(STRATA__IQ1_M, iq1_m, 256, 56)                                                               \
    X(STRATA__IQ2_XXS, iq2_xxs, 256, 66)                                                           \
    X(STRATA__IQ2_XS, iq2_xs, 256, 74)                                                             \
    X(STRATA__IQ2_S, iq2_s, 256, 82)                                                               \
    X(STRATA__IQ3_XXS, iq3_xxs, 256, 98)                                                           \
    X(STRATA__IQ3_S, iq3_s, 256, 110)                                                              \
    X(STRATA__IQ4_NL, iq4_nl, 32, 18)                                                              \
    X(STRATA__IQ4_XS, iq4_xs, 256, 136)                                                            \
    X(STRATA__MXFP4, mxfp4, 32, 17)                                                                \
    X(STRATA__Q2_0, q2_0, 64, 18)

#endif
