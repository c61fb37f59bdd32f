/* SPDX-License-Identifier: MIT */
/*
 * The product tile of one vector type, included once per type by a source that defines
 *   TILE_NAME(x)  names of the functions
 *   TILE_VECTOR   a vector of floats
 *   TILE_LANES    its length
 *   TILE_ADD_PRODUCT(a, b, c)  a * b + c
 * Every sum is one chain over k in ascending order, whatever the shape of the tile, so all shapes
 * give the same bits. A tile loads a few vectors of rows once for all its outputs and takes the
 * weights as broadcast scalars, in the order they were decoded in.
 */

static inline TILE_VECTOR TILE_NAME(load)(const float *p)
{
    TILE_VECTOR v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Ends a chain: the sum of this call joins the sum of earlier ones. */
static inline void TILE_NAME(put)(float *sums, TILE_VECTOR sum, int first)
{
    if (!first)
        sum = TILE_NAME(load)(sums) + sum;
    memcpy(sums, &sum, sizeof sum);
}

#define ZERO_1(n) TILE_VECTOR s##n = zero;
#define STEP_1(n) s##n = TILE_ADD_PRODUCT(weights[n * stride + i] - zero, x, s##n);
#define PUT_1(n)  TILE_NAME(put)(sums + n * sum_stride, s##n, first);
#define ZERO_2(n) TILE_VECTOR s##n = zero, t##n = zero;
#define STEP_2(n)                                                                                  \
    {                                                                                              \
        TILE_VECTOR w = weights[n * stride + i] - zero;                                            \
        s##n = TILE_ADD_PRODUCT(w, x, s##n);                                                       \
        t##n = TILE_ADD_PRODUCT(w, y, t##n);                                                       \
    }
#define PUT_2(n)                                                                                   \
    TILE_NAME(put)(sums + n * sum_stride, s##n, first);                                            \
    TILE_NAME(put)(sums + n * sum_stride + TILE_LANES, t##n, first);
#define FOUR(what)  what(0) what(1) what(2) what(3)
#define EIGHT(what) FOUR(what) what(4) what(5) what(6) what(7)

/* Eight outputs of one vector of rows. */
static inline void TILE_NAME(eight_by_one)(const float *packed, uint32_t width,
                                           const float *weights, size_t stride, uint32_t k,
                                           float *sums, size_t sum_stride, int first)
{
    const TILE_VECTOR zero = {0};
    EIGHT(ZERO_1)
    for (uint32_t i = 0; i < k; i++) {
        TILE_VECTOR x = TILE_NAME(load)(packed + (size_t)i * width);
        EIGHT(STEP_1)
    }
    EIGHT(PUT_1)
}

/* Four outputs of two vectors of rows: for sixteen registers. */
static inline void TILE_NAME(four_by_two)(const float *packed, uint32_t width, const float *weights,
                                          size_t stride, uint32_t k, float *sums, size_t sum_stride,
                                          int first)
{
    const TILE_VECTOR zero = {0};
    FOUR(ZERO_2)
    for (uint32_t i = 0; i < k; i++) {
        TILE_VECTOR x = TILE_NAME(load)(packed + (size_t)i * width);
        TILE_VECTOR y = TILE_NAME(load)(packed + (size_t)i * width + TILE_LANES);
        FOUR(STEP_2)
    }
    FOUR(PUT_2)
}

/* Eight outputs of two vectors of rows: for thirty-two registers. */
static inline void TILE_NAME(eight_by_two)(const float *packed, uint32_t width,
                                           const float *weights, size_t stride, uint32_t k,
                                           float *sums, size_t sum_stride, int first)
{
    const TILE_VECTOR zero = {0};
    EIGHT(ZERO_2)
    for (uint32_t i = 0; i < k; i++) {
        TILE_VECTOR x = TILE_NAME(load)(packed + (size_t)i * width);
        TILE_VECTOR y = TILE_NAME(load)(packed + (size_t)i * width + TILE_LANES);
        EIGHT(STEP_2)
    }
    EIGHT(PUT_2)
}

#undef ZERO_1
#undef STEP_1
#undef PUT_1
#undef ZERO_2
#undef STEP_2
#undef PUT_2
#undef FOUR
#undef EIGHT
#undef TILE_NAME
#undef TILE_VECTOR
#undef TILE_LANES
#undef TILE_ADD_PRODUCT
