/* SPDX-License-Identifier: MIT */
/**
 * @file
 * Every byte known before one is allocated. A plan is made from a pack and numbers
 * about a device; it needs no device, no driver and no tensor data.
 */
#ifndef STRATA_PLAN_H
#define STRATA_PLAN_H

#include <strata/base.h>
#include <strata/context.h>
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
    STRATA_EXPERTS_RESIDENT = 2 /**< all on the device for good, or the plan is infeasible */
};

/** Rows of a step of decoding. */
enum {
    STRATA_DECODE_MOST_ROWS = 16,        /**< the most that can be planned */
    STRATA_DECODE_ROWS_NONE = 0x7fffffff /**< no memory is planned for decoding */
};

/** Facts about a device as numbers. 0 takes the default for the compute capability. */
typedef struct strata_device_facts {
    uint32_t struct_size;           /**< sizeof this structure */
    uint32_t compute_capability;    /**< 90 means 9.0; from 80 on; 0: the CPU device */
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

/**
 * What a plan is to be made for. All zero (after struct_size) is a good default: the CPU device.
 */
typedef struct strata_plan_options {
    uint32_t struct_size;    /**< sizeof this structure */
    uint32_t kv_format;      /**< STRATA_KV_* */
    uint32_t experts;        /**< STRATA_EXPERTS_* */
    uint32_t sequence_count; /**< sequences that the KV cache holds; 0: 1 */
    /** for everything the library allocates on the device; 0: all of it */
    uint64_t device_budget_bytes;
    uint64_t host_budget_bytes; /**< page-locked host memory; 0: no limit */
    uint64_t context_tokens;    /**< longest sequence; 0: 4096, or the trained context if shorter */
    uint64_t prompt_tokens;     /**< prompt length to plan for; 0: the context */
    uint64_t chunk_tokens;      /**< tokens that pass all layers together; 0: chosen */
    const char *path;           /**< "auto" (NULL), "fp16", "fused,8:fp16,13:fp16" */
    const strata_device_facts *device; /**< NULL: the session's device, else the CPU */
    /**
     * 1: a part of the expert cache as large as a prompt's memory is lent to prompts
     * (STRATA_MEMORY_LOAN), which then need none of their own
     */
    uint32_t lend_cache;
    uint32_t reserved0; /**< 0 */
    /**
     * most rows of a strata_session_decode(), 1 to STRATA_DECODE_MOST_ROWS; 0: that many;
     * STRATA_DECODE_ROWS_NONE: the session does not decode
     */
    uint32_t decode_rows;
    uint32_t reserved1; /**< 0 */
    /**
     * tokens that all sequences hold together, those that are shared counted once, in whole pages;
     * at least the context; 0: the context for each sequence
     */
    uint64_t kv_tokens;
    /**
     * what paths cost on the device, as strata_costs_measure() tells; NULL: what is usual for the
     * compute capability
     */
    const char *costs;
} strata_plan_options;

/** Bytes that the text of strata_costs_measure() never exceeds. */
enum { STRATA_COSTS_MOST_BYTES = 16384 };

/**
 * Measures what each path costs on a device for each block format, and tells it as text for
 * strata_plan_options.costs: a head, then lines of path, format, and billions of floating-point
 * operations a second. Takes seconds, and some 2 GB of an accelerator's memory. Thread-safety: any
 * thread; other work on the device makes the figures worse.
 *
 * @param context   of the device
 * @param device    "cpu" (or NULL), "cuda:0"
 * @param text      the caller's [capacity]; gets the text and its NUL
 * @param out_bytes bytes of text and NUL, also where they do not fit
 * @return STRATA_OK, STRATA_ERR_BUFFER_TOO_SMALL, STRATA_ERR_NO_DEVICE, STRATA_ERR_NO_MEMORY,
 *         STRATA_ERR_DEVICE_MEMORY, STRATA_ERR_DRIVER, STRATA_ERR_INVALID_ARGUMENT
 */
STRATA_API STRATA_NODISCARD strata_status strata_costs_measure(strata_context *context,
                                                               const char *device, char *text,
                                                               uint64_t capacity,
                                                               uint64_t *out_bytes);

/** Fills the defaults, never writing beyond caller_bytes, and sets struct_size to it. */
STRATA_API void strata_plan_options_init(strata_plan_options *options, uint64_t caller_bytes);

/** Fills zeros, never writing beyond caller_bytes, and sets struct_size to it. */
STRATA_API void strata_device_facts_init(strata_device_facts *facts, uint64_t caller_bytes);

/** How a layer's experts are multiplied. */
enum {
    STRATA_PATH_DIRECT = 0, /**< row by row, blobs read in place; at most 16 rows */
    STRATA_PATH_FUSED = 1,  /**< int8, gate to down in one kernel for each group of experts */
    STRATA_PATH_MMQ = 2,    /**< int8, one product at a time */
    STRATA_PATH_FP16 = 3,   /**< decoded to half precision */
    STRATA_PATH_NONE = 254  /**< a layer without experts */
};

/** Which memory a buffer lies in; offsets count from its base. */
enum {
    STRATA_REGION_SESSION = 0, /**< device memory of a session */
    STRATA_REGION_PREFILL = 1, /**< device memory of a prefill: strata_prefill_bytes() */
    STRATA_REGION_HOST = 2,    /**< page-locked host memory of a prefill */
    STRATA_REGION_DECODE = 3   /**< page-locked host memory of decoding */
};

/**
 * Plans a session and its prompts: chooses chunk, tiles, ring and residents by predicted time and
 * lays out every buffer. No tensor data is read.
 *
 * @param pack    stays open as long as the plan is used to make sessions of it
 * @param options copied; NULL for the defaults
 * @param out     the caller's, to be destroyed; NULL on failure
 * @return STRATA_OK, STRATA_ERR_PLAN_INFEASIBLE (by how much, and what would fit),
 *         STRATA_ERR_UNSUPPORTED (architecture, a compute capability below 8.0, a path without
 *         kernels, or a KV format that its heads do not fit, by name),
 *         STRATA_ERR_INVALID_ARGUMENT, STRATA_ERR_ABI_SIZE, STRATA_ERR_ABI_FIELD,
 *         STRATA_ERR_NO_MEMORY
 */
STRATA_API STRATA_NODISCARD strata_status strata_plan_create(strata_pack *pack,
                                                             const strata_plan_options *options,
                                                             strata_plan **out);

/** Drops the caller's reference; sessions made from the plan keep it alive. NULL is legal. */
STRATA_API void strata_plan_destroy(strata_plan *plan);

/**
 * What would fit when a plan is infeasible. 0: nothing of the kind does, or it was not asked for.
 */
typedef struct strata_plan_shortfall {
    uint32_t struct_size;    /**< sizeof this structure */
    uint32_t feasible;       /**< 1: the plan is feasible, and all below is 0 */
    uint64_t needed_bytes;   /**< smallest device budget that fits */
    uint64_t missing_bytes;  /**< that budget minus the one given */
    uint64_t context_tokens; /**< longest context that fits the budget given */
    uint64_t chunk_tokens;   /**< largest chunk that fits it, when a chunk was given */
} strata_plan_shortfall;

/**
 * Answers how far options are from a feasible plan; arguments as strata_plan_create().
 *
 * @return STRATA_OK, also when the plan is infeasible; else what strata_plan_create() answers
 */
STRATA_API STRATA_NODISCARD strata_status strata_plan_shortfall_get(
    strata_pack *pack, const strata_plan_options *options, strata_plan_shortfall *inout);

/** A plan as a whole. */
typedef struct strata_plan_info {
    uint32_t struct_size;         /**< sizeof this structure */
    uint32_t layer_count;         /**< see strata_plan_layer_get() */
    uint32_t band_count;          /**< ranges of rows: see strata_plan_band_get() */
    uint32_t persistent_count;    /**< see strata_plan_persistent_get() */
    uint32_t configuration_count; /**< see strata_plan_configuration_get() */
    uint32_t chunk_count;         /**< chunks of the prompt planned for */
    uint32_t chunk_tokens;        /**< tokens that pass all layers together */
    uint32_t dense_tile_rows;     /**< rows of attention parts and dense products at a time */
    uint32_t attention_tile_rows; /**< rows of an attention kernel */
    uint32_t expert_tile_rows;    /**< rows sorted by expert of a launch */
    uint32_t logit_tile_rows;     /**< rows of logits at a time */
    uint32_t sequence_count;      /**< sequences that the KV cache holds */
    uint32_t page_tokens;         /**< tokens of a KV page */
    uint32_t kv_format;           /**< STRATA_KV_* */
    uint64_t context_tokens;      /**< longest sequence */
    uint64_t prompt_tokens;       /**< prompt planned for */
    uint64_t device_budget_bytes; /**< what the plan had to fit; UINT64_MAX: no limit */
    uint64_t device_bytes;        /**< all device memory: session_bytes and prefill_bytes */
    uint64_t session_bytes;       /**< device memory of the session */
    uint64_t prefill_bytes;       /**< device memory of reading prompts */
    uint64_t host_bytes;          /**< page-locked host memory of reading prompts */
    uint64_t pinned_expert_bytes; /**< experts to be page-locked beside it */
    uint64_t staged_expert_bytes; /**< experts that go through staging memory instead */
    uint64_t alignment_bytes;     /**< of regions and buffers */
    uint64_t arena_bytes;         /**< of the largest configuration */
    uint64_t ring_bytes;          /**< that streamed experts land in; 0: none is streamed */
    uint64_t expert_cache_bytes;  /**< experts that stay on the device */
    uint64_t loan_offset_bytes; /**< range of the cache lent to prompts, in the session's region */
    uint64_t loan_bytes;        /**< 0: no loan */
    uint64_t predicted_prompt_ns;    /**< time of the prompt planned for */
    uint64_t predicted_link_ns;      /**< time of its copies alone */
    uint64_t predicted_compute_ns;   /**< time of its kernels alone */
    uint64_t predicted_copied_bytes; /**< bytes that it sends to the device */
    uint32_t decode_rows; /**< rows of a step of decoding; 0: the session does not decode */
    /** configurations of decoding: their numbers follow on configuration_count */
    uint32_t decode_configuration_count;
    /** persistent buffers of decoding: their numbers follow on persistent_count */
    uint32_t decode_persistent_count;
    uint32_t reserved0;          /**< 0 */
    uint64_t decode_arena_bytes; /**< of the largest of them, in session_bytes */
    uint64_t decode_host_bytes;  /**< page-locked host memory of decoding */
    uint64_t kv_tokens;          /**< tokens that all sequences hold together at most */
} strata_plan_info;

/** Fills `inout`, whose struct_size the caller set. */
STRATA_API STRATA_NODISCARD strata_status strata_plan_info_get(const strata_plan *plan,
                                                               strata_plan_info *inout);

/** A range of row counts: a step takes the first band that holds its rows. */
typedef struct strata_plan_band {
    uint32_t struct_size; /**< sizeof this structure */
    uint32_t rows;        /**< the most tokens of a step */
    /**
     * 1: routed experts are fetched; 0: experts are streamed ahead. With all experts on the device
     * it is what prompts do once a smaller budget has made some leave.
     */
    uint32_t fetch;
    uint32_t reserved0; /**< 0 */
} strata_plan_band;

/** Band `index`, in ascending order; the last is the chunk. */
STRATA_API STRATA_NODISCARD strata_status strata_plan_band_get(const strata_plan *plan,
                                                               uint32_t index,
                                                               strata_plan_band *inout);

/** One layer in one band. */
typedef struct strata_plan_layer {
    uint32_t struct_size;        /**< sizeof this structure */
    uint32_t path;               /**< STRATA_PATH_* */
    uint32_t configuration;      /**< see strata_plan_configuration_get() */
    uint32_t resident_count;     /**< experts of the layer that stay on the device, from 0 on */
    uint32_t group_expert_count; /**< experts copied together; 0: none is streamed */
    uint32_t reserved0;          /**< 0 */
    uint64_t slot_bytes;         /**< of one expert in ring or cache */
    const char *path_name;       /**< "fp16"; static */
    const char *reason;          /**< why it has this path; static */
} strata_plan_layer;

/** Layer `layer` in band `band`. */
STRATA_API STRATA_NODISCARD strata_status strata_plan_layer_get(const strata_plan *plan,
                                                                uint32_t layer, uint32_t band,
                                                                strata_plan_layer *inout);

/**
 * A path, a band and a kind of layer, with buffers that may share bytes where their stages do not
 * meet.
 */
typedef struct strata_plan_configuration {
    uint32_t struct_size;  /**< sizeof this structure */
    uint32_t path;         /**< STRATA_PATH_* */
    uint32_t rows;         /**< of its band */
    uint32_t layer_count;  /**< layers that use it; 0: the last norm and the logits */
    uint32_t buffer_count; /**< see strata_plan_buffer_get() */
    uint32_t reserved0;    /**< 0 */
    uint64_t bytes;        /**< of the arena that it takes */
    const char *path_name; /**< "fused"; static */
} strata_plan_configuration;

/**
 * Configuration `index`: those of reading prompts come first, and behind them those of decoding,
 * whose buffers lie in the region of the session.
 */
STRATA_API STRATA_NODISCARD strata_status strata_plan_configuration_get(
    const strata_plan *plan, uint32_t index, strata_plan_configuration *inout);

/** A planned buffer: row_capacity * row_bytes = bytes. */
typedef struct strata_plan_buffer {
    uint32_t struct_size;  /**< sizeof this structure */
    uint32_t region;       /**< STRATA_REGION_* */
    uint32_t first_stage;  /**< its content is needed from this stage of a layer on */
    uint32_t last_stage;   /**< to the end of this one; see strata_plan_stage_name() */
    uint64_t offset_bytes; /**< from the base of its region */
    uint64_t bytes;        /**< its size */
    uint64_t row_capacity; /**< a launch with more rows is refused */
    uint64_t row_bytes;    /**< of one row */
    const char *name;      /**< "expert_y"; static */
} strata_plan_buffer;

/** Buffer `index` of those that live as long as their region; behind them those of decoding. */
STRATA_API STRATA_NODISCARD strata_status strata_plan_persistent_get(const strata_plan *plan,
                                                                     uint32_t index,
                                                                     strata_plan_buffer *inout);

/** Buffer `index` of a configuration. */
STRATA_API STRATA_NODISCARD strata_status strata_plan_buffer_get(const strata_plan *plan,
                                                                 uint32_t configuration,
                                                                 uint32_t index,
                                                                 strata_plan_buffer *inout);

/** Name of a stage, "attention_norm" for 0; "?" beyond the last. Static storage. Any thread. */
STRATA_API const char *strata_plan_stage_name(uint32_t stage);

/**
 * Writes a plan as bytes for a later run on the same pack.
 *
 * @param buffer    destination; NULL with 0 bytes asks for the size
 * @param out_bytes bytes needed
 * @return STRATA_OK, STRATA_ERR_BUFFER_TOO_SMALL (out_bytes is set), STRATA_ERR_INVALID_ARGUMENT
 */
STRATA_API STRATA_NODISCARD strata_status strata_plan_save_memory(const strata_plan *plan,
                                                                  void *buffer,
                                                                  uint64_t buffer_bytes,
                                                                  uint64_t *out_bytes);

/** As strata_plan_save_memory() into a file, which is replaced; also STRATA_ERR_IO. */
STRATA_API STRATA_NODISCARD strata_status strata_plan_save_path(const strata_plan *plan,
                                                                const char *path);

/**
 * Reads a saved plan. The bytes may come from anywhere: all that they say is checked.
 *
 * @param pack that the plan was made for
 * @param out  the caller's, to be destroyed; NULL on failure
 * @return STRATA_OK, STRATA_ERR_FORMAT (no saved plan, or damaged), STRATA_ERR_UNSUPPORTED (a
 *         version that is not read), STRATA_ERR_INVALID_ARGUMENT (of another pack),
 *         STRATA_ERR_NO_MEMORY
 */
STRATA_API STRATA_NODISCARD strata_status strata_plan_load_memory(strata_pack *pack,
                                                                  const void *data, uint64_t bytes,
                                                                  strata_plan **out);

/** As strata_plan_load_memory() from a file; also STRATA_ERR_IO. */
STRATA_API STRATA_NODISCARD strata_status strata_plan_load_path(strata_pack *pack, const char *path,
                                                                strata_plan **out);

STRATA_END_DECLS

#endif
