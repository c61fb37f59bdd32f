/* SPDX-License-Identifier: MIT */
/**
 * @file
 * An opened model file and what it says. Nothing here needs a device.
 */
#ifndef STRATA_PACK_H
#define STRATA_PACK_H

#include <strata/base.h>
#include <strata/context.h>

STRATA_BEGIN_DECLS

/**
 * An opened pack: a GGUF file of version 2 or 3, little-endian, single or split. Opaque.
 * Thread-safety: immutable after opening, any thread. Texts and arrays it hands out live until it
 * is closed and nothing uses it any more.
 */
typedef struct strata_pack strata_pack;

/** The model as a whole. */
typedef struct strata_pack_info {
    uint32_t struct_size; /**< sizeof this structure */
    uint32_t runnable; /**< 1: strata_session_create can run it; 0: runnable_reason says why not */
    uint32_t layer_count;       /**< layers that are run; 0 when not runnable, like all below */
    uint32_t width;             /**< of the residual stream, in values */
    uint32_t vocabulary_count;  /**< rows of the output projection */
    uint32_t context_tokens;    /**< trained context length */
    uint32_t expert_count;      /**< experts of a layer */
    uint32_t experts_per_token; /**< top-k */
    uint64_t file_bytes;        /**< all shards */
    uint64_t expert_bytes;      /**< all experts of all layers */
    uint64_t dense_bytes;       /**< all other tensors that are run */
    uint64_t tensor_count;      /**< see strata_pack_tensor_get() */
    uint64_t metadata_count;    /**< see strata_pack_metadata_get() */
    uint64_t token_count;       /**< entries of the vocabulary in the file; 0: none */
    char architecture[64];      /**< general.architecture */
    char name[128];             /**< general.name, cut to fit */
    char runnable_reason[256];  /**< why it cannot be run, else empty */
} strata_pack_info;

/**
 * One layer that is run. Formats are GGUF type ids, 0xffffffff where the layer has no such tensor.
 */
typedef struct strata_layer_info {
    uint32_t struct_size;     /**< sizeof this structure */
    uint32_t heads;           /**< query heads */
    uint32_t kv_heads;        /**< key and value heads */
    uint32_t head_size;       /**< in values */
    uint32_t window_tokens;   /**< sliding attention window; 0: full */
    uint32_t expert_count;    /**< 0: a dense feed-forward layer */
    uint32_t expert_width;    /**< rows of an expert's gate and up */
    uint32_t ffn_width;       /**< of the dense feed-forward part; 0: none */
    uint32_t shared_width;    /**< of the shared experts; 0: none */
    uint32_t gate_format;     /**< of the experts' gate projection */
    uint32_t up_format;       /**< of the experts' up projection */
    uint32_t down_format;     /**< of the experts' down projection */
    uint64_t gate_blob_bytes; /**< one expert's gate rows */
    uint64_t up_blob_bytes;   /**< one expert's up rows */
    uint64_t down_blob_bytes; /**< one expert's down rows */
    uint64_t dense_bytes;     /**< everything of the layer that is no expert */
} strata_layer_info;

/** One tensor of the file. */
typedef struct strata_tensor_info {
    uint32_t struct_size;     /**< sizeof this structure */
    uint32_t format;          /**< GGUF type id */
    uint32_t dimension_count; /**< 1 to 4 */
    uint32_t shard;           /**< file of a split pack, from 0 */
    uint64_t shape[4];        /**< fastest dimension first, 1 beyond dimension_count */
    uint64_t bytes;           /**< size of the data; 0 when the format is unknown */
    const void *data;         /**< the pack's, read-only */
    const char *name;         /**< the pack's */
    const char *format_name;  /**< "IQ2_XS", or "?" when unknown; static */
} strata_tensor_info;

/** Types of metadata values, as GGUF numbers them. */
enum {
    STRATA_VALUE_UINT8 = 0,
    STRATA_VALUE_INT8 = 1,
    STRATA_VALUE_UINT16 = 2,
    STRATA_VALUE_INT16 = 3,
    STRATA_VALUE_UINT32 = 4,
    STRATA_VALUE_INT32 = 5,
    STRATA_VALUE_FLOAT32 = 6,
    STRATA_VALUE_BOOL = 7,
    STRATA_VALUE_STRING = 8,
    STRATA_VALUE_ARRAY = 9,
    STRATA_VALUE_UINT64 = 10,
    STRATA_VALUE_INT64 = 11,
    STRATA_VALUE_FLOAT64 = 12
};

/** One metadata entry. */
typedef struct strata_metadata_info {
    uint32_t struct_size;  /**< sizeof this structure */
    uint32_t type;         /**< STRATA_VALUE_* */
    uint32_t element_type; /**< STRATA_VALUE_* of an array's elements, else equal to type */
    uint32_t reserved0;    /**< 0 */
    uint64_t count;        /**< elements of an array, else 1 */
    const char *key;       /**< the pack's */
} strata_metadata_info;

/** One vocabulary entry. */
typedef struct strata_token_info {
    uint32_t struct_size; /**< sizeof this structure */
    /** 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; 0: not in the file */
    uint32_t type;
    float score;         /**< 0: not in the file */
    uint32_t reserved0;  /**< 0 */
    uint64_t byte_count; /**< bytes of the stored text */
    const char *bytes;   /**< the stored text, not NUL-terminated; the pack's */
} strata_token_info;

