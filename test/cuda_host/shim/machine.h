/* SPDX-License-Identifier: MIT */
/*
 * A multiprocessor on the CPU. Blocks run one after the other; a block's threads are fibres that
 * run, warp after warp and lane after lane, until they wait for others: at a barrier of the block,
 * at one of the warp, or in an instruction of the whole warp. What real threads may do in any order
 * is done in the order that CUDA_HOST_ORDER names:
 *
 *   forward   ascending; copies of cp.async are made when they are waited for, as late as can be
 *   reverse   descending; copies are made at once
 *   N         shuffled by seed N, anew in each turn; each copy late or at once
 *
 * What is undefined on a device ends the program with a message: waiting for what never comes,
 * lanes that do different things in an instruction of the whole warp, addresses outside of the
 * block's shared memory, copies that nobody waited for.
 */
#ifndef STRATA_CUDA_HOST_MACHINE_H
#define STRATA_CUDA_HOST_MACHINE_H

#include <tuple>
#include <utility>

#include "cuda_runtime_api.h"

/* The place of the thread that runs. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace cuda_host
{

struct copy {
    uint8_t *to;
    const uint8_t *from;
    uint32_t bytes, zeros; /* zeros follow the bytes */
};

enum thread_state { READY, AT_WARP, AT_BARRIER, ENDED };

struct thread {
    uint3 index;
    uint32_t warp, lane;
    thread_state state;
    bool waited_for_earlier;
};

extern thread *self; /* the one that runs */

[[noreturn]] void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Barrier `id` of `threads` threads, 0: all that have not ended. Answers the disjunction. */
bool barrier(uint32_t id, uint32_t threads, bool value);

/*
 * Waits for the lanes of `mask`. The last to come calls `all` with every lane's operands, where
 * they are read and results are left.
 */
void meet(uint32_t mask, void *operands, void (*all)(void *const *operands, uint32_t mask));

void *dynamic_shared();
void *static_shared(const char &slot, size_t bytes, size_t alignment);
/* Shared memory as an instruction addresses it; memory of `bytes` there. */
uint32_t shared_offset(const void *p);
uint8_t *shared_at(uint32_t offset, uint32_t bytes, uint32_t alignment);

void begin_copy(const copy &what);
void commit_copies();
void wait_copies(uint32_t groups);

template <typename T> using same = T;

template <typename T> T &shared(const char &slot)
{
    return *static_cast<T *>(static_shared(slot, sizeof(T), alignof(T)));
}

struct launch {
    dim3 grid, block;
    size_t shared_bytes;
    bool overlapped;
    const void *kernel;
    void (*body)(void *context);
    void *context;
};

cudaError_t run(const launch &what);

void wait_for_earlier();
void forget_late(const void *from, size_t bytes);

template <typename... P> struct launch_call {
    void (*kernel)(P...);
    dim3 grid, block;
    size_t shared_bytes;
    bool overlapped;

    template <typename... A> cudaError_t operator()(A &&...args) const
    {
        typedef std::pair<void (*)(P...), std::tuple<P...>> call;
        call made(kernel, std::tuple<P...>(std::forward<A>(args)...));
        return run({grid, block, shared_bytes, overlapped, reinterpret_cast<const void *>(kernel),
                    [](void *context) {
                        const call &made = *static_cast<call *>(context);
                        std::apply(made.first, made.second);
                    },
                    &made});
    }
};

template <typename... P>
launch_call<P...> launcher(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes = 0,
                           cudaStream_t = nullptr)
{
    return {kernel, grid, block, shared_bytes, false};
}

} /* namespace cuda_host */

template <typename... P, typename... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A &&...args)
{
    cuda_host::launch_call<P...> call = {kernel, config->gridDim, config->blockDim,
                                         config->dynamicSmemBytes, config->numAttrs > 0};
    return call(std::forward<A>(args)...);
}

#endif
