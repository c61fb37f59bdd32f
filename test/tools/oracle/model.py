# SPDX-License-Identifier: MIT
"""A random model: its weights, and the GGUF file that holds them."""
from __future__ import annotations

import pathlib
import sys

import numpy as np

from settings import Settings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import gguf_file  # noqa: E402

Weights = dict[str, np.ndarray]


class WeightMaker:
    """Draws tensors in file order, each with the spread its role needs."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.weights: Weights = {}

    def _add(self, name: str, values: np.ndarray) -> None:
        self.weights[name] = values.astype(np.float32)

    def product(self, name: str, *shape: int) -> None:
        self._add(name, self.random.standard_normal(shape) / np.sqrt(shape[-1]))

    def router(self, name: str, *shape: int) -> None:
        """Four times wider, so that few tokens are near a tie."""
        self._add(name, 4 * self.random.standard_normal(shape) / np.sqrt(shape[-1]))

    def gain(self, name: str, size: int) -> None:
        self._add(name, 1 + 0.1 * self.random.standard_normal((size,)))

    def bias(self, name: str, *shape: int) -> None:
        self._add(name, 0.1 * self.random.standard_normal(shape))

    def wide(self, name: str, *shape: int) -> None:
        self._add(name, self.random.standard_normal(shape))


def _add_attention(make: WeightMaker, s: Settings, prefix: str) -> None:
    q, kv = s.heads * s.head_size, s.kv_heads * s.head_size
    if s.fused_qkv:
        make.product(prefix + "attn_qkv.weight", q + 2 * kv, s.width)
    else:
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            make.product(f"{prefix}attn_{name}.weight", rows, s.width)
            if s.qkv_bias:
                make.bias(f"{prefix}attn_{name}.bias", rows)
    make.product(prefix + "attn_output.weight", s.width, q)
    if s.output_bias:
        make.bias(prefix + "attn_output.bias", s.width)
    if s.qk_norm:
        whole_row = s.qk_norm == "row"
        make.gain(prefix + "attn_q_norm.weight", q if whole_row else s.head_size)
        make.gain(prefix + "attn_k_norm.weight", kv if whole_row else s.head_size)
    if s.sinks:
        make.wide(prefix + "attn_sinks.weight", s.heads)


def _add_dense(make: WeightMaker, s: Settings, prefix: str) -> None:
    make.product(prefix + "ffn_gate.weight", s.dense_width, s.width)
    make.product(prefix + "ffn_up.weight", s.dense_width, s.width)
    make.product(prefix + "ffn_down.weight", s.width, s.dense_width)


def _add_experts(make: WeightMaker, s: Settings, prefix: str) -> None:
    experts, width = s.experts, s.expert_width
    make.router(prefix + "ffn_gate_inp.weight", experts, s.width)
    if s.router_bias:
        make.bias(prefix + "ffn_gate_inp.bias", experts)
    if s.selection_bias:
        make.bias(prefix + "exp_probs_b.bias", experts)
    if s.fused_experts:
        make.product(prefix + "ffn_gate_up_exps.weight", experts, 2 * width, s.width)
    else:
        make.product(prefix + "ffn_gate_exps.weight", experts, width, s.width)
        make.product(prefix + "ffn_up_exps.weight", experts, width, s.width)
    make.product(prefix + "ffn_down_exps.weight", experts, s.width, width)
    if s.expert_bias:
        make.bias(prefix + "ffn_gate_exps.bias", experts, width)
        make.bias(prefix + "ffn_up_exps.bias", experts, width)
        make.bias(prefix + "ffn_down_exps.bias", experts, s.width)
    if s.shared_width:
        if s.shared_gate:
            make.product(prefix + "ffn_gate_inp_shexp.weight", s.width)
        make.product(prefix + "ffn_gate_shexp.weight", s.shared_width, s.width)
        make.product(prefix + "ffn_up_shexp.weight", s.shared_width, s.width)
        make.product(prefix + "ffn_down_shexp.weight", s.width, s.shared_width)


def make_weights(s: Settings, seed: int) -> Weights:
    make = WeightMaker(seed)
    make.wide("token_embd.weight", s.vocabulary, s.width)
    make.gain("output_norm.weight", s.width)
    if not s.tied:
        make.product("output.weight", s.vocabulary, s.width)
    for layer in range(s.layers):
        prefix = f"blk.{layer}."
        make.gain(prefix + "attn_norm.weight", s.width)
        make.gain(f"{prefix}{s.ffn_norm}.weight", s.width)
        _add_attention(make, s, prefix)
        if layer < s.dense:
            _add_dense(make, s, prefix)
        else:
            _add_experts(make, s, prefix)
    return make.weights


def _add_size_keys(header: gguf_file.Header, arch: str, s: Settings) -> None:
    dense = s.dense and s.width_key != "feed_forward_length"
    sizes = {
        "block_count": s.layers, "context_length": 4096, "embedding_length": s.width,
        "feed_forward_length": s.dense_width if dense else s.expert_width,
        "expert_feed_forward_length": s.expert_width, "expert_count": s.experts,
        "expert_used_count": s.top_k, "attention.head_count": s.heads,
        "attention.head_count_kv": s.kv_heads, "attention.key_length": s.head_size,
        "attention.value_length": s.head_size, "rope.dimension_count": s.rotated,
    }
    if s.shared_width:
        sizes["expert_shared_feed_forward_length"] = s.shared_width
        sizes["expert_shared_count"] = max(1, s.shared_width // s.expert_width)
    if s.gating != 1 or s.write_gating:
        sizes["expert_gating_func"] = s.gating
    if s.groups:
        sizes["expert_group_count"] = s.groups
        sizes["expert_group_used_count"] = s.groups_used
    if s.dense or arch == "glm4moe":
        sizes["leading_dense_block_count"] = s.dense
    if s.window:
        sizes["attention.sliding_window"] = s.window
    if arch == "ernie4_5-moe":
        sizes["interleave_moe_layer_step"] = 1
    for key, value in sizes.items():
        header.uint32(f"{arch}.{key}", value)


def _add_other_keys(header: gguf_file.Header, arch: str, s: Settings) -> None:
    header.float32(f"{arch}.attention.layer_norm_rms_epsilon", s.eps)
    header.float32(f"{arch}.rope.freq_base", s.base)
    header.boolean(f"{arch}.expert_weights_norm", s.normalise)
    if s.weight_scale:
        header.float32(f"{arch}.expert_weights_scale", s.weight_scale)
    if s.yarn:
        header.string(f"{arch}.rope.scaling.type", "yarn")
        header.float32(f"{arch}.rope.scaling.factor", s.yarn)
        header.uint32(f"{arch}.rope.scaling.original_context_length", s.original)
    if s.finetuned is not None:
        header.boolean(f"{arch}.rope.scaling.finetuned", s.finetuned)
    if arch == "granitemoe":
        header.float32(f"{arch}.embedding_scale", s.embedding_scale)
        header.float32(f"{arch}.residual_scale", s.residual_scale)
        header.float32(f"{arch}.attention.scale", s.attention_scale)
        header.float32(f"{arch}.logit_scale", s.logit_scale)


def _add_vocabulary(header: gguf_file.Header, size: int) -> None:
    """Bytes, pairs of letters and fillers as far as they fit, and one token that ends a text."""
    letters = "etaoinshrdlu"
    pairs = [(a, b) for a in letters for b in letters]
    tokens = gguf_file.byte_characters() + [a + b for a, b in pairs]
    tokens += [f"<u{i}>" for i in range(len(tokens), size)]
    tokens = tokens[:size - 1] + ["<|endoftext|>"]
    header.string("tokenizer.ggml.model", "gpt2")
    header.string("tokenizer.ggml.pre", "qwen2")
    header.string_array("tokenizer.ggml.tokens", tokens)
    header.int32_array("tokenizer.ggml.token_type", [1] * (size - 1) + [3])
    header.string_array("tokenizer.ggml.merges", [f"{a} {b}" for a, b in pairs if a + b in tokens])
    header.uint32("tokenizer.ggml.eos_token_id", size - 1)


def write_model(path: str, arch: str, s: Settings, weights: Weights) -> None:
    header = gguf_file.Header()
    header.string("general.architecture", arch)
    header.string("general.name", "tiny")
    _add_size_keys(header, arch, s)
    _add_other_keys(header, arch, s)
    _add_vocabulary(header, s.vocabulary)
    for name, values in weights.items():
        header.tensors.append(gguf_file.Tensor(name, 0, values.shape[::-1], values.nbytes))
    with open(path, "wb") as file:
        file.write(header.encode()[0])
        for values in weights.values():
            file.write(values.tobytes())
            gguf_file.write_padding(file, values.nbytes)
