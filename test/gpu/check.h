/* SPDX-License-Identifier: MIT */
/*
 * What the GPU checks share. Every kernel is compared with a plain float64 reference on random
 * inputs. Outputs are poisoned, so that a value nobody wrote is a NaN, and lie between guard zones,
 * so that a write outside is found. Needs nothing but the CUDA runtime and the library's own
 * sources.
 */
#ifndef STRATA_TEST_GPU_CHECK_H
#define STRATA_TEST_GPU_CHECK_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stdarg.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/products.h"
#include "late.h"

extern "C" {
#include "kernels/cpu/decode.h"
}

/* Ends the program: without a working device nothing that follows means anything. */
inline void require(cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return;
    printf("FATAL %s: %s\n", what, cudaGetErrorName(code));
    exit(2);
}

inline void require(strata_status status, const char *what)
{
    if (status == STRATA_OK)
        return;
    printf("FATAL %s: %d %s\n", what, (int)status, strata__error_text());
    exit(2);
}

/* xorshift64*; one stream a check, seeded from the program's seed. */
struct random_source {
    uint64_t state;

    explicit random_source(uint64_t seed) : state(seed * 0x9e3779b97f4a7c15u + 0x1234567)
    {
        for (int i = 0; i < 8; i++)
            bits();
    }
    uint64_t bits()
    {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return state * 0x2545f4914f6cdd1du;
    }
    uint32_t below(uint32_t limit)
    {
        return (uint32_t)((bits() >> 32) % limit);
    }
    double uniform()
    {
        return (double)(bits() >> 11) * 0x1p-53;
    }
    float normal()
    {
        double u = uniform() + 1e-300, v = uniform();
        return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
    }
};

/* Device memory of `count` elements between two guard zones, with what it last held on the host. */
template <typename T> class device_array
{
  public:
    explicit device_array(size_t count, int poison = 0xff) : count_(count)
    {
        require(cudaMalloc(&base_, bytes() + 2 * GUARD), "allocating");
        require(cudaMemset(base_, 0xa5, bytes() + 2 * GUARD), "guarding");
        require(cudaMemset(base_ + GUARD, poison, bytes()), "poisoning");
    }
    explicit device_array(const std::vector<T> &values) : device_array(values.size())
    {
        put(values);
    }
    ~device_array()
    {
        cudaFree(base_);
    }
    device_array(const device_array &) = delete;
    device_array &operator=(const device_array &) = delete;

    T *get() const
    {
        return reinterpret_cast<T *>(base_ + GUARD);
    }
    size_t count() const
    {
        return count_;
    }
    /* See late.h; for as long as the array lives. */
    void come_late()
    {
        cuda_host_late(get(), bytes());
    }
    void put(const std::vector<T> &values)
    {
        if (count_)
            require(cudaMemcpy(get(), values.data(), bytes(), cudaMemcpyDefault), "copying in");
    }
    std::vector<T> take() const
    {
        std::vector<T> values(count_);
        if (count_)
            require(cudaMemcpy(values.data(), get(), bytes(), cudaMemcpyDefault), "copying out");
        return values;
    }
    bool guards_intact() const
    {
        std::vector<uint8_t> zone(2 * GUARD);
        require(cudaMemcpy(zone.data(), base_, GUARD, cudaMemcpyDefault), "guards");
        require(cudaMemcpy(zone.data() + GUARD, base_ + GUARD + bytes(), GUARD, cudaMemcpyDefault),
                "guards");
        for (uint8_t byte : zone)
            if (byte != 0xa5)
                return false;
        return true;
    }

  private:
    static constexpr size_t GUARD = 4096;
    size_t bytes() const
    {
        return count_ * sizeof(T);
    }
    size_t count_;
    uint8_t *base_ = nullptr;
};

/* One comparison: what was compared, the worst error found and what is allowed. */
struct tally {
    int checks = 0, failures = 0;
    double worst = 0; /* error over its bound */
};

inline void report(tally &t, bool ok, double ratio, const char *format, ...)
{
    t.checks++;
    if (ratio > t.worst || ratio != ratio)
        t.worst = ratio;
    if (ok)
        return;
    t.failures++;
    if (t.failures > 12)
        return;
    va_list args;
    va_start(args, format);
    printf("  FAIL ");
    vprintf(format, args);
    printf(" (error %.3g of the bound)\n", ratio);
    va_end(args);
}

inline void close_tally(const tally &t, const char *name, int *failures)
{
    printf("%-34s %5d checks  worst %.3f of bound  %s\n", name, t.checks, t.worst,
           t.failures ? "FAILED" : "ok");
    fflush(stdout);
    *failures += t.failures;
}

template <typename F> void parallel_for(size_t count, F body)
{
    std::atomic<size_t> next{0};
    std::vector<std::thread> threads;
    unsigned workers = std::thread::hardware_concurrency();
    for (unsigned w = 0; w < (workers ? workers : 1); w++)
        threads.emplace_back([&] {
            for (size_t i = next++; i < count; i = next++)
                body(i);
        });
    for (std::thread &thread : threads)
        thread.join();
}

inline double half_value(uint16_t bits)
{
    return (double)__half2float(__ushort_as_half(bits));
}

inline uint16_t half_bits(float value)
{
    return __half_as_ushort(__float2half_rn(value));
}

/* Random rows of a format with sane scales, and the values they stand for. */
struct weight_rows {
    uint32_t format, inputs, rows;
    std::vector<uint8_t> blocks;
    std::vector<float> values;
    std::vector<float> halves; /* the values rounded to half */

    uint64_t row_bytes() const
    {
        uint64_t bytes = 0;
        strata__format_row_bytes(format, inputs, &bytes);
        return bytes;
    }
};

weight_rows make_weights(random_source &random, uint32_t format, uint32_t inputs, uint32_t rows,
                         bool wild);

/* Activation rows with a power of two scale each. */
struct activation_rows {
    std::vector<uint16_t> data;
    std::vector<float> scale;
    uint32_t width;

    double value(size_t row, size_t k) const
    {
        return half_value(data[row * width + k]) * (double)scale[row];
    }
};

activation_rows make_rows(random_source &random, uint32_t rows, uint32_t width, bool scaled,
                          float spread);

struct suite {
    strata__kernels *kernels;
    uint32_t level;
    uint64_t seed;
    bool small;       /* a few cases of everything, for slow tools */
    const char *only; /* one format's name, or NULL */

    bool leaves_out(uint32_t format) const
    {
        return small && format != STRATA__IQ2_XS && format != STRATA__Q4_K && format != STRATA__F32;
    }
};

extern const uint32_t all_formats[24];

int check_decoders(const suite &s);
int check_dense(const suite &s);
int check_experts(const suite &s);
int check_rows(const suite &s);
int check_routing(const suite &s);
int check_few(const suite &s);
int check_graph();
void bench_kernels(const suite &s);
void bench_decode(const suite &s);

#endif
