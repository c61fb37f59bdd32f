/* SPDX-License-Identifier: MIT */
/*
 * What becomes of the sums of the int8 product without an image, by tiles of each shape and with
 * values of every magnitude; and the division that this takes, for as many operands as there is
 * time.
 */
#include "kernels/cuda/int8_inline_copy.cuh"
#include "plain_int8.h"

namespace
{

/* Operands whose quotient by `quotient` differs from that by __fdiv_rn, and how many were tried. */
struct division_count {
    unsigned long long tried, wrong;
    float a, b; /* some of the wrong ones */
};

__device__ void try_division(float a, float b, division_count &own)
{
    float q = quotient(a, b, rounded_reciprocal(b));
    if (fabsf(a) >= 0x1p-100f && fabsf(b) >= 0x1p-100f && fabsf(b) < 0x1p126f &&
        fabsf(q) >= 0x1p-125f) {
        own.tried++;
        if (__float_as_uint(q) != __float_as_uint(__fdiv_rn(a, b)))
            own.wrong++, own.a = a, own.b = b;
    }
}

__device__ void add_count(const division_count &own, division_count *sum)
{
    atomicAdd(&sum->tried, own.tried);
    if (own.wrong)
        sum->a = own.a, sum->b = own.b;
    atomicAdd(&sum->wrong, own.wrong);
}

/* Reciprocals of floats of [1, 2), `step` apart, and of their like near the ends of the range. */
__global__ void try_reciprocals(uint32_t step, division_count *sum)
{
    division_count own = {};
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    for (uint32_t at = thread; at < (1u << 23) / step; at += threads)
        for (uint32_t exponent = 27; exponent < 253; exponent += exponent == 127 ? 125 : 100) {
            uint32_t fraction = at == 0 ? 0x7fffff : at * step + at % step;
            float b = __uint_as_float(exponent << 23 | fraction);
            own.tried++;
            if (__float_as_uint(rounded_reciprocal(b)) != __float_as_uint(__frcp_rn(b)))
                own.wrong++, own.b = b;
        }
    add_count(own, sum);
}

/*
 * Quotients next to the middle between two floats. With integers a, b of 24 bits and an odd one m
 * of 25, a 2^n = m b + s for a small s; so m = -s / b modulo 2^n.
 */
__device__ void try_middles(uint32_t b, int s, division_count &own)
{
    uint32_t zeros = (uint32_t)__ffs(b) - 1, odd = b >> zeros, inverse = odd;
    for (int i = 0; i < 5; i++)
        inverse *= 2 - odd * inverse;
    for (uint32_t n = 24; n <= 25; n++) {
        if (zeros + 10 > n)
            continue;
        uint32_t modulus = 1u << (n - zeros), m = (0 - (uint32_t)s) * inverse & (modulus - 1);
        for (m += (1u << 24) / modulus * modulus; m < 1u << 25; m += modulus) {
            uint64_t a = ((uint64_t)m * odd + (int64_t)s) >> (n - zeros);
            if (m >= 1u << 24 && m % 2 && a >= 1u << 23 && a < 1u << 24)
                try_division((float)a, (float)b, own);
        }
    }
}

__global__ void try_all_middles(uint32_t step, division_count *sum)
{
    division_count own = {};
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    for (uint32_t at = thread; at < (1u << 23) / step; at += threads)
        for (int s = -5; s <= 5; s += 2) {
            try_middles((1u << 23) + at * step + at % step, s, own);
            if (at < 64) /* next to two powers of two, where reciprocals are hardest */
                try_middles((1u << 24) - 1 - at, s, own);
        }
    add_count(own, sum);
}

__device__ uint32_t mixed(uint32_t value)
{
    value = (value ^ value >> 16) * 0x7feb352du;
    value = (value ^ value >> 15) * 0x846ca68bu;
    return value ^ value >> 16;
}

/* Any floats, in many of which fractions are edges, and exponents near to those of 1. */
__device__ float any_float(uint32_t random, uint32_t kind)
{
    const uint32_t edges[] = {0, 1, 2, 0x400000, 0x3fffff, 0x7ffffe, 0x7fffff, 0x2aaaaa};
    uint32_t bits = mixed(random);
    if (kind & 1)
        bits = (bits & 0xff800000u) | edges[bits & 7];
    if (kind & 2)
        bits = (bits & 0x807fffffu) | (119 + (bits >> 23) % 16) << 23;
    return __uint_as_float(bits);
}

__global__ void try_any(uint32_t seed, uint32_t count, division_count *sum)
{
    division_count own = {};
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    for (uint32_t at = thread; at < count; at += threads) {
        uint32_t random = mixed(seed + at);
        float a = any_float(random, at), b = any_float(random ^ 0x9e3779b9u, at >> 2);
        try_division(a, at % 32 < 24 ? b : at % 32 < 28 ? 127.0f : 1.0f + fabsf(b), own);
    }
    add_count(own, sum);
}

/* Gates of all bits, `step` apart, by each activation. */
__global__ void try_gates(uint32_t step, division_count *sum)
{
    division_count own = {};
    uint64_t thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    for (uint64_t bits = thread * step; bits < 1ull << 32; bits += threads * step)
        for (uint32_t activation :
             {STRATA__ACT_SWIGLU, STRATA__ACT_GEGLU_TANH, STRATA__ACT_SWIGLU_CLAMPED}) {
            activation_terms t = terms_of(activation, __uint_as_float((uint32_t)bits), 0.0f);
            gated_value got(t);
            float want = __fdiv_rn(t.value, __fadd_rn(1.0f, exp_exact(t.x)));
            bool same = __float_as_uint(got.value) == __float_as_uint(want) ||
                        (got.value == 0.0f && want == 0.0f);
            own.tried += got.safe;
            if (got.safe && !same)
                own.wrong++, own.a = t.value, own.b = (float)activation;
        }
    add_count(own, sum);
}

void report_divisions(const char *what, const device_array<division_count> &sum, tally &t)
{
    require(cudaDeviceSynchronize(), what);
    division_count count = sum.take()[0];
    report(t, count.wrong == 0 && count.tried, 0, "%s: %llu of %llu differ, %a / %a among them",
           what, count.wrong, count.tried, (double)count.a, (double)count.b);
}

/* Rows of one expert; the second of two, so that biases are not those of the first. */
struct out_case {
    bool paired;
    uint32_t rows, outputs, h_group, activation;
    bool bias;
    int wild; /* 0: usual values, 1: of every finite magnitude, 2: infinities as well */
};

constexpr uint32_t FIRST_ROW = 3;

/* A lane's sums: of `values`, [row][gates, then ups], where they are, else not a number. */
template <class shape>
__device__ void take_sums(const strata__int8_product_args &args, const work_tile &tile, bool paired,
                          const float *values, float (&sums)[shape::MTILES][PIECES][4])
{
    uint32_t warp = threadIdx.x / 32, r = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
    uint32_t first = tile.column * shape::ROWS + warp % shape::WEIGHT_WARPS * shape::WARP_ROWS;
    for (uint32_t n = 0; n < shape::MTILES * PIECES * 4; n++) {
        uint32_t i = n / 4 / PIECES, j = n / 4 % PIECES, v = n % 4;
        uint32_t row = warp / shape::WEIGHT_WARPS * WARP_TILE_ROWS + 8 * j + 2 * c + v % 2;
        uint32_t output = first + 16 * i + r + v / 2 * 8, stride = args.outputs;
        if (paired)
            output = first / 2 + 8 * i + r, stride = 2 * args.outputs;
        bool inside = row < tile.rows && output < args.outputs;
        sums[i][j][v] = inside ? values[row * stride + output + (paired ? v / 2 * args.outputs : 0)]
                               : __uint_as_float(0x7fffffff);
    }
}

template <class shape>
__global__ void __launch_bounds__(THREADS)
    finish(strata__int8_product_args args, bool paired, const float *values)
{
    extern __shared__ __align__(1024) uint8_t memory[];
    float sums[shape::MTILES][PIECES][4], *gathered = reinterpret_cast<float *>(memory);
    uint32_t skip = blockIdx.y * shape::TILE_ROWS;
    work_tile tile = {0, 1, FIRST_ROW + skip, min(args.range.rows - skip, shape::TILE_ROWS),
                      blockIdx.x};
    uint64_t values_of_row = (paired ? 2 : 1) * (uint64_t)args.outputs;
    take_sums<shape>(args, tile, paired, values + skip * values_of_row, sums);
    if (!paired) {
        store_tile<shape>(args, tile, sums);
        return;
    }
    activate_tile<shape>(args, tile, sums);
    gather_tile<shape>(gathered, sums);
    __syncthreads();
    quantise_tile<shape>(args, tile, gathered);
}

/* Usual sums, and in some rows such as an activation has to take care of. */
std::vector<float> make_sums(random_source &random, const out_case &c)
{
    const float large[] = {
        0.0f,   -0.0f,  1e-40f, 0x1p-101f, 0x1p-100f, -0x1p-99f,      0x1p-23f, 7.0f,  -9.3f,
        -50.9f, -51.3f, -69.5f, -87.0f,    -87.1f,    -88.1f,         88.5f,    -1e4f, 1e10f,
        -3e30f, 3e38f,  8e37f,  1e-30f,    -1e-25f,   0x1.fffffep-1f, -1e-38f};
    std::vector<float> sums((size_t)c.rows * (c.paired ? 2 : 1) * c.outputs);
    for (size_t i = 0; i < sums.size(); i++) {
        size_t row = i / (sums.size() / c.rows);
        sums[i] = random.normal() * (row % 5 == 2 ? 20.0f : 2.0f);
        if (c.wild && row % 5 > 2 && random.below(row % 5 == 3 ? 40 : 2) == 0)
            sums[i] = large[random.below(sizeof(large) / sizeof(*large))];
        /* Quotients too small to be exact, of which the factor makes a whole row. */
        if (c.wild && row % 7 == 6)
            sums[i] *= i / c.outputs % 2 ? 0x1p70f : 0x1p-122f;
        if (c.wild == 2 && row % 3 == 0 && random.below(300) == 0)
            sums[i] = random.below(3) ? random.below(2) ? INFINITY : -INFINITY : NAN;
    }
    return sums;
}

struct out_arrays {
    std::vector<float> sums, bias, up_bias, expert_scale;
};

std::vector<float> expect_stored(const out_case &c, const out_arrays &in)
{
    std::vector<float> out((size_t)(FIRST_ROW + c.rows) * c.outputs);
    memset(out.data(), 0xff, out.size() * 4);
    for (size_t i = 0; i < in.sums.size(); i++) {
        volatile float sum = in.sums[i];
        if (c.bias) {
            sum = sum + in.bias[c.outputs + i % c.outputs];
            sum = sum * in.expert_scale[1];
        }
        out[FIRST_ROW * c.outputs + i] = sum;
    }
    return out;
}

std::vector<uint8_t> expect_quantised(const out_case &c, const out_arrays &in)
{
    size_t row_bytes = strata__quantised_row_bytes(c.outputs);
    std::vector<uint8_t> out((FIRST_ROW + c.rows) * row_bytes, 0xff);
    for (uint32_t row = 0; row < c.rows; row++) {
        std::vector<float> h(c.outputs);
        for (uint32_t n = 0; n < c.outputs; n++) {
            const float *gate = &in.sums[(size_t)row * 2 * c.outputs + n];
            volatile float g = gate[0], u = gate[c.outputs];
            if (c.bias) {
                g = g + in.bias[c.outputs + n];
                u = u + in.up_bias[c.outputs + n];
            }
            h[n] = plain_activation(c.activation, g, u);
        }
        put_row(quantise(h.data(), c.outputs, c.h_group), &out[(FIRST_ROW + row) * row_bytes]);
    }
    return out;
}

/* Scales that are not a number are so in many ways. */
void unify_scales(std::vector<uint8_t> &rows, uint32_t outputs)
{
    size_t row_bytes = strata__quantised_row_bytes(outputs);
    for (size_t row = FIRST_ROW; row < rows.size() / row_bytes; row++)
        for (uint32_t i = 0; i < outputs / 32; i++) {
            uint8_t *at = &rows[row * row_bytes + strata__quantised_codes_bytes(outputs) + 4 * i];
            float scale;
            memcpy(&scale, at, 4);
            if (isnan(scale))
                memset(at, 0x7f, 4);
        }
}

template <class shape> void check_out(const out_case &c, random_source &random, tally &t)
{
    auto any = [&](size_t count) {
        std::vector<float> values(count);
        for (float &value : values)
            value = random.normal();
        return values;
    };
    out_arrays in = {make_sums(random, c), any(2 * c.outputs), any(2 * c.outputs), any(2)};
    device_array<float> sums(in.sums), bias(in.bias), up_bias(in.up_bias), scale(in.expert_scale);
    device_array<float> out((size_t)(FIRST_ROW + c.rows) * c.outputs);
    device_array<uint8_t> h((FIRST_ROW + c.rows) * strata__quantised_row_bytes(c.outputs));
    strata__int8_product_args args = {};
    args.range.rows = c.rows;
    args.bias = c.bias ? bias.get() : nullptr;
    args.up_bias = c.bias && c.paired ? up_bias.get() : nullptr;
    args.expert_scale = c.bias && !c.paired ? scale.get() : nullptr;
    args.out = out.get();
    args.h = h.get();
    args.out_stride = args.outputs = c.outputs;
    args.h_group = c.h_group;
    args.activation = c.activation;
    uint32_t columns = c.paired ? shape::OUTPUTS : shape::ROWS;
    dim3 grid((c.outputs + columns - 1) / columns,
              (c.rows + shape::TILE_ROWS - 1) / shape::TILE_ROWS);
    finish<shape>
        <<<grid, THREADS, shape::TILE_ROWS * shape::GATHER_PITCH * 4>>>(args, c.paired, sums.get());
    require(cudaGetLastError(), "finishing");
    require(cudaDeviceSynchronize(), "finishing");
    bool right = out.guards_intact() && h.guards_intact();
    if (c.paired) {
        std::vector<uint8_t> got = h.take(), want = expect_quantised(c, in);
        unify_scales(got, c.outputs);
        unify_scales(want, c.outputs);
        right = right && got == want;
    } else {
        std::vector<float> got = out.take(), want = expect_stored(c, in);
        right = right && memcmp(got.data(), want.data(), got.size() * 4) == 0;
    }
    report(t, right, 0,
           "%u warps along rows, %d tiles, %s, %u rows, %u outputs, group %u, "
           "activation %u, bias %d, wild %d",
           shape::ROW_WARPS, shape::MTILES, c.paired ? "paired" : "stored", c.rows, c.outputs,
           c.h_group, c.activation, c.bias, c.wild);
}

template <class shape> void check_shape(const suite &s, tally &t)
{
    const uint32_t rows[] = {1, 7, 33, 64, 65, 100, 128, 200}, outputs[] = {32, 192, 64, 96, 256};
    random_source random(s.seed * 31 + shape::ROW_WARPS * 8 + shape::MTILES);
    for (uint32_t n = 0; n < (s.small ? 24u : 200u); n++) {
        uint32_t width = outputs[n % 5];
        out_case c = {n % 8 != 7,      rows[(n * 3 + n / 8) % 8],
                      width,           width % 64 || n % 2 ? 32u : 64u,
                      n % 3,           n / 3 % 2 == 1,
                      (int)(n / 2 % 3)};
        if (!c.paired && c.wild == 2)
            c.wild = 1;
        check_out<shape>(c, random, t);
    }
}

} /* namespace */

