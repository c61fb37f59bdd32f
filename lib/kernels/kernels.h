/* SPDX-License-Identifier: MIT */
/*
 * The kernels interface: one table of operations, implemented by kernels/cpu and kernels/cuda.
 *
 * Rules
 *   - A launch is asynchronous on `stream`: the argument structure is copied, what it points to
 *     must stay valid until the launch has run. All pointers are device pointers unless named
 *     `host_`.
 *     On the CPU a stream is a strata__task_queue (base/task.h); on CUDA it is a cudaStream_t.
 *   - Kernels allocate nothing and know neither plan nor pack. Scratch comes with the arguments.
 *   - The residual stream, router logits, expert outputs and logits are float32. "Activation rows"
 *     are what products read: float32 on the CPU; half with one float32 scale per row on CUDA,
 *     where value = data * scale and the scale is a power of two, 1 unless the row leaves half's
 *     range.
 *   - A launch returns a status for what can be known at launch time (unsupported format or shape,
 *     driver error); the results of earlier launches are reported by the device when it is asked.
 *   - Products add K in fixed ascending steps; a row's result depends on nothing but its own inputs
 *     (not on rows, tiles, groups or the scratch size) on one device and path.
 *   - A launch may be captured into a device graph (device/device.h) and run again while every
 *     pointer and every number in its arguments stays right. What changes between the runs must
 *     therefore lie in device memory: tokens, segments, page tables, expert offsets (host_offsets,
 *     host_flag NULL) and blob pointers. Numbers that follow from positions may be upper bounds:
 *     strata__attention_args.max_kv_tokens and max_segment_rows.
 */
#ifndef STRATA_KERNELS_KERNELS_H
#define STRATA_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include <strata/base.h>

#include "base/alloc.h"
#include "base/bounds.h"
#include "base/format.h"
#include "base/graph.h"
#include "base/spans.h"

/*
 * Activation rows: `rows` x `width` elements, dense, and on CUDA a float32 scale per row (else
 * NULL).
 */
typedef struct strata__rows {
    void *data;
    float *scale;
} strata__rows;

/* A dense weight: `outputs` rows of `inputs` values in a block format, and an optional bias. */
typedef struct strata__weight {
    const void *data;
    const float *bias; /* outputs float32 values, or NULL */
    uint32_t format;   /* strata__format */
    uint32_t inputs;   /* K */
    uint32_t outputs;  /* N */
} strata__weight;

/*
 * Scratch for decoded weights; at least decode_bytes_per_value * 128 * K, K rounded up to a
 * multiple of 64 (see strata__kernels). The CPU keeps packed activation rows in it instead: 128 of
 * them serve a dense product as well as more do; expert products gain a little from several
 * experts' rows at once.
 */
typedef struct strata__scratch {
    void *data;
    uint64_t bytes;
} strata__scratch;

/*
 * What a launch soon after reads, in device memory that nothing writes meanwhile, for an operation
 * that leaves the memory idle to bring near: start and size in multiples of 16, or zeros. A hint.
 */
typedef struct strata__ahead {
    const void *data;
    uint64_t bytes;
} strata__ahead;

/* How rows of a step belong to sequences: one entry per sequence of the step, in device memory. */
typedef struct strata__segment {
    uint32_t first_row; /* of the step */
    uint32_t rows;
    uint32_t position; /* of the first row in its sequence */
    uint32_t sequence; /* row of the page table */
} strata__segment;

typedef enum strata__kv_format {
    STRATA__KV_F16,
    STRATA__KV_Q8_0,
    STRATA__KV_F32
} strata__kv_format;

/*
 * One layer's KV cache. Page p of K starts at k + p * page_bytes and holds, for each KV head,
 * page_tokens rows of head_size values: float32, half, or for q8_0 all int8 codes of the head's
 * rows followed by all half scales (one per 32 values): scale = half(largest magnitude / 127),
 * code = value / scale rounded to nearest even, within 127. V alike.
 */
