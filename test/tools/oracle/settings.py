# SPDX-License-Identifier: MIT
"""Facts and sizes of the model that the oracle makes: defaults, and what architectures differ in."""
from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Settings:
    # Sizes
    width: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 64
    rotated: int = 0  # leading values of a head that are rotated; 0: all, or half if partial
    experts: int = 8
    top_k: int = 3
    expert_width: int = 64
    shared_width: int = 0
    dense_width: int = 160
    dense: int = 0  # leading layers without experts
    vocabulary: int = 512
    eps: float = 1e-6
    # Rotary embedding
    rope_pairs: bool = False  # pairs (2i, 2i + 1) instead of (i, i + n/2)
    rope_partial: bool = False
    base: float = 10000.0
    yarn: float = 0.0  # factor, 0: none
    original: int = 16
    finetuned: bool | None = None  # granitemoe: whether there is any rotation
    # Attention
    qk_norm: str = ""  # "", head, row
    qk_norm_after: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    fused_qkv: bool = False
    sinks: bool = False
    window: int = 0  # on even layers
    attention_scale: float = 0.0
    # Router
    gating: int = 1  # 1 softmax, 2 sigmoid, 3 softmax of the selected
    write_gating: bool = False
    normalise: bool = True
    weight_scale: float = 0.0
    selection_bias: bool = False
    router_bias: bool = False
    groups: int = 0
    groups_used: int = 0
    # Feed-forward
    ffn_norm: str = "ffn_norm"
    expert_bias: bool = False  # and gpt-oss's clamped activation
    shared_gate: bool = False
    fused_experts: bool = False
    width_key: str = "expert_feed_forward_length"
    # The whole
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    tied: bool = False


ARCHITECTURES: dict[str, Settings] = {
    "llama": Settings(rope_pairs=True, width_key="feed_forward_length"),
    "qwen3moe": Settings(qk_norm="head"),
    "qwen2moe": Settings(qkv_bias=True, normalise=False, shared_width=96, shared_gate=True),
    "olmoe": Settings(kv_heads=4, qk_norm="row", normalise=False, width_key="feed_forward_length"),
    "granitemoe": Settings(rope_pairs=True, embedding_scale=3.0, residual_scale=0.4, attention_scale=0.05,
                           logit_scale=2.0, shared_width=96, finetuned=True,
                           width_key="feed_forward_length"),
    "gpt-oss": Settings(qkv_bias=True, output_bias=True, normalise=False, gating=3, expert_bias=True,
                        router_bias=True, sinks=True, window=16, yarn=4.0, ffn_norm="post_attention_norm"),
    "glm4moe": Settings(rope_partial=True, qkv_bias=True, qk_norm="head", ffn_norm="post_attention_norm",
                        gating=2, write_gating=True, selection_bias=True, weight_scale=1.5,
                        shared_width=64, dense=1),
    "minimax-m2": Settings(rope_partial=True, qk_norm="row", gating=2, write_gating=True,
                           selection_bias=True, width_key="feed_forward_length"),
    "hunyuan-moe": Settings(qk_norm="head", qk_norm_after=True, shared_width=64,
                            width_key="feed_forward_length"),
    "ernie4_5-moe": Settings(rope_pairs=True, selection_bias=True, shared_width=64, dense=1),
    "bailingmoe2": Settings(rope_partial=True, fused_qkv=True, qk_norm="head", gating=2,
                            write_gating=True, selection_bias=True, weight_scale=2.5, groups=4,
                            groups_used=2, shared_width=64, dense=1),
}

# Short names for the command line.
ALIASES = {
    "D": "width", "L": "layers", "H": "heads", "HK": "kv_heads", "HD": "head_size", "NR": "rotated",
    "E": "experts", "K": "top_k", "FF": "expert_width", "SF": "shared_width", "DFF": "dense_width",
    "V": "vocabulary", "orig": "original", "swa": "window", "gu": "groups_used", "func": "gating",
    "norm": "normalise", "scale": "weight_scale", "emb": "embedding_scale", "res": "residual_scale",
    "asc": "attention_scale", "lsc": "logit_scale", "pb": "selection_bias", "gumerge": "fused_experts",
    "fused": "fused_qkv", "finet": "finetuned",
}


def _parse(text: str, default: object) -> object:
    if isinstance(default, str):
        return text
    if isinstance(default, bool) or default is None:
        return text not in ("0", "False", "false")
    return int(float(text)) if isinstance(default, int) else float(text)


def settings_of(architecture: str, changes: list[str]) -> Settings:
    """The architecture's settings with `key=value` changes."""
    base = ARCHITECTURES[architecture]
    known = {field.name: field.default for field in fields(Settings)}
    values: dict[str, object] = {}
    for change in changes:
        name, text = change.split("=", 1)
        name = ALIASES.get(name, name)
        if name not in known:
            raise SystemExit(f"unknown setting {name}")
        values[name] = _parse(text, known[name])
    result = replace(base, **values)
    if not result.rotated:
        result = replace(result, rotated=result.head_size // (2 if result.rope_partial else 1))
    return result
