/* SPDX-License-Identifier: MIT */
/*
 * How fast pieces of experts go to the device, by size and by the way they are enqueued.
 * A piece is what the feed sends: gate, up and down of neighbouring experts, from three places of
 * page-locked memory to slots one behind the other, between two timing events.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

namespace
{

enum way { ROWS, WHOLE, ROWS_NO_EVENTS, TWO_STREAMS, SINGLE, BATCH, WAYS };

const char *const way_names[WAYS] = {
    "rows", "whole", "rows, no events", "rows, two streams", "single copies", "batch of singles"};

void must(cudaError_t code)
{
    if (code == cudaSuccess)
        return;
    std::fprintf(stderr, "%s\n", cudaGetErrorString(code));
    std::exit(1);
}

struct link {
    uint8_t *host;
    uint8_t *device;
    uint64_t bytes;
    cudaStream_t streams[2];
    cudaEvent_t begun, ready, used, first, last;
};

/* Every matrix by itself, as where neighbours are not wanted. */
void send_singles(const link &l, uint64_t offset, uint64_t matrix, uint64_t experts, bool batch,
                  cudaStream_t stream)
{
    constexpr uint64_t MOST = 192;
    static const void *to[MOST], *from[MOST];
    static size_t bytes[MOST];
    size_t count = 0;
    for (uint64_t e = 0; e < experts; e++)
        for (uint64_t i = 0; i < 3 && count < MOST; i++, count++) {
            to[count] = l.device + offset + (3 * e + i) * matrix;
            from[count] = l.host + i * (l.bytes / 3) + offset / 3 + e * matrix;
            bytes[count] = matrix;
        }
#if CUDART_VERSION >= 13000
    if (batch) {
        cudaMemcpyAttributes attributes = {};
        size_t first = 0;
        attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
        must(cudaMemcpyBatchAsync(to, from, bytes, count, &attributes, &first, 1, stream));
        return;
    }
#else
    (void)batch;
#endif
    for (size_t i = 0; i < count; i++)
        must(cudaMemcpyAsync(const_cast<void *>(to[i]), from[i], bytes[i], cudaMemcpyHostToDevice,
                             stream));
}

/* `experts` experts, each a third of it gate, up and down. */
void send_piece(const link &l, uint64_t offset, uint64_t matrix, uint64_t experts, int how,
                cudaStream_t stream)
{
    bool events = how != ROWS_NO_EVENTS;
    if (events) {
        must(cudaStreamWaitEvent(stream, l.used, 0));
        must(cudaEventRecord(l.begun, stream));
    }
    if (how == SINGLE || how == BATCH) {
        send_singles(l, offset, matrix, experts, how == BATCH, stream);
        if (events)
            must(cudaEventRecord(l.ready, stream));
        return;
    }
    for (uint64_t i = 0; i < 3; i++) {
        const uint8_t *from = l.host + i * (l.bytes / 3) + offset / 3;
        uint8_t *to = l.device + offset + (how == WHOLE ? i * experts : i) * matrix;
        if (how == WHOLE)
            must(cudaMemcpyAsync(to, from, experts * matrix, cudaMemcpyHostToDevice, stream));
        else
            must(cudaMemcpy2DAsync(to, 3 * matrix, from, matrix, matrix, experts,
                                   cudaMemcpyHostToDevice, stream));
    }
    if (events)
        must(cudaEventRecord(l.ready, stream));
}

float run(const link &l, uint64_t matrix, uint64_t experts, int how)
{
    uint64_t piece = 3 * matrix * experts, number = 0;
    float ms = 0;
    must(cudaEventRecord(l.first, l.streams[0]));
    must(cudaStreamWaitEvent(l.streams[1], l.first, 0));
    for (uint64_t at = 0; at + piece <= l.bytes; at += piece, number++)
        send_piece(l, at, matrix, experts, how, l.streams[how == TWO_STREAMS ? number % 2 : 0]);
    must(cudaEventRecord(l.ready, l.streams[1]));
    must(cudaStreamWaitEvent(l.streams[0], l.ready, 0));
    must(cudaEventRecord(l.last, l.streams[0]));
    must(cudaEventSynchronize(l.last));
    must(cudaEventElapsedTime(&ms, l.first, l.last));
    return (float)(number * piece) / ms * 1e-6f;
}

} /* namespace */

int main()
{
    const uint64_t matrices[] = {454656, 884736}; /* IQ2_XS and Q4_K, 768 rows of 2048 */
    link l = {};
    l.bytes = 3ull << 28;
    must(cudaMallocHost(reinterpret_cast<void **>(&l.host), l.bytes));
    must(cudaMalloc(reinterpret_cast<void **>(&l.device), l.bytes));
    for (int i = 0; i < 2; i++)
        must(cudaStreamCreateWithFlags(&l.streams[i], cudaStreamNonBlocking));
    for (cudaEvent_t *event : {&l.begun, &l.ready, &l.first, &l.last})
        must(cudaEventCreate(event));
    must(cudaEventCreateWithFlags(&l.used, cudaEventDisableTiming));
    must(cudaEventRecord(l.used, l.streams[0]));
    for (uint64_t matrix : matrices)
        for (int how = 0; how < WAYS; how++) {
            std::printf("matrices of %llu bytes, %-18s GB/s for pieces of",
                        (unsigned long long)matrix, way_names[how]);
            for (uint64_t mib = 1; mib <= 64; mib *= 2) {
                uint64_t experts = (mib << 20) / (3 * matrix);
                if (experts == 0)
                    continue;
                run(l, matrix, experts, how);
                std::printf("  %llu MiB %.1f", (unsigned long long)mib,
                            (double)run(l, matrix, experts, how));
            }
            std::printf("\n");
        }
    return 0;
}
