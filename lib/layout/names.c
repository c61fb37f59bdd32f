/* SPDX-License-Identifier: MIT */
#include "layout/layout.h"

#define B(name, text) [STRATA__BUFFER_##name] = text

static const char *const buffer_names[STRATA__BUFFER_COUNT] = {
    B(WEIGHTS, "weights"),
    B(KV_PAGES, "kv_pages"),
    B(PAGE_TABLE, "page_table"),
    B(STATE, "state"),
    B(CACHE, "expert_cache"),
    B(RESIDUAL, "residual"),
    B(TOKENS, "tokens"),
    B(SEGMENTS, "segments"),
    B(POINTERS, "expert_pointers"),
    B(RING, "ring"),
    B(HOST_TOKENS, "host_tokens"),
    B(HOST_SEGMENTS, "host_segments"),
    B(HOST_POINTERS, "host_expert_pointers"),
    B(HOST_OFFSETS, "host_expert_offsets"),
    B(HOST_LOGITS, "host_logits"),
    B(HOST_STAGING, "host_staging"),
    B(STREAM_NORM, "stream_norm"),
    B(STREAM_SCALES, "stream_scales"),
    B(ATTENTION_XN, "attention_xn"),
    B(ATTENTION_XN_SCALE, "attention_xn_scale"),
    B(ATTENTION_INV_RMS, "attention_inv_rms"),
    B(QKV, "qkv"),
    B(QKV_SCRATCH, "qkv_scratch"),
    B(Q, "q"),
    B(Q_SCALE, "q_scale"),
    B(ATTENTION_SCRATCH, "attention_scratch"),
    B(ATTENTION_OUT, "attention_out"),
    B(ATTENTION_OUT_SCALE, "attention_out_scale"),
    B(OUT_SCRATCH, "out_scratch"),
    B(FFN_XN, "ffn_xn"),
    B(FFN_XN_SCALE, "ffn_xn_scale"),
    B(FFN_INV_RMS, "ffn_inv_rms"),
    B(ROUTER_SCRATCH, "router_scratch"),
    B(ROUTER_LOGITS, "router_logits"),
    B(EXPERT_IDS, "expert_ids"),
    B(EXPERT_WEIGHTS, "expert_weights"),
    B(OFFSETS, "expert_offsets"),
    B(SORTED_ROW, "sorted_row"),
    B(SORTED_INDEX, "sorted_index"),
    B(GROUP_SCRATCH, "group_scratch"),
    B(SHARED_FACTOR, "shared_factor"),
    B(DENSE_SCRATCH, "dense_scratch"),
    B(DENSE_GATE_UP, "dense_gate_up"),
    B(DENSE_H, "dense_h"),
    B(DENSE_H_SCALE, "dense_h_scale"),
    B(EXPERT_SCRATCH, "expert_scratch"),
    B(QUANTISED_IN, "quantised_in"),
    B(EXPERT_GATE_UP, "expert_gate_up"),
    B(EXPERT_H, "expert_h"),
    B(EXPERT_H_SCALE, "expert_h_scale"),
    B(QUANTISED_H, "quantised_h"),
    B(EXPERT_Y, "expert_y"),
    B(FINAL_XN, "final_xn"),
    B(FINAL_XN_SCALE, "final_xn_scale"),
    B(FINAL_INV_RMS, "final_inv_rms"),
    B(LOGIT_SCRATCH, "logit_scratch"),
    B(LOGITS, "logits"),
};

static const char *const stage_names[STRATA__STAGE_COUNT] = {
    [STRATA__STAGE_ATTENTION_NORM] = "attention_norm",
    [STRATA__STAGE_QKV] = "qkv",
    [STRATA__STAGE_QKV_POST] = "qkv_post",
    [STRATA__STAGE_ATTENTION] = "attention",
    [STRATA__STAGE_ATTENTION_OUT] = "attention_out",
    [STRATA__STAGE_FFN_NORM] = "ffn_norm",
    [STRATA__STAGE_ROUTER] = "router",
    [STRATA__STAGE_SELECT] = "select",
    [STRATA__STAGE_GROUP] = "group",
    [STRATA__STAGE_DENSE_UP] = "dense_up",
    [STRATA__STAGE_DENSE_DOWN] = "dense_down",
    [STRATA__STAGE_EXPERT_UP] = "expert_up",
    [STRATA__STAGE_EXPERT_DOWN] = "expert_down",
    [STRATA__STAGE_COMBINE] = "combine",
    [STRATA__STAGE_FINAL_NORM] = "final_norm",
    [STRATA__STAGE_LOGITS] = "logits",
};

static const char *const reason_names[] = {
    [STRATA__LAYOUT_REASON_NONE] = "no experts",
    [STRATA__LAYOUT_REASON_COST] = "least predicted time",
    [STRATA__LAYOUT_REASON_POLICY] = "asked for",
    [STRATA__LAYOUT_REASON_EXCEPTION] = "asked for this layer",
    [STRATA__LAYOUT_REASON_NOT_COVERED] = "formats not covered by the path asked for",
    [STRATA__LAYOUT_REASON_ROWS] = "more rows than the path asked for takes",
};

const char *strata__layout_buffer_name(uint32_t id)
{
    return id < STRATA__BUFFER_COUNT ? buffer_names[id] : "?";
}

const char *strata__layout_stage_name(uint32_t stage)
{
    return stage < STRATA__STAGE_COUNT ? stage_names[stage] : "?";
}

const char *strata__layout_reason_name(uint32_t reason)
{
    return reason < sizeof reason_names / sizeof reason_names[0] ? reason_names[reason] : "?";
}

const char *strata__layout_path_name(uint32_t path)
{
    static const char *const names[] = {"direct", "fused", "mmq", "fp16"};
    if (path < STRATA__LAYOUT_PATH_COUNT)
        return names[path];
    if (path == STRATA__LAYOUT_PATH_AUTO)
        return "auto";
    return path == STRATA__LAYOUT_PATH_NONE ? "none" : "?";
}
