/* SPDX-License-Identifier: MIT */
/*
 * Instructions of a whole warp. Fragments are those of the PTX ISA: lane (g, t), g = lane / 4 and
 * t = lane % 4, has rows g and g + 8 of a and d and column g of b.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shim/half.h"
#include "shim/machine.h"
#include "shim/ptx.h"

namespace cuda_host
{

namespace
{

constexpr uint32_t ALL = 0xffffffffu;

/* d = a b + c by lanes' fragments; b by columns of a row, which a vector unit takes at once. */
template <typename P, typename S, int K>
inline void multiply(void *const *lanes, const S (&a)[16][K], const S (&b)[K][8])
{
    S sums[16][8];
    for (uint32_t lane = 0; lane < 32; lane++)
        for (uint32_t i = 0; i < 4; i++)
            sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] = static_cast<P *>(lanes[lane])->c[i];
    for (uint32_t row = 0; row < 16; row++)
        for (uint32_t k = 0; k < K; k++)
            for (uint32_t column = 0; column < 8; column++)
                sums[row][column] += a[row][k] * b[k][column];
    for (uint32_t lane = 0; lane < 32; lane++)
        for (uint32_t i = 0; i < 4; i++)
            static_cast<P *>(lanes[lane])->d[i] = sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

void multiply_halves(void *const *lanes, uint32_t)
{
    double a[16][16], b[16][8];
    for (uint32_t lane = 0; lane < 32; lane++) {
        const half_product &own = *static_cast<half_product *>(lanes[lane]);
        uint32_t g = lane / 4, t = lane % 4;
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t h = 0; h < 2; h++)
                a[g + i % 2 * 8][2 * t + i / 2 * 8 + h] = float_of((uint16_t)(own.a[i] >> 16 * h));
        for (uint32_t i = 0; i < 2; i++)
            for (uint32_t h = 0; h < 2; h++)
                b[2 * t + i * 8 + h][g] = float_of((uint16_t)(own.b[i] >> 16 * h));
    }
    multiply<half_product, double, 16>(lanes, a, b);
}

/* What the unit reads of a float32. */
double tf32(uint32_t bits)
{
    float value;
    bits &= 0xffffe000u;
    memcpy(&value, &bits, 4);
    return value;
}

void multiply_tf32(void *const *lanes, uint32_t)
{
    double a[16][8], b[8][8];
    for (uint32_t lane = 0; lane < 32; lane++) {
        const half_product &own = *static_cast<half_product *>(lanes[lane]);
        uint32_t g = lane / 4, t = lane % 4;
        for (uint32_t i = 0; i < 4; i++)
            a[g + i % 2 * 8][t + i / 2 * 4] = tf32(own.a[i]);
        for (uint32_t i = 0; i < 2; i++)
            b[t + i * 4][g] = tf32(own.b[i]);
    }
    multiply<half_product, double, 8>(lanes, a, b);
}

/* 16 values a register pair. */
template <int K> void multiply_int8(void *const *lanes, uint32_t)
{
    int a[16][K], b[K][8];
    for (uint32_t lane = 0; lane < 32; lane++) {
        const int8_product &own = *static_cast<int8_product *>(lanes[lane]);
        uint32_t g = lane / 4, t = lane % 4;
        for (uint32_t i = 0; i < K / 8; i++)
            for (uint32_t n = 0; n < 4; n++)
                a[g + i % 2 * 8][4 * t + i / 2 * 16 + n] = (int8_t)(own.a[i] >> 8 * n);
        for (uint32_t i = 0; i < K / 16; i++)
            for (uint32_t n = 0; n < 4; n++)
                b[4 * t + i * 16 + n][g] = (int8_t)(own.b[i] >> 8 * n);
    }
    multiply<int8_product, int, K>(lanes, a, b);
}

/* Rows of eight halves by the lanes that name them. */
template <uint32_t COUNT, bool TRANSPOSED> void load(void *const *lanes, uint32_t)
{
    for (uint32_t m = 0; m < COUNT; m++) {
        uint16_t rows[8][8];
        for (uint32_t r = 0; r < 8; r++) {
            const matrix_load &own = *static_cast<matrix_load *>(lanes[m * 8 + r]);
            memcpy(rows[r], shared_at(own.address, 16, 16), 16);
        }
        for (uint32_t lane = 0; lane < 32; lane++) {
            uint32_t g = lane / 4, t = lane % 4;
            uint32_t low = TRANSPOSED ? rows[2 * t][g] : rows[g][2 * t];
            uint32_t high = TRANSPOSED ? rows[2 * t + 1][g] : rows[g][2 * t + 1];
            static_cast<matrix_load *>(lanes[lane])->words[m] = low | high << 16;
        }
    }
}

/* -1: down, 1: up, 0: to the nearest. */
const int reciprocal_direction = [] {
    const char *direction = getenv("CUDA_HOST_RECIPROCAL");
    return direction ? atoi(direction) : 0;
}();

} /* namespace */

/*
 * What devices are held to, an error of less than one unit in the last place either way. The float
 * below a power of two is the one from whose reciprocal, rounded down, none of the steps that
 * divide comes to the one that is right; so it is not rounded down.
 */
float approximate_reciprocal(float x)
{
    double exact = 1.0 / fabs((double)x);
    float y = (float)exact;
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (y < 0x1p-126f)
        y = 0.0f;
    else if (reciprocal_direction > 0 && y < exact)
        y = nextafterf(y, INFINITY);
    else if (reciprocal_direction < 0 && y > exact && (bits & 0x7fffff) != 0x7fffff)
        y = nextafterf(y, 0.0f);
    return copysignf(y, x);
}

void multiply_half_16x8x16(half_product &own)
{
    meet(ALL, &own, multiply_halves);
}

void multiply_tf32_16x8x8(half_product &own)
{
    meet(ALL, &own, multiply_tf32);
}

void multiply_int8_16x8x32(int8_product &own)
{
    meet(ALL, &own, multiply_int8<32>);
}

void multiply_int8_16x8x16(int8_product &own)
{
    meet(ALL, &own, multiply_int8<16>);
}

void load_matrices(matrix_load &own, uint32_t count, bool transposed)
{
    if (count == 4)
        meet(ALL, &own, transposed ? load<4, true> : load<4, false>);
    else
        meet(ALL, &own, transposed ? load<2, true> : load<2, false>);
}

} /* namespace cuda_host */
