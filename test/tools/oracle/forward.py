# SPDX-License-Identifier: MIT
"""The forward pass in float64, written for clarity: logits of all positions of one sequence."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from settings import Settings

Array = np.ndarray


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def rms(x: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rotary_frequencies(s: Settings) -> tuple[Array, float]:
    """Radians per position of each pair, and the factor on cosine and sine."""
    n = s.rotated
    frequencies = s.base ** (-np.arange(0, n, 2) / n)
    if not s.yarn:
        return frequencies, 1.0

    def pair(turns: float) -> float:
        return n * np.log(s.original / (turns * 2 * np.pi)) / (2 * np.log(s.base))

    low, high = max(0, np.floor(pair(32.0))), min(n - 1, np.ceil(pair(1.0)))
    kept = 1 - np.clip((np.arange(n // 2) - low) / max(0.001, high - low), 0, 1)
    return frequencies / s.yarn * (1 - kept) + frequencies * kept, 1 + 0.1 * np.log(s.yarn)


@dataclass
class Margin:
    """Smallest distance between what was selected and what was not, relative to the former."""

    value: float = np.inf

    def note(self, selected: Array, next_best: Array) -> None:
        self.value = min(self.value, ((selected - next_best) / np.abs(selected)).min())


class Forward:
    def __init__(self, settings: Settings, weights: dict[str, Array]) -> None:
        self.s = settings
        self.w = {name: values.astype(np.float64) for name, values in weights.items()}
        self.frequencies, self.magnitude = rotary_frequencies(settings)
        self.margin = Margin()

    def norm(self, x: Array, name: str) -> Array:
        return rms(x, self.s.eps) * self.w[name + ".weight"]

    def linear(self, x: Array, name: str) -> Array:
        return x @ self.w[name + ".weight"].T + self.w.get(name + ".bias", 0)

    def rotate(self, x: Array) -> Array:
        """[tokens, heads, head_size]; the leading values of each head turn."""
        if self.s.finetuned is False:
            return x
        n = self.s.rotated
        angle = np.arange(len(x))[:, None] * self.frequencies
        cos, sin = (np.cos(angle) * self.magnitude)[:, None], (np.sin(angle) * self.magnitude)[:, None]
        a, b = (slice(0, n, 2), slice(1, n, 2)) if self.s.rope_pairs else (slice(0, n // 2), slice(n // 2, n))
        y = x.copy()
        y[..., a] = x[..., a] * cos - x[..., b] * sin
        y[..., b] = x[..., a] * sin + x[..., b] * cos
        return y

    def project_qkv(self, x: Array, prefix: str) -> tuple[Array, Array, Array]:
        q, kv = self.s.heads * self.s.head_size, self.s.kv_heads * self.s.head_size
        if self.s.fused_qkv:
            return tuple(np.split(self.linear(x, prefix + "attn_qkv"), [q, q + kv], -1))
        return tuple(self.linear(x, prefix + "attn_" + name) for name in "qkv")

    def attend(self, q: Array, k: Array, v: Array, layer: int) -> Array:
        s, tokens = self.s, len(q)
        repeat = s.heads // s.kv_heads
        k, v = np.repeat(k, repeat, 1), np.repeat(v, repeat, 1)
        scores = np.einsum("thd,shd->hts", q, k) * (s.attention_scale or 1 / np.sqrt(s.head_size))
        distance = np.arange(tokens)[:, None] - np.arange(tokens)[None]
        scores[:, distance < 0] = -np.inf
        if s.window and layer % 2 == 0:
            scores[:, distance >= s.window] = -np.inf
        sink = self.w.get(f"blk.{layer}.attn_sinks.weight")
        if sink is not None:
            scores = np.concatenate([scores, np.broadcast_to(sink[:, None, None], (s.heads, tokens, 1))], -1)
        return np.einsum("hts,shd->thd", softmax(scores)[..., :tokens], v)

    def attention(self, x: Array, layer: int) -> Array:
        s, tokens, prefix = self.s, len(x), f"blk.{layer}."
        q, k, v = self.project_qkv(x, prefix)
        q_norm, k_norm = prefix + "attn_q_norm", prefix + "attn_k_norm"
        if s.qk_norm == "row":
            q, k = self.norm(q, q_norm), self.norm(k, k_norm)
        q = q.reshape(tokens, s.heads, s.head_size)
        k, v = (y.reshape(tokens, s.kv_heads, s.head_size) for y in (k, v))
        if s.qk_norm == "head" and not s.qk_norm_after:
            q, k = self.norm(q, q_norm), self.norm(k, k_norm)
        q, k = self.rotate(q), self.rotate(k)
        if s.qk_norm == "head" and s.qk_norm_after:
            q, k = self.norm(q, q_norm), self.norm(k, k_norm)
        return self.linear(self.attend(q, k, v, layer).reshape(tokens, -1), prefix + "attn_output")

    def gated(self, x: Array, prefix: str, suffix: str) -> Array:
        """down(silu(gate(x)) * up(x)) of dense layers and shared experts."""
        gate, up = self.linear(x, f"{prefix}ffn_gate{suffix}"), self.linear(x, f"{prefix}ffn_up{suffix}")
        return self.linear(silu(gate) * up, f"{prefix}ffn_down{suffix}")

    def keep_groups(self, scores: Array) -> Array:
        s = self.s
        if not s.groups:
            return scores
        best = np.sort(scores.reshape(len(scores), s.groups, -1), -1)[..., -2:].sum(-1)
        ranked = np.sort(best, -1)
        threshold = ranked[:, -s.groups_used]
        if s.groups_used < s.groups:
            self.margin.note(threshold, ranked[:, -s.groups_used - 1])
        kept = np.repeat(best >= threshold[:, None], s.experts // s.groups, 1)
        return np.where(kept, scores, -np.inf)

    def route(self, x: Array, prefix: str) -> tuple[Array, Array]:
        """Ids and weights of each token's experts."""
        s = self.s
        logits = self.linear(x, prefix + "ffn_gate_inp")
        probabilities = {1: softmax, 2: sigmoid, 3: lambda y: y}[s.gating](logits)
        scores = self.keep_groups(probabilities + self.w.get(prefix + "exp_probs_b.bias", 0))
        order = np.argsort(-scores, axis=-1, kind="stable")
        ids = order[:, :s.top_k]
        if s.top_k < s.experts:
            ranked = np.take_along_axis(scores, order, -1)
            self.margin.note(ranked[:, s.top_k - 1], ranked[:, s.top_k])
        weights = np.take_along_axis(probabilities, ids, -1)
        if s.gating == 3:
            weights = softmax(weights)
        if s.normalise:
            weights = weights / np.maximum(weights.sum(-1, keepdims=True), 2.0**-14)
        return ids, weights * (s.weight_scale or 1)

    def expert_rows(self, prefix: str, expert: int) -> tuple[Array, Array]:
        if self.s.fused_experts:
            both = self.w[prefix + "ffn_gate_up_exps.weight"][expert]
            return both[:self.s.expert_width], both[self.s.expert_width:]
        return self.w[prefix + "ffn_gate_exps.weight"][expert], self.w[prefix + "ffn_up_exps.weight"][expert]

    def expert(self, x: Array, prefix: str, expert: int) -> Array:
        gate_rows, up_rows = self.expert_rows(prefix, expert)
        gate, up = gate_rows @ x, up_rows @ x
        if not self.s.expert_bias:
            return self.w[prefix + "ffn_down_exps.weight"][expert] @ (silu(gate) * up)
        gate = np.minimum(gate + self.w[prefix + "ffn_gate_exps.bias"][expert], 7)
        up = np.clip(up + self.w[prefix + "ffn_up_exps.bias"][expert], -7, 7)
        hidden = gate * sigmoid(1.702 * gate) * (up + 1)
        down = self.w[prefix + "ffn_down_exps.weight"][expert] @ hidden
        return down + self.w[prefix + "ffn_down_exps.bias"][expert]

    def feed_forward(self, x: Array, layer: int) -> Array:
        s, prefix = self.s, f"blk.{layer}."
        if layer < s.dense:
            return self.gated(x, prefix, "")
        ids, weights = self.route(x, prefix)
        y = np.zeros_like(x)
        for token in range(len(x)):
            for expert, weight in zip(ids[token], weights[token]):
                y[token] += weight * self.expert(x[token], prefix, expert)
        if s.shared_width:
            shared = self.gated(x, prefix, "_shexp")
            if s.shared_gate:
                shared = shared * sigmoid(x @ self.w[prefix + "ffn_gate_inp_shexp.weight"])[:, None]
            y += shared
        return y

    def logits(self, tokens: list[int]) -> Array:
        s = self.s
        x = self.w["token_embd.weight"][tokens] * s.embedding_scale
        for layer in range(s.layers):
            x = x + self.attention(self.norm(x, f"blk.{layer}.attn_norm"), layer) * s.residual_scale
            x = x + self.feed_forward(self.norm(x, f"blk.{layer}.{s.ffn_norm}"), layer) * s.residual_scale
        head = self.w["token_embd.weight" if s.tied else "output.weight"]
        return self.norm(x, "output_norm") @ head.T / s.logit_scale
