#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a GGUF file of a real mixture-of-experts geometry with random weights.

The bytes of the blocks are random, with scales that give every tensor a sane spread: the file costs
what the real model costs to stream and to multiply. Needs numpy only (and gguf for --f32-twin).

  mkmoe.py OUT.gguf --geometry qwen3-30b-a3b --experts IQ2_XS
  mkmoe.py OUT.gguf --geometry tiny --experts IQ2_XXS,IQ2_S,IQ1_M     cycles over the layers
  mkmoe.py OUT.gguf --geometry wide-512 --experts IQ2_S/Q2_0,IQ1_M/Q2_0     gate and up / down
  mkmoe.py OUT.gguf --geometry qwen3-235b-a22b --sparse --vocabulary-entries 150000
"""
from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Iterator, Sequence

import numpy as np

import gguf_file


@dataclass(frozen=True)
class Format:
    """A block format; `spread` is the standard deviation of random blocks whose scale is 1."""

    type_id: int
    values: int
    size: int
    spread: float = 0.0
    scale_at: int = 0  # byte of the half-precision scale
    minimum_at: int = -1  # byte of the half-precision minimum, if there is one
    minimum_ratio: float = 0.0  # minimum over scale that centres the values


FORMATS = {
    "F32": Format(0, 1, 4), "F16": Format(1, 1, 2), "BF16": Format(30, 1, 2),
    "Q4_0": Format(2, 32, 18, 4.62), "Q4_1": Format(3, 32, 20, 4.614, 0, 2, -7.5),
    "Q5_0": Format(6, 32, 22, 9.229), "Q5_1": Format(7, 32, 24, 9.231, 0, 2, -15.5),
    "Q8_0": Format(8, 32, 34, 73.81), "Q2_K": Format(10, 256, 84, 13.88, 80, 82, 1.5),
    "Q3_K": Format(11, 256, 110, 43.33, 108), "Q4_K": Format(12, 256, 144, 257.8, 0, 2, 7.5),
    "Q5_K": Format(13, 256, 176, 526.5, 0, 2, 15.5), "Q6_K": Format(14, 256, 210, 1366.0, 208),
    "IQ1_S": Format(19, 256, 50, 7.172), "IQ1_M": Format(29, 256, 56, 7.191),
    "IQ2_XXS": Format(16, 256, 66, 53.28), "IQ2_XS": Format(17, 256, 74, 55.95),
    "IQ2_S": Format(22, 256, 82, 56.47), "IQ3_XXS": Format(18, 256, 98, 143.2),
    "IQ3_S": Format(21, 256, 110, 140.0), "IQ4_NL": Format(20, 32, 18, 67.1),
    "IQ4_XS": Format(23, 256, 136, 1245.0), "MXFP4": Format(39, 32, 17, 5.828),
    "Q2_0": Format(42, 64, 18, 0.896),
}


@dataclass(frozen=True)
class Geometry:
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    experts: int
    top_k: int
    expert_width: int
    vocabulary: int
    context: int


GEOMETRIES = {
    "tiny": Geometry(4, 256, 4, 2, 64, 8, 2, 256, 512, 4096),
    # Rows of 160 and 96: only formats with blocks of 32 values fit.
    "odd": Geometry(3, 160, 4, 2, 64, 8, 2, 96, 512, 4096),
    "small": Geometry(8, 1024, 16, 4, 64, 32, 4, 512, 32000, 32768),
    "qwen3-30b-a3b": Geometry(48, 2048, 32, 4, 128, 128, 8, 768, 151936, 262144),
    "qwen3-30b-a3b-12l": Geometry(12, 2048, 32, 4, 128, 128, 8, 768, 151936, 262144),
    "qwen3-235b-a22b": Geometry(94, 4096, 64, 4, 128, 128, 8, 1536, 151936, 262144),
    # Rows of 640: only formats with blocks of 32 or 64 fit the down projection.
    "wide-512": Geometry(48, 2560, 24, 2, 256, 512, 10, 640, 248320, 262144),
}


@dataclass(frozen=True)
class Architecture:
    """What the files of an architecture have beside attention and experts."""

    qk_norm: str = ""  # "", head, row
    qkv_bias: bool = False
    all_biases: bool = False  # gpt-oss: every product, sinks and a window
    shared: bool = False
    shared_gate: bool = False
    selection_bias: bool = False
    ffn_norm: str = "ffn_norm"


ARCHITECTURES = {
    "qwen3moe": Architecture(qk_norm="head"),
    "llama": Architecture(),
    "olmoe": Architecture(qk_norm="row"),
    "qwen2moe": Architecture(qkv_bias=True, shared=True, shared_gate=True),
    "granitemoe": Architecture(shared=True),
    "minimax-m2": Architecture(qk_norm="row", selection_bias=True),
    "hunyuan-moe": Architecture(qk_norm="head", shared=True),
    "gpt-oss": Architecture(qkv_bias=True, all_biases=True, ffn_norm="post_attention_norm"),
}


@dataclass(frozen=True)
class TensorPlan:
    """`spread` None: gains of a norm, around one."""

    name: str
    format: str
    shape: Sequence[int]
    spread: float | None

    @property
    def value_count(self) -> int:
        return int(np.prod(self.shape))

    def byte_count(self, format_name: str) -> int:
        block = FORMATS[format_name]
        if self.shape[0] % block.values:
            raise SystemExit(f"{self.name}: rows of {self.shape[0]} are no whole {format_name} blocks")
        return self.value_count // block.values * block.size


def half_bytes(value: float) -> np.ndarray:
    return np.frombuffer(np.float16(value).tobytes(), np.uint8)


def set_scale(blocks: np.ndarray, name: str, scale: float) -> None:
    """Sets the scales of an (n, block bytes) array in place."""
    block = FORMATS[name]
    if name == "IQ1_M":  # the half lies in the top nibbles of the four words at byte 48
        bits = int(np.float16(scale).view(np.uint16))
        words = blocks[:, 48:56].copy().view(np.uint16)
        for i in range(4):
            words[:, i] = (words[:, i] & 0x0FFF) | (((bits >> (4 * i)) & 0xF) << 12)
        blocks[:, 48:56] = words.view(np.uint8)
    elif name == "MXFP4":  # a power of two
        blocks[:, 0] = int(round(np.log2(scale))) + 128
    else:
        blocks[:, block.scale_at:block.scale_at + 2] = half_bytes(scale)
        if block.minimum_at >= 0:
            at = block.minimum_at
            blocks[:, at:at + 2] = half_bytes(scale * block.minimum_ratio)


def make_pool(name: str, spread: float) -> np.ndarray:
    """A few MiB of random blocks whose values have about that standard deviation."""
    block = FORMATS[name]
    random = np.random.default_rng([block.type_id, int(spread * 1e6)])
    count = max(4096, (8 << 20) // block.size)
    blocks = random.integers(0, 256, (count, block.size), dtype=np.uint8)
    if name == "Q2_0":  # codes whose mean is the code of zero
        codes = random.choice(4, (count, 16, 4), p=[0.35, 0.35, 0.25, 0.05]).astype(np.uint8)
        blocks[:, 2:] = codes[..., 0] | codes[..., 1] << 2 | codes[..., 2] << 4 | codes[..., 3] << 6
    set_scale(blocks, name, spread / block.spread)
    return blocks


class ValueMaker:
    """Data of tensors, piece by piece."""

    def __init__(self, seed: int, skew: float) -> None:
        self.random = np.random.default_rng(seed)
        self.skew = skew
        self.pools: dict[tuple[str, float], np.ndarray] = {}

    def normal(self, count: int, spread: float) -> np.ndarray:
        return self.random.standard_normal(count, dtype=np.float32) * np.float32(spread)

    def skewed_router(self, tensor: TensorPlan) -> np.ndarray:
        """Rows of low experts are longer, so that these experts are hot."""
        rows = tensor.shape[1]
        values = self.normal(tensor.value_count, tensor.spread or 0).reshape(rows, -1)
        hot = 1 + self.skew * np.exp(-np.arange(rows) / (0.1 * rows))
        return values * hot[:, None].astype(np.float32)

    def blocks(self, tensor: TensorPlan) -> Iterator[bytes]:
        """Runs of a pool of random blocks, each from a random place."""
        key = (tensor.format, tensor.spread or 0)
        if key not in self.pools:
            self.pools[key] = make_pool(*key)
        pool, left = self.pools[key], tensor.value_count // FORMATS[tensor.format].values
        while left:
            start = int(self.random.integers(0, len(pool) // 2))
            count = min(left, len(pool) - start)
            yield pool[start:start + count].tobytes()
            left -= count

    def pieces(self, tensor: TensorPlan) -> Iterator[bytes]:
        if "ffn_gate_inp.weight" in tensor.name and self.skew:
            yield self.skewed_router(tensor).astype(np.float32).tobytes()
        elif tensor.spread is None:
            gains = 1 + np.float32(0.1) * self.random.standard_normal(tensor.value_count, dtype=np.float32)
            yield gains.astype(np.float32).tobytes()
        elif tensor.format == "F32":
            yield self.normal(tensor.value_count, tensor.spread).tobytes()
        elif tensor.format == "F16":
            yield self.normal(tensor.value_count, tensor.spread).astype(np.float16).tobytes()
        elif tensor.format == "BF16":
            bits = np.ascontiguousarray(self.normal(tensor.value_count, tensor.spread)).view(np.uint32)
            yield (bits >> 16).astype(np.uint16).tobytes()
        else:
            yield from self.blocks(tensor)


def widen(piece: bytes, name: str) -> bytes:
    """The piece's values as float32, for twins."""
    if name == "F32":
        return piece
    if name == "F16":
        return np.frombuffer(piece, np.float16).astype(np.float32).tobytes()
    if name == "BF16":
        return (np.frombuffer(piece, np.uint16).astype(np.uint32) << 16).view(np.float32).tobytes()
    blocks = np.frombuffer(piece, np.uint8).reshape(-1, FORMATS[name].size)
    if name == "Q2_0":
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        codes = np.stack([(blocks[:, 2:] >> shift) & 3 for shift in (0, 2, 4, 6)], -1)
        return (scale * (codes.reshape(len(blocks), 64).astype(np.float32) - 1)).tobytes()
    import gguf  # dequantises every other format

    values = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name])
    return values.astype(np.float32).tobytes()


