/* SPDX-License-Identifier: MIT */
/**
 * @file
 * Decoding: the next tokens of one or several sequences, a few rows at a time.
 *
 * A session decodes by itself, with memory of its own plan (strata_plan_options.decode_rows); it
 * needs no prefill, and may have one.
 */
#ifndef STRATA_DECODE_H
#define STRATA_DECODE_H

#include <strata/base.h>
#include <strata/prefill.h>
#include <strata/session.h>

STRATA_BEGIN_DECLS

/** Tokens to be appended to one sequence. This structure never grows. */
typedef struct strata_decode_part {
    int32_t sequence_id;   /**< 0 to the plan's sequences - 1; each at most once in a step */
    uint32_t token_count;  /**< at least 1: the token chosen last, and drafts to be verified */
    const int32_t *tokens; /**< ids below the vocabulary count; read during the call */
} strata_decode_part;

/** A step. Its rows are the tokens of all parts, one part after the other. */
typedef struct strata_decode_request {
    uint32_t struct_size;            /**< sizeof this structure */
    uint32_t part_count;             /**< at least 1 */
    const strata_decode_part *parts; /**< with strata_plan_info.decode_rows tokens at most in all */
    /**
     * host memory for the logits, or NULL with LOGITS_NONE: strata_session_logits_count() values a
     * row, row after row; LOGITS_LAST: one row a part, LOGITS_ALL: one a token
     */
    float *logits;
    uint64_t logits_capacity; /**< float32 values there */
    uint32_t logits_mode;     /**< STRATA_LOGITS_* */
    uint32_t reserved0;       /**< 0 */
} strata_decode_request;

/** Fills the defaults, never writing beyond caller_bytes, and sets struct_size to it. */
STRATA_API void strata_decode_request_init(strata_decode_request *request, uint64_t caller_bytes);

/** Outcome of a step. */
typedef struct strata_decode_result {
    uint32_t struct_size;  /**< sizeof this structure */
    uint32_t row_count;    /**< rows that were computed; 0 when the call failed */
    uint64_t logits_count; /**< float32 values that were written to the request's logits */
    uint64_t wall_ns;      /**< duration of the call */
    /** length of each part's sequence now, in the order of the parts */
    uint64_t sequence_tokens[STRATA_DECODE_MOST_ROWS];
} strata_decode_result;

/**
 * Runs one step: appends the parts' tokens to their sequences and computes the logits asked for.
 * The call returns when the step is done.
 *
 * The step counts as a whole: cancelled or failed, every sequence has the length it had before, and
 * the session stays usable unless the status is STRATA_ERR_DEVICE_LOST. The content of the logits
 * is then unspecified. Drafts that turn out wrong are cut off with strata_session_truncate().
 *
 * @param session its plan has decode_rows
 * @param request copied
 * @param result  filled also on failure when the arguments were good; or NULL
 * @return STRATA_OK, STRATA_ERR_CANCELLED, STRATA_ERR_STATE (the plan has no decoding),
 *         STRATA_ERR_CAPACITY (more rows than the plan's decode_rows, a sequence that is full, by
 *         name and position, or for which no KV page is free), STRATA_ERR_INVALID_ARGUMENT (a token
 *         out of range, a sequence that does not exist or is named twice),
 *         STRATA_ERR_BUFFER_TOO_SMALL (logits),
 *         STRATA_ERR_BUSY, STRATA_ERR_DRIVER, STRATA_ERR_DEVICE_LOST, or what the expert source
 *         answered
 */
STRATA_API STRATA_NODISCARD strata_status strata_session_decode(
    strata_session *session, const strata_decode_request *request, strata_decode_result *result);

/**
 * Scores an expert for the cache. Called between steps on the thread that decodes, for experts that
 * a step used and for those of their layers that are on the device. Not from here: calls on the
 * session.
 *
 * @param uses    rows that the expert has multiplied, in prompts too
 * @param decayed the library's own score: uses that count half after half_life_tokens rows; 1 for
 *                one of the last step
 * @return the score; not NaN
 */
typedef double (*strata_cache_score_fn)(void *user_data, uint32_t layer, uint32_t expert,
                                        uint64_t uses, double decayed);

/**
 * How decoding changes what the expert cache holds. Between two steps an expert that was used and
 * is not on the device takes the place of the one of its layer with the least score when its own
 * score is above (1 + margin) * least + margin_uses. All zero (after struct_size) is the default.
 */
typedef struct strata_cache_policy {
    uint32_t struct_size;    /**< sizeof this structure */
    uint32_t frozen;         /**< 1: decoding leaves the cache as it is */
    double half_life_tokens; /**< rows after which a use counts half; 0: 512 */
    double margin;           /**< at least 0, relative; 0: 0.25 */
    double margin_uses;      /**< at least 0, in uses; 0: 2 */
    /**
     * of experts that are put into the cache between two steps; 0: 16 MiB, but one expert at least
     */
    uint64_t admit_bytes;
    strata_cache_score_fn score_fn; /**< or NULL: the decayed uses */
    void *user_data;                /**< handed to score_fn */
} strata_cache_policy;

/** Fills the defaults, never writing beyond caller_bytes, and sets struct_size to it. */
STRATA_API void strata_cache_policy_init(strata_cache_policy *policy, uint64_t caller_bytes);

/**
 * Sets the policy of the expert cache from the next step on. Without effect where the session does
 * not stream experts.
 *
 * @param policy copied; NULL: the default
 * @return STRATA_OK, STRATA_ERR_BUSY, STRATA_ERR_INVALID_ARGUMENT (a number out of range, by name)
 */
STRATA_API STRATA_NODISCARD strata_status
strata_session_set_cache_policy(strata_session *session, const strata_cache_policy *policy);

STRATA_END_DECLS

#endif