typedef struct strata__kv_view {
    void *k;
    void *v;
    const int32_t *page_table; /* [sequences][table_stride] page numbers */
    uint64_t page_bytes;       /* kv_heads * page_tokens * bytes of a row of head_size values */
    uint32_t table_stride;
    uint32_t page_tokens; /* a multiple of 64 */
    uint32_t kv_heads;
    uint32_t head_size;
    uint32_t format; /* strata__kv_format */
    uint32_t reserved;
} strata__kv_view;

/* x[r] = table[token[r]] * scale */
typedef struct strata__embed_args {
    strata__weight table;  /* outputs = vocabulary */
    const int32_t *tokens; /* [rows] */
    float *x;              /* [rows][inputs] */
    uint32_t rows;
    float scale;
} strata__embed_args;

/*
 * RMS norm (Zhang and Sennrich, 2019): out[r] = x[r] * inv_rms[r] * weight, inv_rms =
 * 1/sqrt(mean(x^2)+eps)
 */
typedef struct strata__norm_args {
    const float *x;      /* [rows][width] */
    const float *weight; /* [width] */
    strata__rows out;    /* [rows][width]; data NULL: only inv_rms is wanted */
    float *inv_rms;      /* [rows] */
    uint32_t rows;
    uint32_t width;
    float eps;
} strata__norm_args;

typedef enum strata__dense_mode {
    STRATA__DENSE_STORE_F32, /* out_f32[r][n] = y */
    STRATA__DENSE_ADD_F32,   /* out_f32[r][n] += y */
    STRATA__DENSE_STORE_ROWS /* out_rows = y as activation rows */
} strata__dense_mode;

/* y[r][n] = (in[r] . weight[n] + bias[n]) * alpha * (row_factor ? row_factor[r] : 1) */
typedef struct strata__dense_args {
    strata__weight weight;
    strata__rows in;         /* [rows][inputs] */
    float *out_f32;          /* [rows][out_stride] */
    strata__rows out_rows;   /* [rows][outputs] */
    const float *row_factor; /* [rows] or NULL */
    strata__scratch scratch;
    uint32_t rows;
    uint32_t out_stride; /* in values, for out_f32 */
    uint32_t mode;       /* strata__dense_mode */
    float alpha;
    bool few; /* rows of a step of decoding: their sums may have another order than a prompt's */
} strata__dense_args;

/*
 * From the projections of a tile of rows: optional clamp, QK norm and rotary embedding (Su et al.,
 * 2021); writes q as activation rows and k, v into the KV cache at their positions.
 */
typedef struct strata__qkv_args {
    const float *q; /* [rows][qkv_stride], heads * head_size used */
    const float *k; /* [rows][qkv_stride], kv_heads * head_size used */
    const float *v;
    const float *q_norm;
    const float *k_norm;
    const float *rope_frequencies; /* [rope_width / 2] radians per position */
    strata__rows q_out;            /* [rows][heads * head_size] */
    strata__kv_view kv;
    const strata__segment *segments; /* device; first_row relative to this tile */
    uint32_t segment_count;
    uint32_t rows;
    uint32_t qkv_stride;
    uint32_t heads;
    uint32_t rope_width;  /* leading values of a head that are rotated; even */
    uint32_t rope_style;  /* strata__rope_style */
    uint32_t qk_norm;     /* strata__qk_norm */
    float rope_magnitude; /* factor on cos and sin */
    float clamp;          /* 0: none */
    float eps;
} strata__qkv_args;

/*
 * Causal grouped-query attention of a tile of rows over the cache, which already holds their K and
 * V.
 */
typedef struct strata__attention_args {
    strata__rows q;   /* [rows][heads * head_size] */
    strata__rows out; /* [rows][heads * head_size] */
    strata__kv_view kv;
    const float *sinks; /* [heads] logits that only take part in the softmax's sum, or NULL */
    const strata__segment *segments; /* device; first_row relative to this tile */
    strata__scratch scratch;         /* as attention_scratch_bytes says */
    uint32_t segment_count;
    uint32_t rows;
    uint32_t max_segment_rows; /* largest segment, for the grid */
    uint32_t max_kv_tokens;    /* largest position + rows of a segment */
    uint32_t heads;
    uint32_t window; /* keys within window positions, own one included; 0: all */
    /*
     * For few rows on CUDA: a multiple of 64, or 0. Keys are then summed in spans, side by side,
     * that are merged in ascending order. Spans begin at fixed positions (strata__span_first), so
     * that the bits of a row follow from its position and split_keys alone. Scratch holds
     * strata__attention_split_bytes().
     */
    uint32_t split_keys;
    /*
     * 1: the cache's rows before each segment's position may be read before earlier launches have
     * run: since they were written the stream was given a copy, as at the start of a step. So not
     * for rows behind others of the same step and sequence.
     */
    uint32_t settled;
    float scale;
    strata__ahead ahead; /* with split_keys */
} strata__attention_args;