def attention_tensors(g: Geometry, a: Architecture, prefix: str, dense: str) -> list[TensorPlan]:
    d, q, kv, s = g.width, g.heads * g.head_size, g.kv_heads * g.head_size, 0.5 / np.sqrt(g.width)
    out = [TensorPlan(prefix + "attn_norm.weight", "F32", (d,), None)]
    for name, rows in (("q", q), ("k", kv), ("v", kv)):
        out.append(TensorPlan(f"{prefix}attn_{name}.weight", dense, (d, rows), 2 * s))
    out.append(TensorPlan(prefix + "attn_output.weight", dense, (q, d), 1 / np.sqrt(q)))
    if a.qk_norm:
        whole_row = a.qk_norm == "row"
        out.append(TensorPlan(prefix + "attn_q_norm.weight", "F32", (q if whole_row else g.head_size,), None))
        out.append(TensorPlan(prefix + "attn_k_norm.weight", "F32", (kv if whole_row else g.head_size,), None))
    if a.qkv_bias:
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            out.append(TensorPlan(f"{prefix}attn_{name}.bias", "F32", (rows,), 0.1))
    if a.all_biases:
        out.append(TensorPlan(prefix + "attn_output.bias", "F32", (d,), 0.1))
        out.append(TensorPlan(prefix + "attn_sinks.weight", "F32", (g.heads,), 1.0))
    return out


