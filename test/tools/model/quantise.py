#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Quantises the bundled model, fine-tuned through the quantisation, and writes the GGUF file. train.py comes first.

    python3 quantise.py --data DIR --float FLOAT.npz --out MODEL.gguf [--steps N]

Needs: pip install torch numpy gguf; a GPU with 60 GiB. Each step rounds the weights to their
formats and passes gradients straight through the rounding. The loss is mostly the divergence from
the float model. Scales are found anew every REFIT steps until the last quarter, which trains with
the scales that the file will hold. The blocks are then decoded by another implementation, and must
give the trained weights bit for bit.
"""

import argparse
import json
import pathlib
import time

import numpy
import torch
import torch.nn.functional as F

import gguf_file
import model
from formats import FORMATS, unpack
from gguf_file import ARRAY, BOOL, I32, STRING, U32
from train import load, load_ids, optimiser, random_windows, routing_loss, set_rate, wanted_shares

GATE_UP = ("Q4_K", "IQ3_S", "IQ3_XXS", "IQ2_S", "IQ1_M", "IQ3_XXS")
DOWN = ("IQ4_NL", "Q2_0", "IQ4_NL", "Q2_0", "IQ4_NL", "Q2_0")
REFIT = 40


def format_of(name):
    """The format of a tensor in the file."""
    if "norm" in name or "ffn_gate_inp" in name:
        return "F32"
    if "_exps" in name:
        return (DOWN if "ffn_down" in name else GATE_UP)[int(name.split(".")[1])]
    return "Q8_0"


class Rounding:
    """The weights as the file will hold them."""

    def __init__(self, weights):
        self.weights, self.scales = weights, {}

    def blocks(self, name):
        return self.weights[name].detach().view(-1, FORMATS[format_of(name)].block)

    def fit(self):
        for name in self.weights:
            if format_of(name) != "F32":
                self.scales[name] = FORMATS[format_of(name)].fit(self.blocks(name))

    def rounded(self, name):
        grid, scales = FORMATS[format_of(name)], self.scales[name]
        codes = grid.encode(self.blocks(name), scales)
        return grid.decode(codes, scales).view_as(self.weights[name]), codes

    def apply(self):
        """Rounded weights whose gradients reach the unrounded ones."""
        out = {}
        for name, weight in self.weights.items():
            out[name] = (
                weight
                if format_of(name) == "F32"
                else weight + (self.rounded(name)[0] - weight).detach()
            )
        return out

    def tensors(self):
        """For gguf_file.write: packed, and proved to decode to what was trained."""
        out, decoded = [], {}
        for name, weight in self.weights.items():
            if format_of(name) == "F32":
                decoded[name] = weight.detach()
                packed = weight.detach().cpu().numpy().view(numpy.uint8)
            else:
                decoded[name], codes = self.rounded(name)
                packed = FORMATS[format_of(name)].pack(codes, self.scales[name]).numpy()
                again = unpack(packed, format_of(name)).reshape(weight.shape)
                assert numpy.array_equal(again, decoded[name].cpu().numpy()), name
            out.append((name, tuple(weight.shape), format_of(name), packed.tobytes()))
        return out, decoded


def keys(tokenizer_path):
    stored = json.loads(tokenizer_path.read_text(encoding="utf-8"))
    ids = dict(stored["model"]["vocab"])
    ids.update({token["content"]: token["id"] for token in stored["added_tokens"]})
    tokens = sorted(ids, key=ids.get)
    assert [ids[t] for t in tokens] == list(range(model.VOCABULARY))
    special = {token["content"] for token in stored["added_tokens"]}
    merges = [m if isinstance(m, str) else " ".join(m) for m in stored["model"]["merges"]]
    end = model.VOCABULARY - 1
    return [
        ("general.architecture", STRING, "qwen3moe"),
        ("general.type", STRING, "model"),
        ("general.name", STRING, "Strata Chapters 6x16"),
        (
            "general.description",
            STRING,
            "Trained on the King James Version and Jane Austen's novels, for tests and examples",
        ),
        ("general.license", STRING, "mit"),
        ("general.languages", ARRAY, (STRING, ["en"])),
        ("general.quantization_version", U32, 2),
        ("qwen3moe.block_count", U32, model.LAYERS),
        ("qwen3moe.context_length", U32, model.CONTEXT),
        ("qwen3moe.embedding_length", U32, model.D),
        ("qwen3moe.feed_forward_length", U32, model.FF * model.USED),
        ("qwen3moe.attention.head_count", U32, model.HEADS),
        ("qwen3moe.attention.head_count_kv", U32, model.KV_HEADS),
        ("qwen3moe.attention.key_length", U32, model.HEAD),
        ("qwen3moe.attention.value_length", U32, model.HEAD),
        ("qwen3moe.attention.layer_norm_rms_epsilon", gguf_file.F32, model.EPSILON),
        ("qwen3moe.rope.freq_base", gguf_file.F32, model.ROPE_BASE),
        ("qwen3moe.expert_count", U32, model.EXPERTS),
        ("qwen3moe.expert_used_count", U32, model.USED),
        ("qwen3moe.expert_feed_forward_length", U32, model.FF),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, "qwen2"),
        ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
        ("tokenizer.ggml.token_type", ARRAY, (I32, [3 if t in special else 1 for t in tokens])),
        ("tokenizer.ggml.merges", ARRAY, (STRING, merges)),
        ("tokenizer.ggml.bos_token_id", U32, end),
        ("tokenizer.ggml.eos_token_id", U32, end),
        ("tokenizer.ggml.padding_token_id", U32, end),
        ("tokenizer.ggml.add_bos_token", BOOL, False),
    ]


def main():
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument("--data", type=pathlib.Path, required=True)
    args.add_argument("--float", type=pathlib.Path, required=True)
    args.add_argument("--out", type=pathlib.Path, required=True)
    args.add_argument("--steps", type=int, default=824)
    args.add_argument(
        "--seconds", type=float, default=1e9, help="shorten the run to about this long"
    )
    args.add_argument("--dropout", type=float, default=0.1)
    args.add_argument("--rate", type=float, default=1e-3)
    args.add_argument(
        "--routing", type=float, default=0.05, help="weight of the loss that shapes the routing"
    )
    args.add_argument("--tokens", type=int, default=32768, help="per step")
    args = args.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    torch.manual_seed(4)
    generator = torch.Generator().manual_seed(5)
    train, valid, test = (
        load_ids(args.data / f"{name}.bin", device) for name in ("train", "valid", "test")
    )
    sizes = {name: model.byte_count(args.data / f"{name}.txt") for name in ("valid", "test")}
    teacher = load(args.float, device)
    weights = {name: w.clone().requires_grad_() for name, w in teacher.items()}
    rounding, adam, wanted = Rounding(weights), optimiser(weights, 0.0), wanted_shares(device)
    start, step, done, report = time.time(), 0, 0.0, 0.0
    while done < 1:
        if step == 0 or (step % REFIT == 0 and done < 0.75):
            rounding.fit()
        if done >= report:
            with torch.no_grad():
                held_out, _ = model.bits_per_byte(
                    rounding.apply(), valid, sizes["valid"], dtype=dtype
                )
            print(
                f"step {step}, {time.time() - start:.0f} s: held out {held_out:.4f} bits per byte",
                flush=True,
            )
            report += 0.125
        set_rate(adam, args.rate, done)
        inputs, targets = random_windows(train, max(1, args.tokens // 2048), 2048, generator)
        with torch.no_grad():
            wish = F.log_softmax(model.forward(teacher, inputs, dtype)[0], dim=-1).flatten(0, 1)
        logits, routing = model.forward(rounding.apply(), inputs, dtype, args.dropout)
        logits = logits.flatten(0, 1)
        divergence = F.kl_div(
            F.log_softmax(logits, dim=-1), wish, log_target=True, reduction="batchmean"
        )
        loss = 0.8 * divergence + 0.2 * F.cross_entropy(logits, targets.flatten())
        (loss + args.routing * routing_loss(routing, wanted)).backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        step += 1
        done = max(step / args.steps, (time.time() - start) / args.seconds)
    tensors, decoded = rounding.tensors()
    gguf_file.write(args.out, keys(args.data / "tokenizer.json"), tensors)
    print(
        f"{args.out}: {args.out.stat().st_size} bytes after {step} steps, {time.time() - start:.0f} s"
    )
    for name, ids in (("valid", valid), ("test", test)):
        for label, w in (("float32", teacher), ("quantised", decoded)):
            held_out, selections = model.bits_per_byte(w, ids, sizes[name])
            print(
                f"{name} {label}: {held_out:.4f} bits per byte, "
                f"busiest quarter {model.busiest_quarter(selections):.3f},"
                f" least used {selections.min().item():.4f}"
            )


if __name__ == "__main__":
    main()
