/* SPDX-License-Identifier: MIT */
/*
 * The tables of decoders of one instruction set. Included once by a source file that is compiled
 * for that set and has named the tables: #define STRATA__DECODERS strata__decode_avx2
 */
#include "kernels/cpu/sink_write.h"

#include "kernels/cpu/decode_int8.h"
#include "kernels/cpu/decode_level.h"
#include "kernels/cpu/decode_list.h"

#define WRITER(id, name, values, bytes)                                                            \
    static void write_##name(const uint8_t *restrict block, uint64_t blocks, float *restrict out)  \
    {                                                                                              \
        sink to = {out};                                                                           \
        decode_##name(block, blocks, &to);                                                         \
    }
STRATA__DECODER_LIST(WRITER)

#define ENTRY(id, name, values, bytes) [id] = write_##name,
const strata__decode_fn STRATA__DECODERS[STRATA__FORMAT_LIMIT] = {STRATA__DECODER_LIST(ENTRY)};

const strata__decode_int8_fn STRATA__INT8_DECODERS[STRATA__FORMAT_LIMIT] = {
    [STRATA__Q4_0] = int8_q4_0,       [STRATA__Q4_1] = int8_q4_1,
    [STRATA__Q5_0] = int8_q5_0,       [STRATA__Q5_1] = int8_q5_1,
    [STRATA__Q8_0] = int8_q8_0,       [STRATA__Q2_K] = int8_q2_k,
    [STRATA__Q3_K] = int8_q3_k,       [STRATA__Q4_K] = int8_q4_k,
    [STRATA__Q5_K] = int8_q5_k,       [STRATA__Q6_K] = int8_q6_k,
    [STRATA__IQ1_S] = int8_iq1_s,     [STRATA__IQ1_M] = int8_iq1_m,
    [STRATA__IQ2_XXS] = int8_iq2_xxs, [STRATA__IQ2_XS] = int8_iq2_xs,
    [STRATA__IQ2_S] = int8_iq2_s,     [STRATA__IQ3_XXS] = int8_iq3_xxs,
    [STRATA__IQ3_S] = int8_iq3_s,     [STRATA__IQ4_NL] = int8_iq4_nl,
    [STRATA__IQ4_XS] = int8_iq4_xs,   [STRATA__MXFP4] = int8_mxfp4,
    [STRATA__Q2_0] = int8_q2_0,
};