def expert_tensors(g: Geometry, a: Architecture, prefix: str, dense: str, gate_up: str,
                   down: str) -> list[TensorPlan]:
    d, e, ff, s = g.width, g.experts, g.expert_width, 0.5 / np.sqrt(g.width)
    out = [
        TensorPlan(f"{prefix}{a.ffn_norm}.weight", "F32", (d,), None),
        TensorPlan(prefix + "ffn_gate_inp.weight", "F32", (d, e), 1.5 / np.sqrt(d)),
        TensorPlan(prefix + "ffn_gate_exps.weight", gate_up, (d, ff, e), 2 * s),
        TensorPlan(prefix + "ffn_up_exps.weight", gate_up, (d, ff, e), 2 * s),
        TensorPlan(prefix + "ffn_down_exps.weight", down, (ff, d, e), 2 / np.sqrt(ff)),
    ]
    if a.selection_bias:
        out.append(TensorPlan(prefix + "exp_probs_b.bias", "F32", (e,), 0.1))
    if a.all_biases:
        out.append(TensorPlan(prefix + "ffn_gate_inp.bias", "F32", (e,), 0.1))
        for name, rows in (("gate", ff), ("up", ff), ("down", d)):
            out.append(TensorPlan(f"{prefix}ffn_{name}_exps.bias", "F32", (rows, e), 0.1))
    if a.shared:
        out.append(TensorPlan(prefix + "ffn_gate_shexp.weight", dense, (d, ff), 2 * s))
        out.append(TensorPlan(prefix + "ffn_up_shexp.weight", dense, (d, ff), 2 * s))
        out.append(TensorPlan(prefix + "ffn_down_shexp.weight", dense, (ff, d), 2 / np.sqrt(ff)))
    if a.shared_gate:
        out.append(TensorPlan(prefix + "ffn_gate_inp_shexp.weight", "F32", (d,), 0.1))
    return out


