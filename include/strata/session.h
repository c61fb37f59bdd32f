/* SPDX-License-Identifier: MIT */
/**
 * @file
 * A pack on a device with its KV cache; prompts are read with strata/prefill.h.
 */
#ifndef STRATA_SESSION_H
#define STRATA_SESSION_H

#include <strata/base.h>
#include <strata/context.h>
#include <strata/pack.h>
#include <strata/plan.h>

STRATA_BEGIN_DECLS

/**
 * A pack on a device. Opaque. Thread-safety: one thread at a time, but for strata_session_cancel().
 */
typedef struct strata_session strata_session;

/** The three projections of one expert. */
typedef struct strata_expert_blob {
    const void *gate; /**< strata_layer_info.gate_blob_bytes bytes */
    const void *up;   /**< strata_layer_info.up_blob_bytes bytes */
    const void *down; /**< strata_layer_info.down_blob_bytes bytes */
} strata_expert_blob;

/**
 * Gives the bytes of an expert, as the file's format has them, in memory of the application that
 * stays as it is until the next call for the same layer and expert, or until the session is
 * destroyed. Called on the thread that reads the prompt or decodes.
 *
 * @return STRATA_OK, or any error, which ends the call and is handed back
 */
typedef strata_status (*strata_expert_fn)(void *user_data, uint32_t layer, uint32_t expert,
                                          strata_expert_blob *out_blob);

/** Of the memory that a strata_expert_fn hands out. */
enum {
    STRATA_EXPERT_MEMORY_PAGEABLE = 0, /**< it goes through the library's staging buffers */
    STRATA_EXPERT_MEMORY_LOCKED = 1    /**< page-locked by the application: copied from directly */
};

/** Options of a session. All zero (after struct_size) is a good default on the CPU. */
typedef struct strata_session_options {
    uint32_t struct_size;    /**< sizeof this structure */
    uint32_t thread_count;   /**< threads of the CPU device, at most 1024; 0: one per core */
    const char *device;      /**< "cpu" (NULL), "cuda:0" */
    const strata_plan *plan; /**< to run on, or NULL: made from plan_options */
    const strata_plan_options *plan_options; /**< budget, context, path policy; NULL: defaults */
    /** region of the plan's device bytes, borrowed until destroyed; NULL: the library's own */
    void *device_memory;
    uint64_t device_memory_bytes; /**< its size */
    void *stream;               /**< accelerator stream to work on, or NULL for the session's own */
    strata_expert_fn expert_fn; /**< source of experts, or NULL: the pack's memory */
    void *expert_user_data;     /**< handed to expert_fn */
    /**
     * CPU device. 0: the fastest products, BLAS where built in; 1: plain loops, which give the same
     * bits in chunks of any size and in steps of decoding.
     */
    uint32_t blas;
    uint32_t kernel_level;   /**< 0: best for the device; 80: only sm_80 kernels (for tests) */
    uint32_t expert_memory;  /**< STRATA_EXPERT_MEMORY_*, of what expert_fn hands out */
    uint32_t plain_launches; /**< 1: no kernel starts ahead of the one before's end (for tests) */
    /**
     * bytes of strata_session_profile(), or NULL: which experts to keep on the device and in
     * page-locked memory first
     */
    const void *profile;
    uint64_t profile_bytes; /**< their number */
} strata_session_options;

/** Fills the defaults, never writing beyond caller_bytes, and sets struct_size to it. */
STRATA_API void strata_session_options_init(strata_session_options *options, uint64_t caller_bytes);

