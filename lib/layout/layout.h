/* SPDX-License-Identifier: MIT */
/*
 * The layout: every byte of a session and of a prompt, from plain numbers. Integers in, tables out;
 * no device, no file, no environment, no state.
 *
 *   strata__layout_plan    chooses chunk, tiles, ring and residency under a budget, then builds
 *   strata__layout_build   builds the tables for a given choice
 *   strata__layout_find    a buffer of a configuration; an address is region base + offset
 *   strata__layout_check   asked before every launch: do these rows fit the buffer?
 *
 * There are four regions. The session region holds what lives as long as a session, the prompt
 * region what reading prompts needs on top, two host regions page-locked host memory for prompts
 * and for decoding. Offsets count from the base of the region, which must be aligned to
 * layout->alignment_bytes.
 *
 *   session  | weights | KV pages | page table | state | decode work | expert cache |
 *   prompt   | residual | tokens | segments | pointers | ring | arena |
 *   arena    = the largest configuration; one table of buffers per configuration
 *
 * A configuration is a path, a band of rows and a kind of layer. Its buffers come from one table of
 * demands (demand.c); nothing else in the library computes a size. Buffers of a configuration whose
 * stages do not meet may share bytes. What another stream touches is in no configuration.
 */
#ifndef STRATA_LAYOUT_LAYOUT_H
#define STRATA_LAYOUT_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include <strata/base.h>

#include "base/alloc.h"
#include "base/bounds.h"

enum {
    STRATA__LAYOUT_MAX_BANDS = 4,
    STRATA__LAYOUT_DECODE_ROWS = 128, /* weight rows that a decode scratch holds at least */
    STRATA__LAYOUT_DECODE_VALUES = 64 /* a decoded row takes whole blocks of so many values */
};

/* How a layer's experts are multiplied. Values are those of strata__path. */
typedef enum strata__layout_path {
    STRATA__LAYOUT_DIRECT,
    STRATA__LAYOUT_FUSED,
    STRATA__LAYOUT_MMQ,
    STRATA__LAYOUT_FP16,
    STRATA__LAYOUT_PATH_COUNT,
    STRATA__LAYOUT_PATH_NONE = 254, /* a layer without experts */
    STRATA__LAYOUT_PATH_AUTO = 255  /* policy only: by predicted time */
} strata__layout_path;

/* Why a layer has its path. */
typedef enum strata__layout_reason {
    STRATA__LAYOUT_REASON_NONE,      /* a layer without experts */
    STRATA__LAYOUT_REASON_COST,      /* the least predicted time */
    STRATA__LAYOUT_REASON_POLICY,    /* the caller's path for all layers */
    STRATA__LAYOUT_REASON_EXCEPTION, /* the caller's path for this layer */
    /* the caller's path lacks the layer's formats: least time of the rest */
    STRATA__LAYOUT_REASON_NOT_COVERED,
    STRATA__LAYOUT_REASON_ROWS /* the caller's path takes fewer rows: least time of the rest */
} strata__layout_reason;

typedef enum strata__layout_kv_format {
    STRATA__LAYOUT_KV_F16,
    STRATA__LAYOUT_KV_Q8_0,
    STRATA__LAYOUT_KV_F32
} strata__layout_kv_format;

typedef enum strata__layout_experts {
    STRATA__LAYOUT_EXPERTS_AUTO,
    STRATA__LAYOUT_EXPERTS_STREAM,
    STRATA__LAYOUT_EXPERTS_RESIDENT
} strata__layout_experts;