def plan_tensors(g: Geometry, a: Architecture, dense: str, mix: list[tuple[str, str]]) -> list[TensorPlan]:
    tensors = [
        TensorPlan("token_embd.weight", dense, (g.width, g.vocabulary), 0.05),
        TensorPlan("output_norm.weight", "F32", (g.width,), None),
        TensorPlan("output.weight", dense, (g.width, g.vocabulary), 1 / np.sqrt(g.width)),
    ]
    for layer in range(g.layers):
        prefix, (gate_up, down) = f"blk.{layer}.", mix[layer % len(mix)]
        tensors += attention_tensors(g, a, prefix, dense)
        tensors += expert_tensors(g, a, prefix, dense, gate_up, down)
    return tensors


def add_vocabulary(header: gguf_file.Header, count: int) -> None:
    """Byte tokens, numbered fillers of a usual length, as many merges, and an end of text."""
    tokens = gguf_file.byte_characters() + [f"\u0120tok{i:05d}" for i in range(256, count)]
    tokens = tokens[:count - 1] + ["<|endoftext|>"]
    header.string("tokenizer.ggml.model", "gpt2")
    header.string("tokenizer.ggml.pre", "qwen2")
    header.string_array("tokenizer.ggml.tokens", tokens)
    header.int32_array("tokenizer.ggml.token_type", [1] * (count - 1) + [3])
    header.string_array("tokenizer.ggml.merges", [f"\u0120tok {i:05d}" for i in range(count)])
    header.uint32("tokenizer.ggml.eos_token_id", count - 1)


