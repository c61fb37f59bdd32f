/* SPDX-License-Identifier: MIT */
/* Blocks, their threads and what these wait for. */
#include "shim/machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "device.h"
#include "fibre.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace cuda_host
{

thread *self;

namespace
{

constexpr uint32_t MAX_THREADS = 1024, MAX_BARRIERS = 16;

struct worker : thread {
    fibre own;
    std::vector<copy> copies;     /* not yet made, oldest first */
    std::vector<uint32_t> groups; /* copies of each closed group of them */
    uint32_t open;                /* copies of the group that is not closed */
    uint32_t barrier;             /* that the thread waits at */
};

struct meeting {
    uint32_t mask, came;
    void *operands[32];
    void (*all)(void *const *operands, uint32_t mask);
};

struct barrier_place {
    uint32_t threads, came;
    bool value, result;
};

struct block_state {
    uint32_t threads, alive;
    barrier_place barriers[MAX_BARRIERS];
    std::vector<meeting> meetings[MAX_THREADS / 32];
    launch what;
};

/* Memory that a block finds as it is only when it has waited. */
struct late_range {
    uint8_t *at;
    std::vector<uint8_t> kept;
};

worker *workers[MAX_THREADS];
block_state block;
bool inside, late_away;
std::vector<late_range> late;

void take_late()
{
    for (late_range &range : late) {
        memcpy(range.kept.data(), range.at, range.kept.size());
        memset(range.at, 0xff, range.kept.size());
    }
    late_away = true;
}

void give_late()
{
    for (const late_range &range : late)
        memcpy(range.at, range.kept.data(), range.kept.size());
    late_away = false;
}

worker *own_worker()
{
    return static_cast<worker *>(self);
}

const char *const waits[] = {"nothing", "its warp", "a barrier", "nothing, it has ended"};

/* Every thread's stack: kernels, one after the other, of all blocks. */
void worker_main()
{
    fibre_entered();
    for (;;) {
        block.what.body(block.what.context);
        worker *own = own_worker();
        if (!own->copies.empty())
            fault("the thread ends before its copies have come");
        if (block.what.overlapped && !own->waited_for_earlier)
            fault("the thread ends without having waited for earlier kernels");
        own->state = ENDED;
        fibre_leave(&own->own);
    }
}

void wait_as(thread_state state)
{
    worker *own = own_worker();
    own->state = state;
    fibre_leave(&own->own);
}

void release_threads(uint32_t id)
{
    barrier_place &place = block.barriers[id];
    place.result = place.value;
    place.value = false;
    place.came = 0;
    for (uint32_t t = 0; t < block.threads; t++)
        if (workers[t]->state == AT_BARRIER && workers[t]->barrier == id)
            workers[t]->state = READY;
}

void begin_block()
{
    for (barrier_place &place : block.barriers)
        place = {};
    for (uint32_t t = 0; t < block.threads; t++) {
        worker *w = workers[t];
        w->state = READY;
        w->copies.clear();
        w->groups.clear();
        w->open = 0;
        w->waited_for_earlier = false;
        block.meetings[t / 32].clear();
    }
    block.alive = block.threads;
    shared_begin(block.what.shared_bytes);
    if (block.what.overlapped)
        take_late();
}

/* Runs a thread until it waits. */
void resume(worker *w)
{
    self = w;
    threadIdx = w->index;
    fibre_enter(&w->own);
    self = nullptr;
    if (w->state != ENDED)
        return;
    block.alive--;
    barrier_place &place = block.barriers[0];
    if (place.came && place.threads == 0 && place.came == block.alive)
        release_threads(0);
}

/* One turn of a warp: its lanes, as long as one of them can go on. */
bool run_warp(uint32_t warp)
{
    uint32_t first = warp * 32, count = std::min(32u, block.threads - first), order[32];
    bool any = false, again = true;
    make_order(order, count);
    while (again) {
        again = false;
        for (uint32_t i = 0; i < count; i++) {
            worker *w = workers[first + order[i]];
            if (w->state != READY)
                continue;
            resume(w);
            any = again = true;
        }
    }
    return any;
}

void run_block()
{
    uint32_t warps = (block.threads + 31) / 32, order[MAX_THREADS / 32];
    begin_block();
    while (block.alive) {
        bool any = false;
        make_order(order, warps);
        for (uint32_t i = 0; i < warps; i++)
            any = run_warp(order[i]) || any;
        if (any)
            continue;
        for (uint32_t t = 0; t < block.threads; t++)
            if (workers[t]->state != ENDED) {
                self = workers[t];
                fault("no thread can go on; this one waits for %s", waits[self->state]);
            }
    }
    shared_end();
}

void make_workers(const dim3 &shape)
{
    for (uint32_t t = 0; t < block.threads; t++) {
        if (!workers[t]) {
            workers[t] = new worker();
            fibre_create(&workers[t]->own, worker_main);
        }
        workers[t]->index = {t % shape.x, t / shape.x % shape.y, t / shape.x / shape.y};
        workers[t]->warp = t / 32;
        workers[t]->lane = t % 32;
    }
}

/* The first `count` copies are made. */
void make_copies(worker *w, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        make_copy(w->copies[i]);
    w->copies.erase(w->copies.begin(), w->copies.begin() + count);
}

} /* namespace */

void fault(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fflush(stdout);
    fprintf(stderr, "FAULT ");
    vfprintf(stderr, format, args);
    va_end(args);
    if (self)
        fprintf(stderr, " (block %u,%u,%u of %u,%u,%u, thread %u,%u,%u of %u,%u,%u)", blockIdx.x,
                blockIdx.y, blockIdx.z, gridDim.x, gridDim.y, gridDim.z, self->index.x,
                self->index.y, self->index.z, blockDim.x, blockDim.y, blockDim.z);
    fprintf(stderr, "\n");
    abort();
}

bool barrier(uint32_t id, uint32_t threads, bool value)
{
    if (id >= MAX_BARRIERS || threads % 32 != 0 || threads > block.threads)
        fault("barrier %u of %u threads", id, threads);
    barrier_place &place = block.barriers[id];
    if (place.came && place.threads != threads)
        fault("barrier %u is one of %u threads for some and of %u for others", id, place.threads,
              threads);
    place.threads = threads;
    place.value = place.value || value;
    if (++place.came == (threads ? threads : block.alive)) {
        release_threads(id);
        return place.result;
    }
    own_worker()->barrier = id;
    wait_as(AT_BARRIER);
    return place.result;
}

void meet(uint32_t mask, void *operands, void (*all)(void *const *operands, uint32_t mask))
{
    worker *own = own_worker();
    uint32_t lane = own->lane, first = own->warp * 32;
    if (!(mask >> lane & 1))
        fault("lane %u is not in its mask 0x%08x", lane, mask);
    std::vector<meeting> &open = block.meetings[own->warp];
    auto at = std::find_if(open.begin(), open.end(),
                           [mask](const meeting &m) { return (m.mask & mask) != 0; });
    if (at == open.end()) {
        for (uint32_t i = 0; i < 32; i++)
            if (mask >> i & 1 && (first + i >= block.threads || workers[first + i]->state == ENDED))
                fault("lane %u is in the mask 0x%08x and is not there", i, mask);
        open.push_back({mask, 0, {}, all});
        at = open.end() - 1;
    }
    if (at->mask != mask || at->all != all)
        fault("lanes of a warp do different things (masks 0x%08x, 0x%08x)", at->mask, mask);
    at->operands[lane] = operands;
    at->came |= 1u << lane;
    if (at->came != mask) {
        wait_as(AT_WARP);
        return;
    }
    meeting done = *at;
    open.erase(at);
    done.all(done.operands, mask);
    for (uint32_t i = 0; i < 32; i++)
        if (mask >> i & 1 && i != lane)
            workers[first + i]->state = READY;
}

void begin_copy(const copy &what)
{
    if (copies_at_once()) {
        make_copy(what);
        return;
    }
    own_worker()->copies.push_back(what);
    own_worker()->open++;
}

void commit_copies()
{
    own_worker()->groups.push_back(own_worker()->open);
    own_worker()->open = 0;
}

void wait_copies(uint32_t groups)
{
    worker *own = own_worker();
    uint32_t count = 0;
    while (own->groups.size() > groups) {
        count += own->groups.front();
        own->groups.erase(own->groups.begin());
    }
    make_copies(own, count);
}

void wait_for_earlier()
{
    self->waited_for_earlier = true;
    if (late_away)
        give_late();
}

void forget_late(const void *from, size_t bytes)
{
    const uint8_t *begin = static_cast<const uint8_t *>(from);
    auto is_inside = [&](const late_range &range) {
        return range.at >= begin && range.at < begin + bytes;
    };
    late.erase(std::remove_if(late.begin(), late.end(), is_inside), late.end());
}

cudaError_t run(const launch &what)
{
    uint64_t threads = (uint64_t)what.block.x * what.block.y * what.block.z;
    if (inside)
        fault("a kernel launches another");
    if (threads == 0 || threads > MAX_THREADS || what.grid.x == 0 || what.grid.y == 0 ||
        what.grid.z == 0 || what.grid.y > 65535 || what.grid.z > 65535)
        return failed(cudaErrorInvalidConfiguration);
    if (what.shared_bytes > shared_limit(what.kernel))
        return failed(cudaErrorInvalidValue);
    block.threads = (uint32_t)threads;
    block.what = what;
    gridDim = what.grid;
    blockDim = what.block;
    make_workers(what.block);
    inside = true;
    for (blockIdx.z = 0; blockIdx.z < what.grid.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < what.grid.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < what.grid.x; blockIdx.x++)
                run_block();
    inside = false;
    return cudaSuccess;
}

} /* namespace cuda_host */

void cuda_host_late(void *at, size_t bytes)
{
    cuda_host::late.push_back({static_cast<uint8_t *>(at), std::vector<uint8_t>(bytes)});
}

void cuda_host_late_none()
{
    cuda_host::late.clear();
}