/**
 * Opens a pack. Tensor data is not read. A split pack is opened by its first file.
 *
 * The files are mapped and must stay as they are until nothing uses the pack: one that another
 * program cuts short ends the process with SIGBUS when the part that is gone is read, and one that
 * is written to is read as it is then. Replacing a file by renaming another over it is safe.
 *
 * @param context kept alive by the pack
 * @param path    UTF-8, NUL-terminated
 * @param out     the caller's, to be closed; NULL on failure
 * @return STRATA_OK, STRATA_ERR_IO (the file), STRATA_ERR_FORMAT (what is wrong, by name),
 *         STRATA_ERR_NO_MEMORY, STRATA_ERR_INVALID_ARGUMENT
 */
STRATA_API STRATA_NODISCARD strata_status strata_pack_open_path(strata_context *context,
                                                                const char *path,
                                                                strata_pack **out);

/**
 * As strata_pack_open_path() from memory with one whole file; borrowed until nothing uses the pack.
 */
STRATA_API STRATA_NODISCARD strata_status strata_pack_open_memory(strata_context *context,
                                                                  const void *data,
                                                                  uint64_t data_bytes,
                                                                  strata_pack **out);

/**
 * Drops the caller's reference; sessions and plans made from the pack keep it alive. NULL is legal.
 */
STRATA_API void strata_pack_close(strata_pack *pack);

/** Fills `inout`, whose struct_size the caller set. */
STRATA_API STRATA_NODISCARD strata_status strata_pack_info_get(const strata_pack *pack,
                                                               strata_pack_info *inout);

/**
 * Facts of layer `layer`; STRATA_ERR_INVALID_ARGUMENT beyond the last, STRATA_ERR_UNSUPPORTED when
 * not runnable.
 */
STRATA_API STRATA_NODISCARD strata_status strata_pack_layer_get(const strata_pack *pack,
                                                                uint32_t layer,
                                                                strata_layer_info *inout);

/** Tensor `index` in file order; STRATA_ERR_INVALID_ARGUMENT beyond the last. */
STRATA_API STRATA_NODISCARD strata_status strata_pack_tensor_get(const strata_pack *pack,
                                                                 uint64_t index,
                                                                 strata_tensor_info *inout);

/** Tensor by name; STRATA_ERR_INVALID_ARGUMENT when there is none. */
STRATA_API STRATA_NODISCARD strata_status strata_pack_tensor_find(const strata_pack *pack,
                                                                  const char *name,
                                                                  strata_tensor_info *inout);

/** Metadata entry `index` in file order; STRATA_ERR_INVALID_ARGUMENT beyond the last. */
STRATA_API STRATA_NODISCARD strata_status strata_pack_metadata_get(const strata_pack *pack,
                                                                   uint64_t index,
                                                                   strata_metadata_info *inout);

/** Metadata entry by key; STRATA_ERR_INVALID_ARGUMENT when there is none. */
STRATA_API STRATA_NODISCARD strata_status strata_pack_metadata_find(const strata_pack *pack,
                                                                    const char *key,
                                                                    strata_metadata_info *inout);

/**
 * Element `element` (0 for a scalar) of a metadata entry as an integer.
 * STRATA_ERR_INVALID_ARGUMENT: no such key or element, no integer or bool, or it does not fit.
 */
STRATA_API STRATA_NODISCARD strata_status strata_pack_metadata_int64(const strata_pack *pack,
                                                                     const char *key,
                                                                     uint64_t element,
                                                                     int64_t *out_value);

/** As strata_pack_metadata_int64() for float32 and float64 values. */
STRATA_API STRATA_NODISCARD strata_status strata_pack_metadata_float64(const strata_pack *pack,
                                                                       const char *key,
                                                                       uint64_t element,
                                                                       double *out_value);

/** As strata_pack_metadata_int64() for strings: the pack's bytes, not NUL-terminated. */
STRATA_API STRATA_NODISCARD strata_status strata_pack_metadata_string(const strata_pack *pack,
                                                                      const char *key,
                                                                      uint64_t element,
                                                                      const char **out_bytes,
                                                                      uint64_t *out_byte_count);

/** Vocabulary entry `token`; STRATA_ERR_INVALID_ARGUMENT beyond the last. */
STRATA_API STRATA_NODISCARD strata_status strata_pack_token_get(const strata_pack *pack,
                                                                uint64_t token,
                                                                strata_token_info *inout);

/**
 * The bytes that a token stands for in a text, with the vocabulary's escapes undone. They may be
 * part of a UTF-8 character.
 *
 * @param buffer       destination, not NUL-terminated; NULL with 0 bytes asks for the size
 * @param out_bytes    bytes needed
 * @return STRATA_OK, STRATA_ERR_BUFFER_TOO_SMALL (out_bytes is set), STRATA_ERR_INVALID_ARGUMENT
 */
STRATA_API STRATA_NODISCARD strata_status strata_pack_token_text(const strata_pack *pack,
                                                                 uint64_t token, char *buffer,
                                                                 uint64_t buffer_bytes,
                                                                 uint64_t *out_bytes);

STRATA_END_DECLS

#endif