/* logits[r][e] = (x[r] * inv_rms[r] * norm) . weight[e] + bias[e], in float32 throughout */
typedef struct strata__router_args {
    const float *x;        /* [rows][inputs], the residual */
    const float *inv_rms;  /* [rows] */
    const float *norm;     /* [inputs] gains of the norm before */
    strata__weight weight; /* outputs = experts; F32, F16 or BF16, or a block format */
    strata__scratch scratch;
    float *logits; /* [rows][outputs] */
    uint32_t rows;
    uint32_t sigmoid; /* 1: logits are passed through a sigmoid (gates of shared experts) */
} strata__router_args;

/*
 * Top-k of each row; ties go to the lower id. Selected entries are written in ascending expert id.
 */
typedef struct strata__select_args {
    const float *logits;         /* [rows][experts] */
    const float *selection_bias; /* [experts], for the choice only, or NULL */
    int32_t *ids;                /* [rows][top_k], ascending */
    float *weights;              /* [rows][top_k] */
    uint32_t rows;
    uint32_t experts;   /* at most STRATA__MAX_EXPERTS */
    uint32_t top_k;     /* at most STRATA__MAX_TOP_K */
    uint32_t gating;    /* strata__gating */
    uint32_t normalise; /* weights divided by max(their sum, 2^-14) */
    uint32_t groups;    /* 0 or 1: none; a group scores the sum of its two largest */
    uint32_t groups_used;
    float weight_scale; /* 1: none */
} strata__select_args;

/* Sorts the (row, slot) pairs by expert, rows ascending within an expert. */
typedef struct strata__group_args {
    const int32_t *ids;     /* [rows][top_k], ascending */
    uint32_t *offsets;      /* [experts + 1] first sorted row of each expert */
    uint32_t *sorted_row;   /* [rows * top_k] row of each sorted entry */
    uint32_t *sorted_index; /* [rows][top_k] place of each pair in the sorted order */
    uint32_t *host_offsets; /* [experts + 1] host memory the device can write; or NULL */
    uint32_t *host_flag;    /* set to flag_value after host_offsets is complete; or NULL */
    void *scratch;          /* as group_scratch_bytes says */
    uint32_t rows;
    uint32_t top_k;
    uint32_t experts;
    uint32_t flag_value;
} strata__group_args;

/* out = act(gate, up) for dense feed-forward layers and shared experts */
typedef struct strata__activate_args {
    const float *gate; /* [rows][stride] */
    const float *up;   /* [rows][stride] */
    strata__rows out;  /* [rows][width] */
    uint32_t rows;
    uint32_t width;
    uint32_t stride;
    uint32_t activation;
} strata__activate_args;

typedef enum strata__path {
    STRATA__PATH_DIRECT,
    STRATA__PATH_FUSED,
    STRATA__PATH_MMQ,
    STRATA__PATH_FP16
} strata__path;
enum { STRATA__PATH_COUNT = 4 };

/* One projection of all experts of a layer. */
typedef struct strata__expert_weight {
    const void *const *blobs; /* device [experts] pointers into ring, cache or pack memory */
    const float *bias;        /* [experts][outputs] or NULL */
    uint32_t format;
    uint32_t inputs;
    uint32_t outputs;
    uint32_t reserved;
} strata__expert_weight;

/* Which sorted rows a launch works on: [first_row, first_row + rows) of experts [first, last]. */
typedef struct strata__expert_range {
    const uint32_t *offsets;      /* device [experts + 1] */
    const uint32_t *host_offsets; /* the same in host memory, or NULL when not known to the host */
    uint32_t first_row;
    uint32_t rows;
    uint32_t first_expert;
    uint32_t last_expert;
} strata__expert_range;