/* Stages of a layer in the order they run; a buffer lives from its first to its last stage. */
typedef enum strata__layout_stage {
    STRATA__STAGE_ATTENTION_NORM, /* for each dense tile: to ATTENTION_OUT */
    STRATA__STAGE_QKV,
    STRATA__STAGE_QKV_POST,
    STRATA__STAGE_ATTENTION, /* in attention tiles */
    STRATA__STAGE_ATTENTION_OUT,
    STRATA__STAGE_FFN_NORM, /* layers with experts: for each dense tile, to SELECT */
    STRATA__STAGE_ROUTER,
    STRATA__STAGE_SELECT,
    STRATA__STAGE_GROUP, /* once a chunk */
    /* dense or shared feed-forward part, for each dense tile, to DENSE_DOWN */
    STRATA__STAGE_DENSE_UP,
    STRATA__STAGE_DENSE_DOWN,
    STRATA__STAGE_EXPERT_UP, /* for each launch of at most expert_tile sorted rows, to COMBINE */
    STRATA__STAGE_EXPERT_DOWN,
    STRATA__STAGE_COMBINE,
    STRATA__STAGE_FINAL_NORM, /* the edge configuration: for each logit tile */
    STRATA__STAGE_LOGITS,
    STRATA__STAGE_COUNT
} strata__layout_stage;

/*
 * Every buffer of every region. Activation rows have their scales in a buffer of their own, absent
 * where the device has no row scales. Rows and row bytes are what the comment says.
 */
