/* SPDX-License-Identifier: MIT */
/**
 * @file
 * Reading prompts.
 */
#ifndef STRATA_PREFILL_H
#define STRATA_PREFILL_H

#include <strata/base.h>
#include <strata/session.h>

STRATA_BEGIN_DECLS

/**
 * What reading prompts needs beside a session: its working memory. Opaque. Thread-safety: the
 * session's.
 */
typedef struct strata_prefill strata_prefill;

/** Where the working memory comes from. */
enum {
    STRATA_MEMORY_OWN = 0,    /**< the library allocates and frees it */
    STRATA_MEMORY_CALLER = 1, /**< the caller's region, borrowed until the prefill is destroyed */
    STRATA_MEMORY_LOAN = 2    /**< lent by the session's expert cache, whose plan provides for it */
};

/** Options of a prefill. All zero (after struct_size) is a good default. */
typedef struct strata_prefill_options {
    uint32_t struct_size;  /**< sizeof this structure */
    uint32_t memory_kind;  /**< STRATA_MEMORY_* */
    void *memory;          /**< STRATA_MEMORY_CALLER: aligned as the plan says */
    uint64_t memory_bytes; /**< at least strata_prefill_bytes() */
    /**
     * STRATA_MEMORY_LOAN: 0: given back after every prompt, and filled with experts again; 1: kept
     * until the prefill is destroyed or the session decodes
     */
    uint32_t keep_loan;
    uint32_t reserved0; /**< 0 */
} strata_prefill_options;

/** Fills the defaults, never writing beyond caller_bytes, and sets struct_size to it. */
STRATA_API void strata_prefill_options_init(strata_prefill_options *options, uint64_t caller_bytes);

/** Exactly the device memory that a prefill of this session takes, in bytes. */
STRATA_API uint64_t strata_prefill_bytes(const strata_session *session);

/**
 * Makes a session ready to read prompts. A session has at most one prefill at a time.
 *
 * @param session outlives the prefill's use; kept alive by it
 * @param options copied; NULL for the defaults
 * @param out     the caller's, to be destroyed; NULL on failure
 * @return STRATA_OK, STRATA_ERR_BUFFER_TOO_SMALL, STRATA_ERR_MISALIGNED, STRATA_ERR_DEVICE_MEMORY,
 *         STRATA_ERR_NO_MEMORY, STRATA_ERR_STATE (the session has one), STRATA_ERR_INVALID_ARGUMENT
 */
STRATA_API STRATA_NODISCARD strata_status strata_prefill_create(
    strata_session *session, const strata_prefill_options *options, strata_prefill **out);

/** Frees what it owns. Not while a prompt is read, nor from its callbacks. NULL is legal. */
STRATA_API void strata_prefill_destroy(strata_prefill *prefill);

/** How far a prompt is. */
typedef struct strata_progress {
    uint32_t struct_size;  /**< bytes that are valid */
    uint32_t layer;        /**< layers of the present chunk that are done */
    uint32_t layer_count;  /**< layers of a chunk */
    uint32_t reserved0;    /**< 0 */
    uint64_t done_tokens;  /**< tokens of whole chunks that are done */
    uint64_t chunk_tokens; /**< tokens of the present chunk */
    uint64_t total_tokens; /**< tokens of the prompt */
} strata_progress;

/**
 * Called once a layer on the calling thread. 0 goes on, anything else stops with
 * STRATA_ERR_CANCELLED.
 */
typedef int32_t (*strata_progress_fn)(void *user_data, const strata_progress *progress);

/** Which positions' logits a prompt hands back. */
enum { STRATA_LOGITS_LAST = 0, STRATA_LOGITS_ALL = 1, STRATA_LOGITS_NONE = 2 };

/** A prompt. */
typedef struct strata_prefill_request {
    uint32_t struct_size;  /**< sizeof this structure */
    int32_t sequence_id;   /**< 0 to the plan's sequences - 1; the prompt is appended to it */
    const int32_t *tokens; /**< ids below the vocabulary count; read during the call */
    uint64_t token_count;  /**< at least 1 */
    /** host memory for the logits, position after position, or NULL with LOGITS_NONE */
    float *logits;
    uint64_t logits_capacity; /**< float32 values there: count * (1 or token_count) at least */
    uint32_t logits_mode;     /**< STRATA_LOGITS_* */
    uint32_t reserved0;       /**< 0 */
    strata_progress_fn progress_fn; /**< or NULL */
    void *progress_user_data;       /**< handed to progress_fn */
} strata_prefill_request;

/** Fills the defaults, never writing beyond caller_bytes, and sets struct_size to it. */
STRATA_API void strata_prefill_request_init(strata_prefill_request *request, uint64_t caller_bytes);

/** Outcome of a prompt. */
typedef struct strata_prefill_result {
    uint32_t struct_size; /**< sizeof this structure */
    uint32_t chunk_count; /**< chunks that were read */
    uint64_t read_tokens; /**< tokens that were read, also when the call was cancelled or failed */
    uint64_t sequence_tokens; /**< length of the sequence now */
    uint64_t wall_ns;         /**< duration of the call */
} strata_prefill_result;

/**
 * Reads a prompt: appends its tokens to a sequence and computes the logits asked for.
 *
 * Cancelled or failed, the sequence holds the chunks that were completed, and the session stays
 * usable unless the status is STRATA_ERR_DEVICE_LOST.
 *
 * @param request copied
 * @param result  filled also on failure when the arguments were good; or NULL
 * @return STRATA_OK, STRATA_ERR_CANCELLED, STRATA_ERR_INVALID_ARGUMENT (a token out of range,
 *         by index; a prompt too long for the context), STRATA_ERR_BUFFER_TOO_SMALL (logits),
 *         STRATA_ERR_BUSY,
 *         STRATA_ERR_CAPACITY (too few KV pages are free, by sequence and pages),
 *         STRATA_ERR_DRIVER, STRATA_ERR_DEVICE_LOST, or what the expert source answered
 */
STRATA_API STRATA_NODISCARD strata_status strata_prefill_run(strata_prefill *prefill,
                                                             const strata_prefill_request *request,
                                                             strata_prefill_result *result);

STRATA_END_DECLS

#endif