int check_division(const suite &s)
{
    /* Of 2^23 fractions every one, or every 251st. */
    const uint32_t step = s.small ? 251 : 1, blocks = s.small ? 4 : 2048;
    int failures = 0;
    tally t;
    const char *const kinds[] = {"reciprocals", "quotients next to a middle", "gates",
                                 "any quotients"};
    for (int kind = 0; kind < 4; kind++) {
        device_array<division_count> sum(1, 0);
        if (kind == 0)
            try_reciprocals<<<blocks, 256>>>(step, sum.get());
        else if (kind == 1)
            try_all_middles<<<blocks, 256>>>(step, sum.get());
        else if (kind == 2)
            try_gates<<<blocks, 256>>>(s.small ? 12347 : 1, sum.get());
        else
            try_any<<<blocks, 256>>>((uint32_t)s.seed * 977, s.small ? 1u << 20 : 1u << 30,
                                     sum.get());
        require(cudaGetLastError(), "dividing");
        report_divisions(kinds[kind], sum, t);
    }
    close_tally(t, "int8, division", &failures);
    return failures;
}

int check_int8_out(const suite &s)
{
    int failures = 0;
    tally t;
    /* Warps of 32 and of 16 weight rows, and tiles of 128 activation rows. */
    check_shape<inline_shape<STRATA__Q4_0, 1>>(s, t);
    check_shape<inline_shape<STRATA__Q6_K, 1>>(s, t);
    check_shape<inline_shape<STRATA__Q4_0, 2>>(s, t);
    close_tally(t, "int8, what becomes of sums", &failures);
    return failures;
}