typedef enum strata__layout_buffer_id {
    /* session region, persistent */
    STRATA__BUFFER_WEIGHTS, /* dense tensors at layout->tensor_offsets; absent when used in place */
    STRATA__BUFFER_KV_PAGES,   /* layers' K and V pages at layout->layers[l] */
    STRATA__BUFFER_PAGE_TABLE, /* int32 [sequences][pages_per_sequence] */
    STRATA__BUFFER_STATE,      /* recurrent state, committed and working, at layout->layers[l] */
    STRATA__BUFFER_CACHE,      /* expert cache: layers' residents at layout->layers[l] */
    /* prompt region (and the decode work of the session region), persistent */
    STRATA__BUFFER_RESIDUAL, /* float32 [chunk][streams][width] */
    STRATA__BUFFER_TOKENS,   /* int32 [chunk] */
    /* 16 bytes an entry: entries of each dense tile, then of each attention tile */
    STRATA__BUFFER_SEGMENTS,
    STRATA__BUFFER_POINTERS, /* expert layers x [3][experts] device pointers: gate, up, down */
    STRATA__BUFFER_RING, /* bytes that streamed blobs land in; absent when nothing is streamed */
    /* host region, page-locked */
    STRATA__BUFFER_HOST_TOKENS,   /* source of TOKENS, two chunks */
    STRATA__BUFFER_HOST_SEGMENTS, /* source of SEGMENTS, two chunks */
    STRATA__BUFFER_HOST_POINTERS, /* source of POINTERS, two chunks */
    /* expert layers x uint32 [experts + 1] and a flag word behind them */
    STRATA__BUFFER_HOST_OFFSETS,
    STRATA__BUFFER_HOST_LOGITS,  /* float32 [logit tile][vocabulary] */
    STRATA__BUFFER_HOST_STAGING, /* pieces of experts that are not page-locked themselves */
    /* attention part, rows of a dense tile */
    STRATA__BUFFER_STREAM_NORM, /* float32 [tile][streams * width]: only streams > 1 read unfused */
    STRATA__BUFFER_STREAM_SCALES, /* float32 [chunk][streams]: streams > 1 */
    STRATA__BUFFER_ATTENTION_XN,  /* activation rows [tile][width] */
    STRATA__BUFFER_ATTENTION_XN_SCALE,
    STRATA__BUFFER_ATTENTION_INV_RMS, /* float32 [tile] */
    STRATA__BUFFER_QKV,               /* float32 [tile][(heads + 2 kv_heads) * head_size] */
    STRATA__BUFFER_QKV_SCRATCH,       /* decoded weights: rows of width values */
    STRATA__BUFFER_Q,                 /* activation rows [tile][heads * head_size] */
    STRATA__BUFFER_Q_SCALE,
    STRATA__BUFFER_ATTENTION_SCRATCH, /* [attention tile] */
    STRATA__BUFFER_ATTENTION_OUT,     /* activation rows [tile][heads * head_size] */
    STRATA__BUFFER_ATTENTION_OUT_SCALE,
    STRATA__BUFFER_OUT_SCRATCH, /* decoded weights: rows of heads * head_size values */
    /* feed-forward part; FFN_XN has the chunk's rows in layers with experts, else a tile's */
    STRATA__BUFFER_FFN_XN, /* activation rows [width] */
    STRATA__BUFFER_FFN_XN_SCALE,
    STRATA__BUFFER_FFN_INV_RMS,    /* float32, rows as FFN_XN */
    STRATA__BUFFER_ROUTER_SCRATCH, /* decoded weights: rows of width values */
    STRATA__BUFFER_ROUTER_LOGITS,  /* float32 [tile][experts] */
    STRATA__BUFFER_EXPERT_IDS,     /* int32 [chunk][top_k] */
    STRATA__BUFFER_EXPERT_WEIGHTS, /* float32 [chunk][top_k] */
    STRATA__BUFFER_OFFSETS,        /* one row: uint32 [experts + 1] */
    STRATA__BUFFER_SORTED_ROW,     /* uint32 [chunk * top_k] */
    STRATA__BUFFER_SORTED_INDEX,   /* uint32 [chunk][top_k] */
    STRATA__BUFFER_GROUP_SCRATCH,  /* bytes */
    STRATA__BUFFER_SHARED_FACTOR,  /* float32 [tile], where the shared experts are gated */
    STRATA__BUFFER_DENSE_SCRATCH,  /* decoded weights of the dense or shared feed-forward part */
    STRATA__BUFFER_DENSE_GATE_UP,  /* float32 [tile][2 * (ffn_width or shared_width)] */
    STRATA__BUFFER_DENSE_H,        /* activation rows [tile][ffn_width or shared_width] */
    STRATA__BUFFER_DENSE_H_SCALE,
    /* experts, sorted rows of a launch */
    STRATA__BUFFER_EXPERT_SCRATCH, /* decoded weights: rows of max(width, expert_width) values */
    STRATA__BUFFER_QUANTISED_IN,   /* int8 paths: quantised rows of width values */
    /* float32 [tile][2 * expert_width], paths that facts.gate_up_paths names */
    STRATA__BUFFER_EXPERT_GATE_UP,
    STRATA__BUFFER_EXPERT_H, /* activation rows [tile][expert_width]; not on int8 paths */
    STRATA__BUFFER_EXPERT_H_SCALE,
    STRATA__BUFFER_QUANTISED_H, /* int8 paths, in place of h: quantised rows of expert_width */
    STRATA__BUFFER_EXPERT_Y,    /* float32 [tile][width] */
    /* edge configuration, rows of a logit tile */
    STRATA__BUFFER_FINAL_XN, /* activation rows [tile][width] */
    STRATA__BUFFER_FINAL_XN_SCALE,
    STRATA__BUFFER_FINAL_INV_RMS, /* float32 [tile] */
    STRATA__BUFFER_LOGIT_SCRATCH, /* decoded weights: rows of width values */
    STRATA__BUFFER_LOGITS,        /* float32 [tile][vocabulary] */
    STRATA__BUFFER_COUNT
} strata__layout_buffer_id;

/* ---------------------------------------------------------------------------------------- input */

typedef struct strata__layout_layer {
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_size;
    uint32_t window;       /* 0: full attention */
    uint32_t expert_width; /* 0: a dense feed-forward layer */
    uint32_t ffn_width;    /* of a dense feed-forward layer */
    uint32_t shared_width; /* of the shared experts of a layer with experts; 0: none */
    uint32_t shared_gated; /* 1: the shared experts have a factor per row */
    uint32_t gate_format;  /* block format ids of the experts */
    uint32_t up_format;
    uint32_t down_format;
    uint32_t reserved;
    uint64_t gate_bytes; /* of one expert */
    uint64_t up_bytes;
    uint64_t down_bytes;
    uint64_t dense_bytes; /* of the layer's dense tensors, for the predicted time */
    uint64_t state_bytes; /* recurrent state of one sequence */
    /* of its experts by path, and rows an expert at half of them; 0: facts' */
    double path_flops[4];
    double path_half_rows[4];
} strata__layout_layer;

