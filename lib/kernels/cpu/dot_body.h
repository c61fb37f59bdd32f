/* SPDX-License-Identifier: MIT */
/*
 * The table of dots of one instruction set. Included once by a source file that is compiled for
 * that set and has named the table: #define STRATA__DOTS strata__dots_avx2
 */
#include "kernels/cpu/sink_dot.h"

#include "kernels/cpu/decode_level.h"
#include "kernels/cpu/decode_list.h"

enum {
    AHEAD_BYTES = 3072, /* from what is multiplied to what is brought near meanwhile */
    LINE_BYTES = 64,
    STEP_VALUES = 256 /* of a weight row between two looks ahead */
};

/* Hardware stops at the end of a page, and learns anew where each stream of weights begins. */
static inline void bring_near(const uint8_t *from, uint64_t bytes)
{
    uintptr_t at = (uintptr_t)from + AHEAD_BYTES;
    for (uint64_t i = 0; i < bytes; i += LINE_BYTES)
        __builtin_prefetch((const void *)(at + i), 0, 2);
}

static inline float sink_sum(const sink *from)
{
    return floats_sum(floats_add(floats_add(from->sums[0], from->sums[2]),
                                 floats_add(from->sums[1], from->sums[3])));
}

#define DOTS(id, name, values, bytes)                                                              \
    static void dots_##name(const uint8_t *weights, uint64_t row_bytes, uint64_t blocks,           \
                            uint32_t outputs, const float *row, float *sums)                       \
    {                                                                                              \
        const uint64_t step = STEP_VALUES / (values);                                              \
        for (uint32_t n = 0; n < outputs; n++, weights += row_bytes) {                             \
            const uint8_t *block = weights;                                                        \
            sink to = {.row = row};                                                                \
            uint64_t left = blocks;                                                                \
            for (; left >= step; left -= step, block += step * (bytes)) {                          \
                bring_near(block, step *(bytes));                                                  \
                decode_##name(block, step, &to);                                                   \
            }                                                                                      \
            bring_near(block, left *(bytes));                                                      \
            decode_##name(block, left, &to);                                                       \
            sums[n] = sink_sum(&to);                                                               \
        }                                                                                          \
    }
STRATA__DECODER_LIST(DOTS)

#define ENTRY(id, name, values, bytes) [id] = dots_##name,
const strata__dots_fn STRATA__DOTS[STRATA__FORMAT_LIMIT] = {STRATA__DECODER_LIST(ENTRY)};