/**
 * Puts a pack on a device: plans if no plan is given, allocates or borrows exactly what the plan
 * says, uploads dense weights, loads every kernel.
 *
 * @param pack    kept alive by the session
 * @param options copied; NULL for the defaults; what it points to need live only for the call,
 *                except device_memory, stream and expert_user_data
 * @param out     the caller's, to be destroyed; NULL on failure
 * @return STRATA_OK, STRATA_ERR_UNSUPPORTED (architecture, tensor format or path, by name),
 *         STRATA_ERR_NO_DEVICE, STRATA_ERR_PLAN_INFEASIBLE (what would fit),
 *         STRATA_ERR_BUFFER_TOO_SMALL, STRATA_ERR_MISALIGNED (device_memory), STRATA_ERR_NO_MEMORY,
 *         STRATA_ERR_DEVICE_MEMORY, STRATA_ERR_DRIVER, STRATA_ERR_INVALID_ARGUMENT
 */
STRATA_API STRATA_NODISCARD strata_status strata_session_create(
    strata_pack *pack, const strata_session_options *options, strata_session **out);

/**
 * Ends a session and frees what it owns. Not while a call on it runs, nor from its callbacks. NULL
 * is legal.
 */
STRATA_API void strata_session_destroy(strata_session *session);

/**
 * Asks a running call to stop with STRATA_ERR_CANCELLED within a layer. Any thread; holds until
 * that call returns.
 */
STRATA_API void strata_session_cancel(strata_session *session);

/** The plan that the session runs on: the session's, valid until it is destroyed. */
STRATA_API const strata_plan *strata_session_plan(const strata_session *session);

/** Tokens that sequence `sequence_id` holds; 0 for an empty one. */
STRATA_API STRATA_NODISCARD strata_status strata_session_length(const strata_session *session,
                                                                int32_t sequence_id,
                                                                uint64_t *out_tokens);

/**
 * Cuts a sequence to at most `length_tokens` and answers the length reached, which may be smaller
 * for models with recurrent state. Cutting to 0 empties it. Pages that it shares stay with those
 * that it shares them with (strata/state.h).
 */
STRATA_API STRATA_NODISCARD strata_status strata_session_truncate(strata_session *session,
                                                                  int32_t sequence_id,
                                                                  uint64_t length_tokens,
                                                                  uint64_t *out_length_tokens);

/** Float32 values of one position's logits: the rows of the output projection. */
STRATA_API uint64_t strata_session_logits_count(const strata_session *session);

/** What the session has done since it was created or the statistics were reset. */
typedef struct strata_session_stats {
    uint32_t struct_size;     /**< sizeof this structure */
    uint32_t reserved0;       /**< 0 */
    uint64_t prompt_tokens;   /**< tokens read by strata_prefill_run() */
    uint64_t prompt_chunks;   /**< chunks they were read in */
    uint64_t prompt_ns;       /**< wall time of those calls */
    uint64_t expert_rows;     /**< rows that experts multiplied */
    uint64_t expert_launches; /**< launches they took */
    uint64_t device_bytes;    /**< device memory the library allocated for the session */
    uint64_t host_bytes;      /**< page-locked host memory it allocated */
    /**
     * device memory that driver, context and modules took beside it until session and prefill were
     * ready, and graphs of decoding steps since, as far as it can be told from what became less on
     * the device; the context counts when the session was its first user; 0: none, or unknown
     */
    uint64_t device_runtime_bytes;
    uint64_t kernel_ns;          /**< prompt_ns in three parts: the device's kernels, */
    uint64_t blob_wait_ns;       /**< kernels waiting for experts on their way, */
    uint64_t host_gap_ns;        /**< and the device idle, waiting for the host */
    uint64_t blob_sent_bytes;    /**< experts sent to the device for prompts */
    uint64_t blob_hit_bytes;     /**< experts that were needed and there already */
    uint64_t blob_dropped_bytes; /**< experts that were left out because no token needed them */
    uint64_t blob_vain_bytes;    /**< experts that were sent, needed by no token, and not kept */
    uint64_t blob_filled_bytes;  /**< experts that were sent, needed by no token, and kept */
    uint64_t refill_bytes;       /**< put back into memory that prompts had borrowed */
    uint64_t link_bytes;         /**< sent while the link was timed */
    uint64_t link_ns;            /**< time that the link took for them */
    uint64_t lock_wanted_bytes;  /**< experts to be page-locked in host memory */
    uint64_t lock_bytes;         /**< page-locked so far */
    uint64_t lock_refused_bytes; /**< refused by the driver or the system: they are sent slower */
    uint64_t blob_slow_bytes;    /**< of blob_sent_bytes: from memory that is not page-locked */
    uint64_t decode_tokens;      /**< rows of strata_session_decode() calls that succeeded */
    uint64_t decode_steps;       /**< those calls */
    uint64_t decode_ns;          /**< their wall time */
    uint64_t decode_hit_bytes;   /**< experts that those steps needed and found on the device, */
    uint64_t decode_place_bytes; /**< experts that they read from host memory in place, */
    uint64_t decode_fetch_bytes; /**< and experts that were brought while they waited */
    uint64_t decode_admit_bytes; /**< experts that were put into the cache between steps */
} strata_session_stats;