typedef struct strata__layout_geometry {
    const strata__layout_layer *layers;
    /* dense tensors to be put on the device, in the session's order */
    const uint64_t *tensor_bytes;
    uint32_t layer_count;
    uint32_t tensor_count;
    uint32_t width;
    uint32_t vocabulary;
    uint32_t experts;
    uint32_t top_k;
    uint32_t residual_streams;
    uint32_t fused_residual_read; /* streams > 1: the read keeps no normalised copy */
    uint64_t output_bytes;        /* of the output projection, for the predicted time */
} strata__layout_geometry;

/* Numbers about a device and its kernels. */
typedef struct strata__layout_facts {
    uint32_t compute_capability;     /* 90 = 9.0; 0: a host device */
    uint32_t host_addressable;       /* 1: weights and experts are used where they are */
    uint32_t activation_bytes;       /* of an element of activation rows */
    uint32_t row_scale_bytes;        /* beside each activation row, or 0 */
    uint32_t decode_bytes_per_value; /* of decoded weights in scratch */
    uint32_t gate_up_paths;          /* bit p: path p needs EXPERT_GATE_UP */
    uint64_t memory_bytes;           /* 0: unknown */
    uint64_t shared_memory_bytes;    /* that a block may have; 0: unknown */
    uint64_t alignment_bytes;        /* of every buffer, a power of two */
    /* bit f: the path takes format f; 0: no kernels */
    uint64_t coverage[STRATA__LAYOUT_PATH_COUNT];
    uint64_t attention_scratch_bytes_per_row; /* times rows and heads */
    uint32_t attention_split_keys; /* of attention in steps of decoding (base/spans.h); 0: none */
    uint32_t reserved;
    uint64_t group_scratch_bytes_per_expert;
    uint64_t group_scratch_bytes_fixed;
    double link_bytes_per_second;
    double link_latency_seconds;     /* of one copy */
    double staging_bytes_per_second; /* host to device of memory that is not page-locked */
    double memory_bytes_per_second;
    double launch_seconds; /* of one kernel on the stream */
    double dense_flops;
    double attention_flops;
    double path_flops[STRATA__LAYOUT_PATH_COUNT];
    double path_half_rows[STRATA__LAYOUT_PATH_COUNT]; /* rows per expert at half of path_flops */
    /* of a product that are computed at a time; its last round is half empty */
    double round_outputs;
} strata__layout_facts;

typedef struct strata__layout_request {
    uint64_t device_budget_bytes; /* 0: memory_bytes, or no limit when that is unknown */
    uint64_t host_budget_bytes;   /* page-locked memory; 0: no limit */
    uint64_t context_tokens;
    uint64_t prompt_tokens;     /* 0: the context */
    uint64_t chunk_tokens;      /* 0: chosen */
    uint64_t kv_tokens;         /* of all sequences together; 0: the context for each */
    uint32_t sequences;         /* 0: 1 */
    uint32_t page_tokens;       /* 0: 64 */
    uint32_t kv_format;         /* strata__layout_kv_format */
    uint32_t experts;           /* strata__layout_experts */
    uint32_t expert_source;     /* 1: experts that are not resident can be had from host memory */
    uint32_t path;              /* strata__layout_path, PATH_AUTO: by predicted time */
    uint32_t decode_rows;       /* of a step, up to STRATA__DIRECT_ROWS; 0: no decoding */
    uint32_t borrow;            /* 1: the prompt region is lent by the expert cache */
    const uint8_t *layer_paths; /* [layers] exceptions, PATH_AUTO: none; or NULL */
} strata__layout_request;

