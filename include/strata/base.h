/* SPDX-License-Identifier: MIT */
/**
 * @file
 * Export macros, version, status codes and the detail text of the last error.
 *
 * Conventions of every strata header
 *
 *   - Every function that can fail returns a strata_status: STRATA_OK (0) or a negative code. Codes
 *     are pinned for ever. A text with the name of the thing at fault (file, tensor, layer, buffer,
 *     bytes) is kept for the calling thread: strata_last_error().
 *   - Every transparent structure begins with `uint32_t struct_size`, set by the caller to sizeof.
 *     Fields are only ever appended. Bytes of an input structure beyond what this library knows
 *     must be zero, or the call answers STRATA_ERR_ABI_FIELD.
 *   - Sizes are in bytes (`_bytes`), times in nanoseconds (`_ns`), lengths in tokens (`_tokens`).
 *   - An output is written only on success, except that a `_create` or `_open` stores NULL on
 *     failure.
 *   - NULL is a legal argument of every `_destroy` and `_close`.
 *   - The library never aborts, exits, prints, reads the environment or changes signal handlers.
 *
 * Thread-safety: a strata_context may be used from any thread. A strata_pack and a strata_plan do
 * not change after creation and may be shared. A strata_session and its strata_prefill objects are
 * used by one thread at a time; strata_session_cancel() may be called from any thread. Objects
 * count their references inside, so that the order of destruction does not matter.
 *
 * fork: accelerator state does not survive it. A forked child may only exec or exit.
 */
#ifndef STRATA_BASE_H
#define STRATA_BASE_H

#include <stdint.h>

/** Marks what the library exports. */
#if defined(STRATA_STATIC)
#define STRATA_API
#elif defined(__GNUC__)
#define STRATA_API __attribute__((visibility("default")))
#else
#define STRATA_API
#endif

/** Marks results that must be looked at. */
#if defined(__GNUC__)
#define STRATA_NODISCARD __attribute__((warn_unused_result))
/** Marks what is kept for old programs only. */
#define STRATA_DEPRECATED(message) __attribute__((deprecated(message)))
#else
#define STRATA_NODISCARD
#define STRATA_DEPRECATED(message)
#endif

/** Opens the declarations of a header for C++. */
#if defined(__cplusplus)
#define STRATA_BEGIN_DECLS extern "C" {
/** Closes what STRATA_BEGIN_DECLS opened. */
#define STRATA_END_DECLS }
#else
#define STRATA_BEGIN_DECLS
#define STRATA_END_DECLS
#endif

/** Version of the headers; strata_version_number() tells that of the loaded library. */
#define STRATA_VERSION_MAJOR 0
#define STRATA_VERSION_MINOR 1 /**< see STRATA_VERSION_MAJOR */
#define STRATA_VERSION_PATCH 0 /**< see STRATA_VERSION_MAJOR */
/** major * 1000000 + minor * 1000 + patch. */
#define STRATA_VERSION_NUMBER                                                                      \
    (STRATA_VERSION_MAJOR * 1000000 + STRATA_VERSION_MINOR * 1000 + STRATA_VERSION_PATCH)

STRATA_BEGIN_DECLS

/** Outcome of a call: STRATA_OK or a negative code of the enumeration below. */
typedef int32_t strata_status;

/** Status codes. Values never change; gaps are left for later codes. */
enum {
    STRATA_OK = 0,
    STRATA_ERR_INVALID_ARGUMENT = -10, /**< NULL, out of range, or not a value of the enumeration */
    STRATA_ERR_NO_MEMORY = -20,        /**< host memory could not be allocated */
    STRATA_ERR_DEVICE_MEMORY = -21,    /**< device memory could not be allocated */
    STRATA_ERR_ABI_SIZE = -30,    /**< a structure's struct_size is not one this library takes */
    STRATA_ERR_ABI_FIELD = -31,   /**< a field that this library does not know is set */
    STRATA_ERR_IO = -40,          /**< a file could not be opened, read or written */
    STRATA_ERR_FORMAT = -41,      /**< a file's content is not valid */
    STRATA_ERR_UNSUPPORTED = -50, /**< valid, but not something this library or device can do */
    STRATA_ERR_NO_DEVICE = -60,   /**< the device does not exist, or support was not built in */
    STRATA_ERR_DRIVER = -61,      /**< the accelerator's driver reported an error */
    STRATA_ERR_DEVICE_LOST = -62, /**< the accelerator can no longer be used by this process */
    STRATA_ERR_PLAN_INFEASIBLE = -70, /**< nothing fits; the text says by how much and what would */
    STRATA_ERR_BUFFER_TOO_SMALL = -71, /**< the caller's memory is smaller than needed */
    STRATA_ERR_MISALIGNED = -72,       /**< the caller's memory is not aligned as the plan says */
    STRATA_ERR_CAPACITY = -73, /**< more rows or tokens than buffers or KV pages were planned for */
    STRATA_ERR_CANCELLED = -80, /**< stopped by the caller; the session stays usable */
    STRATA_ERR_BUSY = -81,      /**< the object is in use by another call */
    STRATA_ERR_STATE = -82,     /**< the call does not fit the object's state */
    STRATA_ERR_INTERNAL = -90   /**< a fault of the library itself */
};

/** Name of a status, for example "STRATA_ERR_FORMAT". Static storage, never NULL. Any thread. */
STRATA_API const char *strata_status_name(strata_status status);

/** One short English sentence for a status. Static storage, never NULL. Any thread. */
STRATA_API const char *strata_status_string(strata_status status);

/**
 * Copies the detail text of the calling thread's last failed call, NUL-terminated and cut to fit.
 *
 * @param buffer       destination, or NULL to ask for the size only
 * @param buffer_bytes size of the destination in bytes
 * @return bytes needed for the whole text with its NUL (1 when there is none). Never allocates.
 *
 * Any thread; each thread has its own text.
 */
STRATA_API uint64_t strata_last_error(char *buffer, uint64_t buffer_bytes);

/** Version of the loaded library as a number, see STRATA_VERSION_NUMBER. Any thread. */
STRATA_API uint32_t strata_version_number(void);

/** Version of the loaded library as text, for example "0.1.0". Static storage. Any thread. */
STRATA_API const char *strata_version_string(void);

/** 1 when the loaded library is at least the version given, else 0. Any thread. */
STRATA_API int32_t strata_version_check(uint32_t major, uint32_t minor, uint32_t patch);

/**
 * Facts about how the library was built, as "key=value" texts ("cuda=13.0", "blas=openblas").
 *
 * @param index 0, 1, ... until the answer is NULL
 * @return static storage. Any thread.
 */
STRATA_API const char *strata_build_info(uint32_t index);

STRATA_END_DECLS

#endif
