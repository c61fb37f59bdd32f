/* SPDX-License-Identifier: MIT */
/* Kernels that the checks of device and sessions need. */
#ifndef STRATA_TEST_GPU_DEVICE_KERNELS_H
#define STRATA_TEST_GPU_DEVICE_KERNELS_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Holds the stream until *gate, in mapped host memory, is not 0 any more; half a minute at most. */
cudaError_t launch_gate(cudaStream_t stream, volatile uint32_t *gate);

/* Adds 1 to each byte, modulo 256. */
cudaError_t launch_increment(cudaStream_t stream, uint8_t *bytes, uint64_t count);

/* Ends the context: nothing on the device works for this process from then on. */
cudaError_t launch_trap(cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
