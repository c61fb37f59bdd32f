/* SPDX-License-Identifier: MIT */
/**
 * @file
 * Every byte known before one is allocated. A plan is made from a pack and numbers
 * about a device; it needs no device, no driver and no tensor data.
 */
#ifndef STRATA_PLAN_H
#define STRATA_PLAN_H

#include <strata/base.h>
#include <strata/pack.h>

STRATA_BEGIN_DECLS

/** A frozen plan. Opaque. Thread-safety: immutable after creation, any thread. */
typedef struct strata_plan strata_plan;

/** How KV pages are stored. */
enum { STRATA_KV_F16 = 0, STRATA_KV_Q8_0 = 1, STRATA_KV_F32 = 2 };

/** Where experts live. */
enum {
    STRATA_EXPERTS_AUTO = 0,    /**< resident as far as the budget goes */
    STRATA_EXPERTS_STREAM = 1,  /**< none is planned to stay on the device */
    STRATA_EXPERTS_RESIDENT = 2 /**< all on the device, or the plan is infeasible */
};

/** Facts about a device as numbers. 0 takes the default for the compute capability. */
typedef struct strata_device_facts {
    uint32_t struct_size;           /**< sizeof this structure */
    uint32_t compute_capability;    /**< 90 means 9.0; 0: the CPU device */
    uint64_t memory_bytes;          /**< device memory */
    uint64_t shared_memory_bytes;   /**< that a block may have */
    uint64_t alignment_bytes;       /**< of every buffer */
    double link_bytes_per_second;   /**< host to device */
    double link_latency_seconds;    /**< of one copy */
    double memory_bytes_per_second; /**< of device memory */
    double dense_flops;             /**< dense products, per second */
    double attention_flops;         /**< attention, per second */
    double path_flops[4];           /**< expert products by path: direct, fused, mmq, fp16 */
} strata_device_facts;

/** What a plan is to be made for. All zero (after struct_size) is a good default: the CPU device.
 */
typedef struct strata_plan_options {
    uint32_t struct_size;         /**< sizeof this structure */
    uint32_t kv_format;           /**< STRATA_KV_* */
    uint32_t experts;             /**< STRATA_EXPERTS_* */
    uint32_t sequence_count;      /**< sequences that the KV cache holds; 0: 1 */
    uint64_t device_budget_bytes; /**< for everything the library allocates on the device; 0: all of
                                     it */
    uint64_t host_budget_bytes;   /**< page-locked host memory; 0: no limit */
    uint64_t
        context_tokens; /**< longest sequence; 0: 4096, or the trained context if that is shorter */
    uint64_t prompt_tokens; /**< prompt length to plan for; 0: the context */
    uint64_t chunk_tokens;  /**< tokens that pass all layers together; 0: chosen */
    const char *path;       /**< "auto" (NULL), "fp16", "fused,8:fp16,13:fp16" */
    const strata_device_facts
        *device; /**< facts, or NULL: those of the session's device, else the CPU's */
} strata_plan_options;

/** Fills the defaults, never writing beyond caller_bytes, and sets struct_size to it. */
STRATA_API void strata_plan_options_init(strata_plan_options *options, uint64_t caller_bytes);

/** Fills zeros, never writing beyond caller_bytes, and sets struct_size to it. */
STRATA_API void strata_device_facts_init(strata_device_facts *facts, uint64_t caller_bytes);

STRATA_END_DECLS

#endif