typedef struct strata__layout_input {
    strata__layout_geometry geometry;
    strata__layout_facts facts;
    strata__layout_request request;
} strata__layout_input;

/* What the planner chooses and a saved plan keeps. Tiles are cut to what can occur. */
typedef struct strata__layout_choice {
    uint32_t chunk_tokens;
    /* rows of attention part, router and dense feed-forward parts; 0: the chunk */
    uint32_t dense_tile;
    uint32_t attention_tile; /* rows of the attention stage; 0: the dense tile */
    uint32_t expert_tile;    /* sorted rows of an expert launch; 0: chunk * top_k */
    /* 0: as many as make the arena no larger, 1 where host memory is limited */
    uint32_t logit_tile;
    uint32_t reserved;
    uint64_t scratch_bytes;   /* decoded weights held at once, at least 128 rows */
    uint64_t ring_bytes;      /* 0: two of the largest groups where blobs are streamed */
    uint64_t group_bytes;     /* blobs of one copy group; 0: 8 MiB */
    const uint32_t *resident; /* [layers] experts on the device, ids from 0; or NULL: none */
    const uint8_t *paths;     /* [layers][bands]; or NULL: by policy */
} strata__layout_choice;

/* --------------------------------------------------------------------------------------- result */

/* bytes = row_capacity * row_bytes. */
typedef struct strata__layout_buffer {
    uint32_t id;          /* strata__layout_buffer_id */
    uint32_t first_stage; /* strata__layout_stage; persistent buffers: 0 to STAGE_COUNT - 1 */
    uint32_t last_stage;
    uint32_t reserved;
    uint64_t offset; /* from the base of the region */
    uint64_t bytes;
    uint64_t row_capacity;
    uint64_t row_bytes;
} strata__layout_buffer;

typedef struct strata__layout_config {
    uint32_t path; /* strata__layout_path */
    uint32_t rows; /* of its band */
    uint32_t band;
    uint32_t first_layer; /* of those that use it; the layer count: the edge configuration */
    uint32_t buffer_count;
    uint32_t reserved;
    uint64_t bytes; /* of the arena that it needs */
    strata__layout_buffer *buffers;
} strata__layout_config;

typedef struct strata__layout_band {
    uint32_t rows;  /* the band takes up to this many tokens */
    uint32_t fetch; /* 1: route first, then bring routed blobs; 0: blobs are streamed ahead */
} strata__layout_band;

/* Working memory of a step of up to chunk_tokens rows: a prompt's, or that of decoding. */
typedef struct strata__layout_work {
    uint32_t chunk_tokens;
    uint32_t dense_tile;
    uint32_t attention_tile;
    uint32_t expert_tile;
    uint32_t logit_tile;
    uint32_t segment_capacity;
    uint32_t split_keys; /* of attention; 0: not split */
    uint32_t layer_count;
    uint32_t band_count;
    strata__layout_band bands[STRATA__LAYOUT_MAX_BANDS]; /* ascending; the last is the chunk */
    uint32_t config_count;
    uint32_t edge_config; /* final norm and logits */
    uint32_t persistent_count;
    uint64_t arena_offset;
    uint64_t arena_bytes;
    strata__layout_config *configs;
    strata__layout_buffer *persistent;
    uint16_t *config_of;            /* [layers][bands] */
    uint8_t *paths;                 /* [layers][bands] strata__layout_path */
    uint8_t *reasons;               /* [layers][bands] strata__layout_reason */
    strata__layout_buffer *buffers; /* of all configurations */
    uint32_t buffer_count;
    uint32_t host_count;
    strata__layout_buffer *host; /* buffers of the work's host region */
    uint64_t host_bytes;
} strata__layout_work;