/*
 * h[i] = act(gate_e . in[sorted_row[first_row + i]], up_e . ...) for the sorted rows of a range. On
 * the int8 paths (kernels/int8.h) h.data are quantised rows, as the down product of the same path
 * takes them, and h.scale is not used.
 */
typedef struct strata__gate_up_args {
    strata__expert_weight gate;
    strata__expert_weight up;
    strata__expert_range range;
    const uint32_t *sorted_row;
    strata__rows in; /* [tokens][inputs] */
    strata__rows h;  /* [range.rows][gate.outputs] */
    float *gate_up;  /* [range.rows][2 * gate.outputs] for paths that need it (demand), or NULL */
    void *quantised; /* int8 paths: [range.rows] quantised rows of in (demand), or NULL */
    strata__scratch scratch;
    uint32_t activation;
    uint32_t path;
    uint32_t down_format; /* int8 paths: format of the matrix that reads h */
    bool few;             /* as strata__dense_args.few */
} strata__gate_up_args;

/* y[i] = (down_e . h[i] + bias_e) * expert_scale[e] for the sorted rows of a range */
typedef struct strata__down_args {
    strata__expert_weight down;
    strata__expert_range range;
    const float *expert_scale; /* [experts] or NULL */
    strata__rows h;            /* [range.rows][inputs]; int8 paths: quantised rows */
    float *y;                  /* [range.rows][outputs] */
    strata__scratch scratch;
    uint32_t path;
    bool few; /* as strata__dense_args.few */
} strata__down_args;

/*
 * x[r] += alpha * weights[r][j] * y[sorted_index[r][j] - first_row], for the j in ascending order
 * whose sorted index lies in the range: added one by one in ascending expert id, whatever the
 * ranges.
 */
typedef struct strata__combine_args {
    const float *y;               /* [range rows][width] */
    const float *weights;         /* [tokens][top_k] */
    const uint32_t *sorted_index; /* [tokens][top_k] */
    float *x;                     /* [tokens][width] */
    uint32_t tokens;
    uint32_t top_k;
    uint32_t width;
    uint32_t first_row;
    uint32_t rows;
    float alpha;
} strata__combine_args;

/*
 * Few rows take less time in fewer launches. The operations that follow do what others do one after
 * the other; what lies between may stay in another precision, and buffers that only hand rows on
 * between them have no defined contents afterwards. They take what the others take.
 */
enum { STRATA__PROJECT_PARTS = 3 };

/* norm, then dense for each part. */
typedef struct strata__project_args {
    strata__norm_args norm;                          /* x NULL: none */
    strata__dense_args parts[STRATA__PROJECT_PARTS]; /* all of norm.rows rows of norm.out */
    uint32_t part_count;
} strata__project_args;

/* norm, router, select, group; norm.out and norm.inv_rms have their values afterwards. */
typedef struct strata__route_args {
    strata__norm_args norm;     /* out and inv_rms are needed */
    strata__router_args router; /* of the rows of norm */
    strata__select_args select; /* of the router's logits */
    strata__group_args group;   /* of the ids chosen */
    strata__ahead ahead;
} strata__route_args;

/*
 * gate_up, down, combine of all rows on the direct path: range.first_row 0, range.rows = tokens *
 * top_k, range.first_expert 0. gate_up.gate_up is needed where gate_up_paths names the direct path.
 */
typedef struct strata__experts_args {
    strata__gate_up_args gate_up;
    strata__down_args down;
    strata__combine_args combine;
} strata__experts_args;

typedef struct strata__kernels strata__kernels;

