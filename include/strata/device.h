/* SPDX-License-Identifier: MIT */
/**
 * @file
 * The accelerators of this machine. The CPU is always there, under the name "cpu".
 */
#ifndef STRATA_DEVICE_H
#define STRATA_DEVICE_H

#include <strata/base.h>
#include <strata/context.h>

STRATA_BEGIN_DECLS

/** One accelerator. */
typedef struct strata_device_info {
    uint32_t struct_size;          /**< sizeof this structure */
    uint32_t compute_capability;   /**< 90 means 9.0 */
    uint32_t multiprocessor_count; /**< streaming multiprocessors */
    uint32_t reserved0;            /**< 0 */
    uint64_t memory_total_bytes;   /**< device memory */
    uint64_t memory_free_bytes;    /**< free when asked */
    uint64_t shared_memory_bytes;  /**< that a block may have */
    char name[64];                 /**< as the driver gives it */
    char uuid[40];                 /**< stays the same when the order of devices changes */
} strata_device_info;

/**
 * Number of accelerators. 0 is an answer, not an error: no driver, no device, or a build without
 * accelerator support.
 */
STRATA_API STRATA_NODISCARD strata_status strata_device_count(strata_context *context,
                                                              uint32_t *out_count);

/** Facts of accelerator `index` ("cuda:index"); STRATA_ERR_NO_DEVICE when there is none. */
STRATA_API STRATA_NODISCARD strata_status strata_device_info_get(strata_context *context,
                                                                 uint32_t index,
                                                                 strata_device_info *inout);

STRATA_END_DECLS

#endif
