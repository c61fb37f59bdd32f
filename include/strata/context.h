/* SPDX-License-Identifier: MIT */
/**
 * @file
 * What the library needs of the application: a log and an allocator.
 */
#ifndef STRATA_CONTEXT_H
#define STRATA_CONTEXT_H

#include <strata/base.h>

STRATA_BEGIN_DECLS

/** Log levels: a message is handed out when its level is at most the context's. */
enum { STRATA_LOG_NONE = 0, STRATA_LOG_WARNING = 1, STRATA_LOG_INFO = 2, STRATA_LOG_DEBUG = 3 };

/**
 * Receives one finished message without a newline. Called on the thread that made the call, or on a
 * thread of the library for background work; it must not call back into the library.
 */
typedef void (*strata_log_fn)(void *user_data, int32_t level, const char *message);

/** Returns memory of `bytes` aligned to `alignment` (a power of two), or NULL. Any thread. */
typedef void *(*strata_alloc_fn)(void *user_data, uint64_t bytes, uint64_t alignment);

/** Frees what the strata_alloc_fn gave; `bytes` is what was asked for. Any thread. */
typedef void (*strata_free_fn)(void *user_data, void *pointer, uint64_t bytes);

/** Options of a context. All zero (after struct_size) is a good default: heap, no log. */
typedef struct strata_context_options {
    uint32_t struct_size;     /**< sizeof this structure */
    int32_t log_level;        /**< STRATA_LOG_*, what log_fn receives */
    strata_log_fn log_fn;     /**< or NULL */
    void *log_user_data;      /**< handed to log_fn */
    strata_alloc_fn alloc_fn; /**< host allocator, or NULL for the heap; goes with free_fn */
    strata_free_fn free_fn;   /**< goes with alloc_fn */
    void *alloc_user_data;    /**< handed to alloc_fn and free_fn */
} strata_context_options;

/** Opaque. Thread-safety: any thread. */
typedef struct strata_context strata_context;

/** Fills the defaults, never writing beyond caller_bytes, and sets struct_size to it. */
STRATA_API void strata_context_options_init(strata_context_options *options, uint64_t caller_bytes);

/**
 * Creates a context.
 *
 * @param options copied; NULL for the defaults
 * @param out     the caller's, to be destroyed; NULL on failure
 * @return STRATA_OK, STRATA_ERR_INVALID_ARGUMENT, STRATA_ERR_ABI_SIZE, STRATA_ERR_ABI_FIELD,
 *         STRATA_ERR_NO_MEMORY
 */
STRATA_API STRATA_NODISCARD strata_status
strata_context_create(const strata_context_options *options, strata_context **out);

/** Drops the caller's reference; objects made from the context keep it alive. NULL is legal. */
STRATA_API void strata_context_destroy(strata_context *context);

STRATA_END_DECLS

#endif
