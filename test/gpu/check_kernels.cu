/* SPDX-License-Identifier: MIT */
/*
 * check_kernels [check] [small] [bench] [decode] [plain] [seed=N] [level=80|0]
 * [only=decoders,dense,experts,rows,routing,few,graph]
 *
 * Checks and times the CUDA kernels, at both levels: those of sm_80 alone and the best of the
 * device; plain: each starts when the one before has ended. Exit code 0: all right, 1: something is
 * wrong, 2: no answer, 77: no device.
 */
#include <chrono>

#include "check.h"

extern "C" {
#include "base/alloc.h"
}

static strata__kernels *open_kernels(uint32_t level, bool plain)
{
    strata__cuda_kernels_options options = {strata__allocator_default(), 0, level, plain};
    strata__kernels *kernels = nullptr;
    require(strata__cuda_kernels_create(&options, &kernels), "opening the kernels");
    return kernels;
}

static bool asked(const std::string &only, const char *name)
{
    return only.empty() || only.find(name) != std::string::npos;
}

static int run_checks(const suite &s, const std::string &only)
{
    int failures = 0;
    auto start = std::chrono::steady_clock::now();
    printf("== level %u, seed %llu\n", s.level, (unsigned long long)s.seed);
    if (asked(only, "decoders"))
        failures += check_decoders(s);
    if (asked(only, "routing"))
        failures += check_routing(s);
    if (asked(only, "rows"))
        failures += check_rows(s);
    if (asked(only, "dense"))
        failures += check_dense(s);
    if (asked(only, "experts"))
        failures += check_experts(s);
    if (asked(only, "few"))
        failures += check_few(s);
    if (asked(only, "graph"))
        failures += check_graph();
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    printf("== level %u: %d failures, %.1f s\n", s.level, failures, seconds.count());
    return failures;
}

int main(int argc, char **argv)
{
    bool check = false, bench = false, decode = false, small = false, plain = false;
    uint64_t seed = (uint64_t)std::chrono::steady_clock::now().time_since_epoch().count() % 1000000;
    std::string only;
    std::vector<uint32_t> levels = {80, 0};
    int devices = 0, failures = 0;
    for (int i = 1; i < argc; i++) {
        check |= !strcmp(argv[i], "check");
        bench |= !strcmp(argv[i], "bench");
        decode |= !strcmp(argv[i], "decode");
        small |= !strcmp(argv[i], "small");
        plain |= !strcmp(argv[i], "plain");
        if (!strncmp(argv[i], "seed=", 5))
            seed = strtoull(argv[i] + 5, nullptr, 10);
        if (!strncmp(argv[i], "level=", 6))
            levels = {(uint32_t)strtoul(argv[i] + 6, nullptr, 10)};
        if (!strncmp(argv[i], "only=", 5))
            only = argv[i] + 5;
    }
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("no CUDA device: skipped\n");
        return 77;
    }
    for (uint32_t level : levels) {
        suite s = {open_kernels(level, plain), level, seed, small};
        if (check)
            failures += run_checks(s, only);
        if (bench)
            bench_kernels(s);
        if (decode && level == 0)
            bench_decode(s);
        s.kernels->ops->destroy(s.kernels);
    }
    return failures ? 1 : 0;
}