/* One layer's places in the session region, and how its experts are handled. */
typedef struct strata__layout_place {
    uint64_t k_offset; /* pages_total pages of page_bytes */
    uint64_t v_offset;
    uint64_t page_bytes;   /* of K, and of V */
    uint64_t state_offset; /* [2][sequences] of state_bytes */
    uint64_t cache_offset; /* resident_count slots */
    uint64_t slot_bytes;   /* gate, up and down of one expert, each aligned, one behind the other */
    uint64_t up_offset;    /* in a slot; gate is at 0 */
    uint64_t down_offset;  /* in a slot */
    uint32_t resident_count; /* experts 0 to resident_count - 1 are on the device */
    uint32_t group_experts;  /* experts of a copy group; 0: none is streamed */
    double path_flops[4];    /* of the input's layer */
    double path_half_rows[4];
} strata__layout_place;

/* Times of the predicted prompt, all in nanoseconds; link and compute overlap. */
typedef struct strata__layout_prediction {
    uint64_t prompt_ns;
    uint64_t link_ns;      /* of the copies alone */
    uint64_t compute_ns;   /* of the kernels alone */
    uint64_t refill_ns;    /* of giving back a loan, part of prompt_ns */
    uint64_t copied_bytes; /* host to device */
} strata__layout_prediction;

typedef struct strata__layout {
    const strata__allocator *allocator;
    strata__layout_facts facts;     /* what it was made from, defaults filled in */
    strata__layout_request request; /* layer_paths are the layout's own */
    uint64_t alignment_bytes;
    uint32_t layer_count;
    uint32_t sequences;
    uint32_t page_tokens;
    uint32_t kv_format;
    uint32_t pages_per_sequence;
    uint32_t pages_total;
    uint32_t tensor_count;
    uint32_t session_buffer_count;
    uint32_t host_buffer_count;
    uint32_t chunk_count; /* of the prompt planned for */
    uint64_t context_tokens;
    uint64_t prompt_tokens;
    uint64_t budget_bytes; /* UINT64_MAX: none */
    uint64_t session_bytes;
    uint64_t prompt_bytes;
    uint64_t host_bytes;   /* of the prompt's host region; decode.host_bytes are on top */
    uint64_t device_bytes; /* session_bytes, and prompt_bytes unless they are lent by the cache */
    uint64_t cache_bytes;
    uint64_t ring_bytes;
    uint64_t loan_offset; /* in the session region; bytes 0: no loan */
    uint64_t loan_bytes;
    uint64_t pinned_bytes; /* experts that the host budget lets page-lock, beside host_bytes */
    uint64_t staged_bytes; /* experts that go through HOST_STAGING instead */
    uint64_t scratch_bytes;
    uint64_t group_bytes;
    strata__layout_prediction prediction;
    strata__layout_place *layers;
    uint64_t *tensor_offsets; /* [tensors] in the session region */
    strata__layout_buffer *session_buffers;
    strata__layout_buffer *host_buffers; /* prompt.host */
    strata__layout_work prompt;
    strata__layout_work decode; /* chunk_tokens 0: none */
} strata__layout;

/* What would fit instead, when a plan is infeasible. 0: nothing of the kind does. */
typedef struct strata__layout_shortfall {
    uint64_t needed_bytes;   /* the least that this request takes */
    uint64_t missing_bytes;  /* needed minus budget */
    uint64_t context_tokens; /* longest context that fits the budget */
    uint64_t chunk_tokens;   /* largest chunk that fits the budget */
} strata__layout_shortfall;

/*
 * Chooses and builds. STRATA_ERR_PLAN_INFEASIBLE when nothing fits; then *shortfall (or NULL) is
 * set. STRATA_ERR_UNSUPPORTED: a path without kernels, or a layer no path takes, by name.
 * STRATA_ERR_INVALID_ARGUMENT: a number out of range, by name.
 */
