#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures the bundled model with Hugging Face transformers in float32, and writes the reference files beside it.

    python3 evaluate.py --data DIR --model MODEL.gguf [--float FLOAT.npz] [--words WORDLIST]
    [--reference PREFIX]

Needs: pip install torch transformers tokenizers gguf numpy; apt-get install wamerican-huge. A CPU
will do. The weights are those that the file's blocks decode to. --float also measures the model
before quantisation. --reference writes
  PREFIX-prompt-ids.txt     the token ids of a prompt of PROMPT tokens, one a line
  PREFIX-logits.f32         its logits at every position: PROMPT x vocabulary, little-endian
  float32, position after position
  PREFIX-heldout-ids.txt    the token ids of HELD_OUT tokens of held-out text, one a line
  PREFIX-heldout-text.txt   the text that gives these ids
"""

import argparse
import math
import pathlib
import re

import numpy
import torch
import torch.nn.functional as F
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

import gguf_file
import model
from formats import unpack
from prepare import PRE_TOKENISER

WINDOW, PROMPT, HELD_OUT = 2048, 128, 2048
PROMPTS = (
    "In the beginning God created",
    "And it came to pass in those days, that",
    "It is a truth universally acknowledged, that a single man",
)
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate_inp": "mlp.gate",
}


def from_gguf(path):
    """Keys, and weights by GGUF name."""
    keys, tensors = gguf_file.read(path)
    return keys, {
        name: unpack(data, type_).reshape(shape) for name, (shape, type_, data) in tensors.items()
    }


def hugging_face(keys, weights):
    arch = keys["general.architecture"] + "."
    config = Qwen3MoeConfig(
        vocab_size=len(keys["tokenizer.ggml.tokens"]),
        hidden_size=keys[arch + "embedding_length"],
        intermediate_size=keys[arch + "feed_forward_length"],
        num_hidden_layers=keys[arch + "block_count"],
        num_attention_heads=keys[arch + "attention.head_count"],
        num_key_value_heads=keys[arch + "attention.head_count_kv"],
        head_dim=keys[arch + "attention.key_length"],
        rms_norm_eps=keys[arch + "attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": keys[arch + "rope.freq_base"]},
        max_position_embeddings=keys[arch + "context_length"],
        num_experts=keys[arch + "expert_count"],
        num_experts_per_tok=keys[arch + "expert_used_count"],
        moe_intermediate_size=keys[arch + "expert_feed_forward_length"],
        norm_topk_prob=True,
        tie_word_embeddings=False,
        bos_token_id=keys["tokenizer.ggml.bos_token_id"],
        eos_token_id=keys["tokenizer.ggml.eos_token_id"],
        pad_token_id=keys["tokenizer.ggml.padding_token_id"],
    )
    network = Qwen3MoeForCausalLM(config).float().eval()
    state = {
        "model.embed_tokens.weight": weights["token_embd.weight"],
        "model.norm.weight": weights["output_norm.weight"],
        "lm_head.weight": weights["output.weight"],
    }
    for layer in range(config.num_hidden_layers):
        for ours, theirs in LAYER_NAMES.items():
            state[f"model.layers.{layer}.{theirs}.weight"] = weights[f"blk.{layer}.{ours}.weight"]
        gate, up, down = (
            weights[f"blk.{layer}.ffn_{part}_exps.weight"] for part in ("gate", "up", "down")
        )
        state[f"model.layers.{layer}.mlp.experts.gate_up_proj"] = numpy.concatenate(
            (gate, up), axis=1
        )
        state[f"model.layers.{layer}.mlp.experts.down_proj"] = down
    network.load_state_dict(
        {name: torch.from_numpy(numpy.array(w)) for name, w in state.items()}, strict=True
    )
    return network


def tokenizer_of(keys):
    """The tokenizer that the file describes."""
    tokens, merges = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.merges"]
    special = [t for t, kind in zip(tokens, keys["tokenizer.ggml.token_type"]) if kind == 3]
    tokenizer = Tokenizer(
        models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENISER), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in special])
    return tokenizer


@torch.no_grad()
def held_out(network, ids, text_bytes):
    """
    Bits per byte over windows that do not overlap, and the mean share of the selections of the
    busiest quarter of the experts.
    """
    experts, used = network.config.num_experts, network.config.num_experts_per_tok
    usable = (len(ids) - 1) // WINDOW * WINDOW
    nats, selections = 0.0, torch.zeros(network.config.num_hidden_layers, experts)
    for at in range(0, usable, WINDOW):
        out = network(ids[None, at : at + WINDOW], output_router_logits=True)
        nats += F.cross_entropy(
            out.logits[0], ids[at + 1 : at + WINDOW + 1], reduction="sum"
        ).item()
        for layer, router in enumerate(out.router_logits):
            selections[layer] += F.one_hot(router.topk(used, dim=-1).indices, experts).sum((0, 1))
    shares = (selections / selections.sum(-1, keepdim=True)).sort(dim=-1, descending=True).values
    return nats / math.log(2) / usable * len(ids) / text_bytes, shares[:, : experts // 4].sum(-1)


@torch.no_grad()
def continuation(network, tokenizer, prompt, words=200):
    """Greedy text of so many words after the prompt."""
    ids = torch.tensor([tokenizer.encode(prompt).ids])
    ids = network.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=3 * words,
        do_sample=False,
        eos_token_id=None,
    )
    found = list(
        re.finditer(
            r"[A-Za-z][A-Za-z']*",
            text := tokenizer.decode(ids[0].tolist(), skip_special_tokens=False)[len(prompt) :],
        )
    )
    return text[: found[min(words, len(found)) - 1].end()]


def share_in_list(text, words):
    """
    Share of the words of a text that are in the list: as written, in lower case, or without a final
    's.
    """
    found = re.findall(r"[A-Za-z][A-Za-z']*", text.replace("<|endoftext|>", " "))
    forms = ([w, w.lower(), w.removesuffix("'s"), w.strip("'").lower()] for w in found)
    return sum(any(form in words for form in each) for each in forms) / len(found), len(found)


def main():
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument("--data", type=pathlib.Path, required=True)
    args.add_argument("--model", type=pathlib.Path, required=True)
    args.add_argument("--float", type=pathlib.Path)
    args.add_argument(
        "--words", type=pathlib.Path, default=pathlib.Path("/usr/share/dict/american-english-huge")
    )
    args.add_argument("--reference", type=str)
    args = args.parse_args()

    keys, weights = from_gguf(args.model)
    network, tokenizer = hugging_face(keys, weights), tokenizer_of(keys)
    test = (args.data / "test.txt").read_text(encoding="utf-8")
    ids, size = torch.tensor(tokenizer.encode(test).ids), model.byte_count(args.data / "test.txt")
    assert numpy.array_equal(
        ids.numpy(), numpy.fromfile(args.data / "test.bin", dtype=numpy.uint16)
    ), "the file's tokenizer differs"
    print(f"{args.model.name}: {args.model.stat().st_size} bytes")

    bits, shares = held_out(network, ids, size)
    print(f"test text, {size} bytes: {bits:.4f} bits per byte quantised")
    print(
        f"busiest quarter of the experts: {shares.mean():.3f} of the selections; by layer",
        " ".join(f"{s:.3f}" for s in shares),
    )
    if args.float:
        before = hugging_face(
            keys, {name: w.astype(numpy.float32) for name, w in numpy.load(args.float).items()}
        )
        float_bits, shares = held_out(before, ids, size)
        print(
            f"float32: {float_bits:.4f} bits per byte; quantised / float32 = {bits / float_bits:.4f};"
            f" busiest quarter {shares.mean():.3f}"
        )
    words = set(args.words.read_text(encoding="utf-8").split())
    print(
        "words in the list: {:.3f} of {} in the test text itself".format(
            *share_in_list(test, words)
        )
    )
    for prompt in PROMPTS:
        text = continuation(network, tokenizer, prompt)
        print(
            "\n{:.3f} of {} words in the list after: {}".format(*share_in_list(text, words), prompt)
        )
        print(text)
    if args.reference:
        text = tokenizer.decode(ids[:HELD_OUT].tolist(), skip_special_tokens=False)
        assert tokenizer.encode(text).ids == ids[:HELD_OUT].tolist(), "the cut is within a word"
        pathlib.Path(args.reference + "-heldout-text.txt").write_text(text, encoding="utf-8")
        prompt = ids[:PROMPT]
        with torch.no_grad():
            logits = network(prompt[None]).logits[0].numpy().astype("<f4")
        logits.tofile(args.reference + "-logits.f32")
        for name, part in (("prompt", prompt), ("heldout", ids[:HELD_OUT])):
            pathlib.Path(f"{args.reference}-{name}-ids.txt").write_text(
                "".join(f"{i}\n" for i in part.tolist()), encoding="utf-8"
            )


if __name__ == "__main__":
    main()
