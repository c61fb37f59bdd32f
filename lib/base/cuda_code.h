/* SPDX-License-Identifier: MIT */
/*
 * Status of a CUDA runtime code by its number. The numbers are the runtime's ABI, so that the
 * device and the kernels can share this without the toolkit's headers.
 */
#ifndef STRATA_BASE_CUDA_CODE_H
#define STRATA_BASE_CUDA_CODE_H

#include <strata/base.h>

static inline strata_status strata__cuda_code_status(int code)
{
    switch (code) {
    case 0:
        return STRATA_OK;
    case 2: /* cudaErrorMemoryAllocation */
        return STRATA_ERR_DEVICE_MEMORY;
    case 3:   /* cudaErrorInitializationError */
    case 34:  /* cudaErrorStubLibrary */
    case 35:  /* cudaErrorInsufficientDriver */
    case 46:  /* cudaErrorDevicesUnavailable */
    case 100: /* cudaErrorNoDevice */
    case 101: /* cudaErrorInvalidDevice */
    case 802: /* cudaErrorSystemNotReady */
    case 803: /* cudaErrorSystemDriverMismatch */
        return STRATA_ERR_NO_DEVICE;
    case 209: /* cudaErrorNoKernelImageForDevice */
    case 222: /* cudaErrorUnsupportedPtxVersion */
    case 801: /* cudaErrorNotSupported */
        return STRATA_ERR_UNSUPPORTED;
    case 201: /* cudaErrorDeviceUninitialized */
    case 214: /* cudaErrorECCUncorrectable */
    case 220: /* cudaErrorNvlinkUncorrectable */
    case 226: /* cudaErrorContained */
    case 700: /* cudaErrorIllegalAddress */
    case 702: /* cudaErrorLaunchTimeout */
    case 709: /* cudaErrorContextIsDestroyed */
    case 710: /* cudaErrorAssert */
    case 714: /* cudaErrorHardwareStackError */
    case 715: /* cudaErrorIllegalInstruction */
    case 716: /* cudaErrorMisalignedAddress */
    case 717: /* cudaErrorInvalidAddressSpace */
    case 718: /* cudaErrorInvalidPc */
    case 719: /* cudaErrorLaunchFailure */
    case 999: /* cudaErrorUnknown */
        return STRATA_ERR_DEVICE_LOST;
    default:
        return STRATA_ERR_DRIVER;
    }
}

#endif