strata_status strata__layout_plan(const strata__allocator *allocator,
                                  const strata__layout_input *input, strata__layout **out,
                                  strata__layout_shortfall *shortfall);

/* Builds the tables for a choice, whatever the budget. */
strata_status strata__layout_build(const strata__allocator *allocator,
                                   const strata__layout_input *input,
                                   const strata__layout_choice *choice, strata__layout **out);

void strata__layout_destroy(strata__layout *layout); /* NULL is legal */

/* Bands of a chunk: 16, 64 and 512 rows as far as they are smaller, and the chunk. */
uint32_t strata__layout_band_count(uint32_t chunk_tokens);

/*
 * A layout as bytes: its input but for the geometry, the choice, and totals. `fingerprint` names
 * the pack. Returns the bytes needed, and writes them when they fit `capacity`.
 */
uint64_t strata__layout_save(const strata__layout *layout, uint64_t fingerprint, void *out,
                             uint64_t capacity);

/*
 * Builds a saved layout again. The bytes may be anything: STRATA_ERR_FORMAT when they are no saved
 * layout, STRATA_ERR_INVALID_ARGUMENT when they are that of another pack; what else they say is
 * checked like a caller's input, and the tables must come to the same totals.
 */
strata_status strata__layout_load(const strata__allocator *allocator,
                                  const strata__layout_geometry *geometry, uint64_t fingerprint,
                                  const void *data, uint64_t bytes, strata__layout **out);

/*
 * Whether a layout can be run on a device with these facts: STRATA_ERR_INVALID_ARGUMENT names what
 * differs.
 */
strata_status strata__layout_fits_device(const strata__layout *layout,
                                         const strata__layout_facts *facts);

/*
 * Band and configuration of a step of `rows` tokens, 1 to chunk_tokens; the count when there is
 * none.
 */
uint32_t strata__layout_band_of(const strata__layout_work *work, uint64_t rows);
uint32_t strata__layout_config_of(const strata__layout_work *work, uint32_t layer, uint64_t rows);

/* NULL when the configuration has no such buffer. */
const strata__layout_buffer *strata__layout_find(const strata__layout_work *work, uint32_t config,
                                                 uint32_t id);

/* Persistent buffers; NULL when there is none of the kind. */
const strata__layout_buffer *strata__layout_find_work(const strata__layout_work *work, uint32_t id);
const strata__layout_buffer *strata__layout_find_work_host(const strata__layout_work *work,
                                                           uint32_t id);
/*
 * Where blobs land that a prompt needs and the device has not: the ring of the prompt region. Of a
 * plan with all experts on the device it is that of decoding, in the session region, which prompts
 * use when the session gets less memory than planned. NULL: all experts stay on the device.
 */
const strata__layout_buffer *strata__layout_find_ring(const strata__layout *layout);

const strata__layout_buffer *strata__layout_find_session(const strata__layout *layout, uint32_t id);
const strata__layout_buffer *strata__layout_find_host(const strata__layout *layout, uint32_t id);

/* What a launch is about, for the text of a refusal. */
typedef struct strata__layout_launch {
    uint32_t layer; /* layer_count: the edge configuration */
    uint32_t config;
    uint64_t chunk; /* of the prompt, from 0 */
} strata__layout_launch;

/*
 * STRATA_OK when `rows` rows fit buffer `id` of the launch's configuration, or, for a persistent
 * buffer, of the work; else STRATA_ERR_CAPACITY with layer, path, rows, chunk, buffer and capacity.
 */
strata_status strata__layout_check(const strata__layout_work *work,
                                   const strata__layout_launch *launch, uint32_t id, uint64_t rows);

/* Static texts, never NULL: "expert_y", "expert_down", "fused", "cost". */
const char *strata__layout_buffer_name(uint32_t id);
const char *strata__layout_stage_name(uint32_t stage);
const char *strata__layout_path_name(uint32_t path);
const char *strata__layout_reason_name(uint32_t reason);

#endif
