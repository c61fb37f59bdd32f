/* SPDX-License-Identifier: MIT */
/*
 * The table of inner loops of one instruction set. Included once by a source file that is compiled
 * for that set and has named the table: #define STRATA__CODE strata__code_avx2
 */
#include "kernels/cpu/code_dot.h"
#include "kernels/cpu/code_int8.h"
#include "kernels/cpu/code_math.h"
#include "kernels/cpu/code_product.h"
#include "kernels/cpu/code_softmax.h"
#include "kernels/cpu/code_transpose.h"

const strata__cpu_code STRATA__CODE = {
    .product = product,
    .dot = dot,
    .add_lanes = add_lanes,
    .pack = pack,
    .activate = activate,
    .softmax = softmax,
    .scale_columns = scale_columns,
    .transpose = transpose,
    .sum_squares = sum_squares,
    .to_half = to_half,
    .quantise = quantise,
    .widen = widen,
    .int8_step = int8_step,
};