/** Fills `inout`, whose struct_size the caller set. */
STRATA_API STRATA_NODISCARD strata_status strata_session_stats_get(const strata_session *session,
                                                                   strata_session_stats *inout);

/**
 * How often each expert was used, as bytes for a later session of the same pack
 * (strata_session_options.profile). Nothing is counted while a session does not stream experts: it
 * gives what its own profile told, or zeros.
 *
 * @param out      memory for the bytes, or NULL to ask for their number
 * @param capacity its size; nothing is written when it is too small
 * @param out_bytes bytes of the profile
 * @return STRATA_OK, STRATA_ERR_BUSY, STRATA_ERR_INVALID_ARGUMENT
 */
STRATA_API STRATA_NODISCARD strata_status strata_session_profile(strata_session *session, void *out,
                                                                 uint64_t capacity,
                                                                 uint64_t *out_bytes);

/**
 * Rows that each expert of a layer has multiplied, the profile's included.
 *
 * @param out_uses memory for one value an expert
 * @param capacity values that fit there: at least the pack's experts
 * @return STRATA_OK, STRATA_ERR_BUSY, STRATA_ERR_BUFFER_TOO_SMALL, STRATA_ERR_INVALID_ARGUMENT
 */
STRATA_API STRATA_NODISCARD strata_status strata_session_expert_uses(strata_session *session,
                                                                     uint32_t layer,
                                                                     uint64_t *out_uses,
                                                                     uint64_t capacity);

/**
 * Forgets the experts on the device, which the next prompt sends again. For measurements. Sessions
 * that do not stream experts, because all are on the device, keep them.
 *
 * @return STRATA_OK, STRATA_ERR_BUSY, STRATA_ERR_DRIVER
 */
STRATA_API STRATA_NODISCARD strata_status strata_session_drop_experts(strata_session *session);

/**
 * Sets the device memory that the session and its prefill may have. Less than before gives memory
 * of the expert cache back to the device, in pieces of about an eighth; more takes it again, up to
 * what was planned. Applied at once, or, while another call runs, before the next prompt or step of
 * decoding. Bits do not change.
 *
 * A session that was planned with all experts on the device streams those that have left it, from
 * the pack or the source of experts, through the ring of decoding. When it gets all memory back the
 * experts are copied there before the call returns, or as part of the call that it waited for; an
 * error of that leaves a session that streams what is missing, and tries again with the next
 * prompt.
 *
 * @param bytes 0: the plan's
 * @return STRATA_OK, STRATA_ERR_PLAN_INFEASIBLE (the least that the session needs, when it is
 *         more; nothing has changed), STRATA_ERR_UNSUPPORTED (a session that reads experts in host
 *         memory, lives in the caller's memory, or whose plan was asked to keep all experts on the
 *         device or has no decoding), and from copying experts STRATA_ERR_DRIVER,
 *         STRATA_ERR_DEVICE_LOST, STRATA_ERR_CANCELLED, or what the source of experts answers
 */
STRATA_API STRATA_NODISCARD strata_status strata_session_set_budget(strata_session *session,
                                                                    uint64_t bytes);

STRATA_END_DECLS

#endif
