/* SPDX-License-Identifier: MIT */
/*
 * The part of the CUDA runtime's interface that kernels and their checks use, for kernels that run
 * on the CPU: one device whose memory is the host's, and streams that do everything at once.
 */
#ifndef STRATA_CUDA_HOST_RUNTIME_API_H
#define STRATA_CUDA_HOST_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __maxnreg__(count)

struct uint3 {
    uint32_t x, y, z;
};

struct dim3 {
    uint32_t x, y, z;
    constexpr dim3(uint32_t x_ = 1, uint32_t y_ = 1, uint32_t z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

#define CUDA_HOST_VECTOR(type, name)                                                               \
    struct alignas(2 * sizeof(type)) name##2                                                       \
    {                                                                                              \
        type x, y;                                                                                 \
    };                                                                                             \
    struct alignas(4 * sizeof(type)) name##4                                                       \
    {                                                                                              \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    inline name##2 make_##name##2(type x, type y)                                                  \
    {                                                                                              \
        return {x, y};                                                                             \
    }                                                                                              \
    inline name##4 make_##name##4(type x, type y, type z, type w)                                  \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }

CUDA_HOST_VECTOR(uint32_t, uint)
CUDA_HOST_VECTOR(int32_t, int)
CUDA_HOST_VECTOR(float, float)

/* Numbers are the runtime's. */
enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorNotSupported = 801
};

typedef struct cuda_host_stream *cudaStream_t;
typedef struct cuda_host_event *cudaEvent_t;

enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost, cudaMemcpyDefault = 4 };

enum { cudaHostAllocMapped = 2 };

struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount;
    size_t sharedMemPerBlockOptin;
};

struct cudaFuncAttributes {
    size_t sharedSizeBytes;
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization = 6 };

struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    struct {
        int programmaticStreamSerializationAllowed;
    } val;
};

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char *cudaGetErrorName(cudaError_t code);
const char *cudaGetErrorString(cudaError_t code);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

cudaError_t cuda_host_alloc(void **out, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemset(void *memory, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);

template <typename T> cudaError_t cudaMalloc(T **out, size_t bytes)
{
    return cuda_host_alloc(reinterpret_cast<void **>(out), bytes);
}

template <typename T> cudaError_t cudaHostAlloc(T **out, size_t bytes, unsigned)
{
    return cuda_host_alloc(reinterpret_cast<void **>(out), bytes);
}

template <typename T> cudaError_t cudaMallocHost(T **out, size_t bytes)
{
    return cuda_host_alloc(reinterpret_cast<void **>(out), bytes);
}

cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to);

/* Memory that kernels are to find only behind their wait (test/gpu/late.h), until it is freed. */
void cuda_host_late(void *at, size_t bytes);
void cuda_host_late_none();

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel);
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value);

#endif