typedef struct strata__kernels_ops {
    void (*destroy)(strata__kernels *kernels);
    strata_status (*embed)(strata__kernels *, void *stream, const strata__embed_args *);
    strata_status (*norm)(strata__kernels *, void *stream, const strata__norm_args *);
    strata_status (*dense)(strata__kernels *, void *stream, const strata__dense_args *);
    strata_status (*qkv)(strata__kernels *, void *stream, const strata__qkv_args *);
    strata_status (*attention)(strata__kernels *, void *stream, const strata__attention_args *);
    strata_status (*router)(strata__kernels *, void *stream, const strata__router_args *);
    strata_status (*select)(strata__kernels *, void *stream, const strata__select_args *);
    strata_status (*group)(strata__kernels *, void *stream, const strata__group_args *);
    strata_status (*activate)(strata__kernels *, void *stream, const strata__activate_args *);
    strata_status (*gate_up)(strata__kernels *, void *stream, const strata__gate_up_args *);
    strata_status (*down)(strata__kernels *, void *stream, const strata__down_args *);
    strata_status (*combine)(strata__kernels *, void *stream, const strata__combine_args *);
    strata_status (*project)(strata__kernels *, void *stream, const strata__project_args *);
    strata_status (*route)(strata__kernels *, void *stream, const strata__route_args *);
    strata_status (*experts)(strata__kernels *, void *stream, const strata__experts_args *);
} strata__kernels_ops;

/* The composed operations from their parts, for kernels that have none of their own. */
strata_status strata__compose_project(strata__kernels *kernels, void *stream,
                                      const strata__project_args *args);
strata_status strata__compose_route(strata__kernels *kernels, void *stream,
                                    const strata__route_args *args);
strata_status strata__compose_experts(strata__kernels *kernels, void *stream,
                                      const strata__experts_args *args);

/* Compute capability that the kernels for accelerators need at least: 8.0. */
enum { STRATA__LEAST_CAPABILITY = 80 };

/* Numbers the layout needs; everything else about buffers is in lib/layout. */
typedef struct strata__kernels_facts {
    uint32_t activation_bytes;       /* of an element of activation rows: 4 or 2 */
    uint32_t row_scale_bytes;        /* beside each activation row: 0 or 4 */
    uint32_t decode_bytes_per_value; /* of decoded weights in scratch: 4 or 2 */
    uint32_t gate_up_paths;          /* bit p set: path p needs strata__gate_up_args.gate_up */
    uint64_t coverage[STRATA__PATH_COUNT];    /* bit f set: the path's kernels take format f */
    uint64_t attention_scratch_bytes_per_row; /* times rows * heads; 0: none */
    uint64_t group_scratch_bytes_per_expert;  /* plus ... */
    uint64_t group_scratch_bytes_fixed;
    uint32_t split_keys; /* of attention over few rows (strata__attention_args); 0: never split */
} strata__kernels_facts;

/*
 * The facts of the kernels for accelerators of a compute capability (90 = 9.0), or for the CPU (0).
 * No device is needed, and the build may be one without CUDA.
 */
void strata__kernels_facts_of(uint32_t compute_capability, strata__kernels_facts *out);

struct strata__kernels {
    const strata__kernels_ops *ops;
    strata__kernels_facts facts;
};

typedef struct strata__cpu_kernels_options {
    const strata__allocator *allocator;
    uint32_t threads; /* 0: one per available core */
    /*
     * 0: plain loops, the same bits in every chunk and in few rows; 1: few rows in an order of
     * their own, BLAS when built in
     */
    uint32_t any_order;
} strata__cpu_kernels_options;

strata_status strata__cpu_kernels_create(const strata__cpu_kernels_options *options,
                                         strata__kernels **out);

/* Which int8 products run; the bits are the same. */
enum {
    STRATA__INT8_PRODUCTS_INLINE, /* where formats allow it: the faster one */
    STRATA__INT8_PRODUCTS_IMAGE
};

typedef struct strata__cuda_kernels_options {
    const strata__allocator *allocator;
    int32_t device_ordinal;
    uint32_t level;          /* 0: the best the device has; 80: only instructions of sm_80 */
    uint32_t plain_launches; /* 1: a launch starts when the one before has ended, for tests */
    uint32_t int8_products;  /* STRATA__INT8_PRODUCTS_*, for tests */
} strata__cuda_kernels_options;

/* STRATA_ERR_NO_DEVICE in builds without CUDA. Loads every kernel, so that none is loaded later. */
strata_status strata__cuda_kernels_create(const strata__cuda_kernels_options *options,
                                          strata__kernels **out);

#endif