def make_header(arch: str, geometry: str, g: Geometry, entries: int) -> gguf_file.Header:
    header = gguf_file.Header()
    header.string("general.architecture", arch)
    header.string("general.name", f"{geometry} random")
    header.uint32("general.quantization_version", 2)
    sizes = {
        "block_count": g.layers, "context_length": g.context, "embedding_length": g.width,
        "feed_forward_length": g.expert_width, "attention.head_count": g.heads,
        "attention.head_count_kv": g.kv_heads, "attention.key_length": g.head_size,
        "attention.value_length": g.head_size, "expert_count": g.experts,
        "expert_used_count": g.top_k, "expert_feed_forward_length": g.expert_width,
        "vocab_size": g.vocabulary,
    }
    if ARCHITECTURES[arch].shared:
        sizes["expert_shared_feed_forward_length"] = g.expert_width
    if ARCHITECTURES[arch].all_biases:
        sizes["attention.sliding_window"] = 128
    for key, value in sizes.items():
        header.uint32(f"{arch}.{key}", value)
    header.float32(f"{arch}.attention.layer_norm_rms_epsilon", 1e-6)
    header.float32(f"{arch}.rope.freq_base", 1e6)
    if entries:
        add_vocabulary(header, entries)
    else:
        header.string("tokenizer.ggml.model", "none")
    return header


def write(path: str, header: gguf_file.Header, tensors: list[TensorPlan], values: ValueMaker, *,
          twin: bool = False, sparse: bool = False) -> None:
    """A twin holds the same values in float32; a sparse file is all holes after the header."""
    formats = ["F32" if twin else tensor.format for tensor in tensors]
    header.tensors = [gguf_file.Tensor(t.name, FORMATS[f].type_id, t.shape, t.byte_count(f))
                      for t, f in zip(tensors, formats)]
    head, data_bytes = header.encode()
    with open(path, "wb") as file:
        file.write(head)
        if sparse:
            file.truncate(len(head) + data_bytes)
            print(f"{path}: header only, {data_bytes / 2**30:.2f} GiB")
            return
        for tensor, info in zip(tensors, header.tensors):
            written = 0
            for piece in values.pieces(tensor):
                written += file.write(widen(piece, tensor.format) if twin else piece)
            assert written == info.byte_count, (tensor.name, written, info.byte_count)
            gguf_file.write_padding(file, written)
    print(f"{path}: {len(tensors)} tensors, {data_bytes / 2**30:.2f} GiB")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--geometry", default="tiny", choices=GEOMETRIES)
    parser.add_argument("--experts", default="IQ2_XS", help="formats, cycled over the layers")
    parser.add_argument("--dense", default="Q8_0")
    parser.add_argument("--arch", default="qwen3moe", choices=ARCHITECTURES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int, help="instead of the geometry's")
    parser.add_argument("--vocabulary-entries", type=int, default=0, metavar="N",
                        help="write a vocabulary of N tokens and N merges, instead of none")
    parser.add_argument("--sparse", action="store_true", help="header and holes: enough to plan with")
    parser.add_argument("--f32-twin", metavar="FILE", help="also write the model in float32 (small ones)")
    parser.add_argument("--skew", type=float, default=0, help="how much hotter low experts are (0: uniform)")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    geometry = dict(GEOMETRIES[arguments.geometry].__dict__)
    if arguments.layers:
        geometry["layers"] = arguments.layers
    if arguments.vocabulary_entries:
        geometry["vocabulary"] = arguments.vocabulary_entries
    g = Geometry(**geometry)
    mix = [tuple((entry.split("/") * 2)[:2]) for entry in arguments.experts.split(",")]
    tensors = plan_tensors(g, ARCHITECTURES[arguments.arch], arguments.dense, mix)
    header = make_header(arguments.arch, arguments.geometry, g, arguments.vocabulary_entries)
    write(arguments.out, header, tensors, ValueMaker(arguments.seed, arguments.skew), sparse=arguments.sparse)
    if arguments.f32_twin:
        write(arguments.f32_twin, header, tensors, ValueMaker(arguments.seed, arguments.skew), twin=True)


if __name__ == "__main__":
    main()
