# SPDX-License-Identifier: MIT
"""The bundled model's forward pass for training: a `qwen3moe` network over a dictionary of
tensors with their GGUF names.

Every expert is computed for every token and the unselected ones are multiplied by zero. At this
size that is faster than grouping.
"""

import math

import torch
import torch.nn.functional as F

LAYERS, D, FF, EXPERTS, USED = 6, 256, 192, 16, 4
HEADS, KV_HEADS, HEAD = 4, 2, 64
VOCABULARY, CONTEXT = 1536, 4096
EPSILON, ROPE_BASE = 1e-6, 10000.0


def shapes():
    """Name -> shape, rows first: the last number is the one that GGUF calls ne[0]."""
    out = {"token_embd.weight": (VOCABULARY, D)}
    for layer in range(LAYERS):
        block = {
            "attn_norm": (D,),
            "attn_q": (HEADS * HEAD, D),
            "attn_k": (KV_HEADS * HEAD, D),
            "attn_v": (KV_HEADS * HEAD, D),
            "attn_output": (D, HEADS * HEAD),
            "attn_q_norm": (HEAD,),
            "attn_k_norm": (HEAD,),
            "ffn_norm": (D,),
            "ffn_gate_inp": (EXPERTS, D),
            "ffn_gate_exps": (EXPERTS, FF, D),
            "ffn_up_exps": (EXPERTS, FF, D),
            "ffn_down_exps": (EXPERTS, D, FF),
        }
        out.update({f"blk.{layer}.{name}.weight": shape for name, shape in block.items()})
    out["output_norm.weight"] = (D,)
    out["output.weight"] = (VOCABULARY, D)
    return out


def initial(seed, device):
    generator = torch.Generator(device="cpu").manual_seed(seed)
    weights = {}
    for name, shape in shapes().items():
        if len(shape) == 1:
            weight = torch.ones(shape)
        else:
            deviation = shape[-1] ** -0.5
            if "attn_output" in name or "ffn_down" in name:
                deviation /= math.sqrt(2 * LAYERS)
            elif name in ("token_embd.weight", "output.weight"):
                deviation = 0.04
            weight = torch.randn(shape, generator=generator) * deviation
        weights[name] = weight.to(device)
    return weights


def rope_tables(length, device):
    frequency = ROPE_BASE ** (-torch.arange(0, HEAD, 2, device=device, dtype=torch.float64) / HEAD)
    angle = torch.arange(length, device=device, dtype=torch.float64)[:, None] * frequency
    return angle.cos().float(), angle.sin().float()


def rotate(x, cos, sin):
    """x: batch, heads, position, HEAD. The two halves of a head are the pairs ("neox" order)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def norm(x, weight):
    return F.rms_norm(x, weight.shape, weight, EPSILON)


def attention(weights, layer, x, tables):
    """x: batch, position, D, already normalised."""

    def project(name, heads):
        y = F.linear(x, weights[f"blk.{layer}.attn_{name}.weight"].to(x.dtype))
        return y.view(*x.shape[:2], heads, HEAD).transpose(1, 2)

    q, k, v = project("q", HEADS), project("k", KV_HEADS), project("v", KV_HEADS)
    q = rotate(norm(q.float(), weights[f"blk.{layer}.attn_q_norm.weight"]), *tables).to(v.dtype)
    k = rotate(norm(k.float(), weights[f"blk.{layer}.attn_k_norm.weight"]), *tables).to(v.dtype)
    k, v = (t.repeat_interleave(HEADS // KV_HEADS, dim=1) for t in (k, v))
    y = (
        F.scaled_dot_product_attention(q, k, v, is_causal=True)
        .transpose(1, 2)
        .reshape(*x.shape[:2], HEADS * HEAD)
    )
    return F.linear(y, weights[f"blk.{layer}.attn_output.weight"].to(x.dtype))


def mixture(weights, layer, x, dtype):
    """
    x: tokens, D in float32, already normalised. Returns the sum of the selected experts, and
    probabilities and choice per token.
    """
    probability = F.softmax(F.linear(x, weights[f"blk.{layer}.ffn_gate_inp.weight"]), dim=-1)
    top, chosen = probability.topk(USED, dim=-1)
    share = torch.zeros_like(probability).scatter(-1, chosen, top / top.sum(-1, keepdim=True))
    x = x.to(dtype)
    gate = F.linear(x, weights[f"blk.{layer}.ffn_gate_exps.weight"].to(dtype).view(EXPERTS * FF, D))
    up = F.linear(x, weights[f"blk.{layer}.ffn_up_exps.weight"].to(dtype).view(EXPERTS * FF, D))
    hidden = (F.silu(gate) * up).view(-1, EXPERTS, FF) * share.to(dtype)[:, :, None]
    down = (
        weights[f"blk.{layer}.ffn_down_exps.weight"]
        .to(dtype)
        .permute(1, 0, 2)
        .reshape(D, EXPERTS * FF)
    )
    return F.linear(hidden.view(-1, EXPERTS * FF), down), probability, chosen


def forward(weights, tokens, dtype=torch.float32, dropout=0.0):
    """
    Logits (batch, position, VOCABULARY), and per layer the mean probability and the share of the
    selections of each expert.
    """
    batch, length = tokens.shape
    tables = rope_tables(length, tokens.device)
    x = F.dropout(F.embedding(tokens, weights["token_embd.weight"]), dropout, dropout > 0)
    routing = []
    for layer in range(LAYERS):
        y = norm(x, weights[f"blk.{layer}.attn_norm.weight"]).to(dtype)
        x = x + F.dropout(attention(weights, layer, y, tables), dropout, dropout > 0).float()
        y = norm(x, weights[f"blk.{layer}.ffn_norm.weight"]).view(-1, D)
        y, probability, chosen = mixture(weights, layer, y, dtype)
        x = x + F.dropout(y.view(batch, length, D), dropout, dropout > 0).float()
        selections = F.one_hot(chosen.flatten(), EXPERTS).float().mean(0)
        routing.append((probability.mean(0), selections))
    x = norm(x, weights["output_norm.weight"]).to(dtype)
    return F.linear(x, weights["output.weight"].to(dtype)).float(), routing


def busiest_quarter(selections):
    """
    Mean over layers of the share of the selections that the busiest quarter of the experts takes.
    selections: layers, EXPERTS.
    """
    return selections.sort(dim=-1, descending=True).values[:, : EXPERTS // 4].sum(-1).mean().item()


def byte_count(path):
    """Bytes of a text, where the separator of chapters counts as one."""
    return len(path.read_bytes().replace(b"<|endoftext|>", b"\n"))


@torch.no_grad()
def bits_per_byte(weights, ids, text_bytes, length=2048, batch=8, dtype=torch.float32):
    """
    Held-out loss over windows of `length`, which do not overlap, and the selections per layer and
    expert.
    """
    usable = (len(ids) - 1) // length * length
    inputs, targets = ids[:usable].view(-1, length), ids[1 : usable + 1].view(-1, length)
    nats, selections = 0.0, 0.0
    for at in range(0, len(inputs), batch):
        logits, routing = forward(weights, inputs[at : at + batch], dtype)
        nats += F.cross_entropy(
            logits.flatten(0, 1), targets[at : at + batch].flatten(), reduction="sum"
        ).item()
        selections = selections + torch.stack([s for _, s in routing]) * len(
            inputs[at : at + batch]
        )
    bits = nats / math.log(2) / usable
    return bits * len(ids) / text_bytes, selections / len(inputs)
