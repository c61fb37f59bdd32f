#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains the bundled model: float32 weights, bfloat16 arithmetic. prepare.py comes first.

    python3 train.py --data DIR --out FLOAT.npz [--steps N] [--dropout P] [--resume FLOAT.npz]

Needs: pip install torch numpy; a GPU with 40 GiB, for some minutes. On a CPU it runs, for debugging
(--tokens 4096).

Attention sees 2,048 tokens for most of the run and 4,096 for the last fifth.

The routing is shaped, not balanced: in each layer a loss pulls the shares of the selections towards
a geometric row, whose largest four of sixteen make up 61 %. A cache of experts has something to
find, and no expert starves.
"""

import argparse
import math
import pathlib
import time

import numpy
import torch
import torch.nn.functional as F

import model

ROUTING_RATIO = 0.8


def load_ids(path, device):
    return torch.from_numpy(numpy.fromfile(path, dtype=numpy.uint16).astype(numpy.int64)).to(device)


def random_windows(ids, count, length, generator):
    starts = torch.randint(len(ids) - length - 1, (count,), generator=generator)
    windows = ids[(starts[:, None] + torch.arange(length + 1)).to(ids.device)]
    return windows[:, :-1], windows[:, 1:]


def wanted_shares(device):
    """Per layer, the geometric row in an order of its own."""
    row = ROUTING_RATIO ** torch.arange(model.EXPERTS, dtype=torch.float32)
    generator = torch.Generator().manual_seed(11)
    rows = [row[torch.randperm(model.EXPERTS, generator=generator)] for _ in range(model.LAYERS)]
    return (torch.stack(rows) / row.sum()).to(device)


def routing_loss(routing, wanted):
    """
    1 when every layer's selections have the wanted shares; the gradient lowers the probability of
    what is chosen too often.
    """
    return sum(
        (selections / wanted[layer] * probability).sum()
        for layer, (probability, selections) in enumerate(routing)
    ) / len(routing)


def optimiser(weights, decay):
    matrices = [w for w in weights.values() if w.dim() > 1]
    vectors = [w for w in weights.values() if w.dim() == 1]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=matrices[0].is_cuda)


def set_rate(optimiser_, peak, done, warm_up=0.03):
    rate = peak * (
        done / warm_up
        if done < warm_up
        else 0.5 * (1 + math.cos(math.pi * (done - warm_up) / (1 - warm_up)))
    )
    for group in optimiser_.param_groups:
        group["lr"] = rate


def save(weights, path):
    """
    As half precision: the copy that everything later calls the float model is this one, read back
    into float32.
    """
    numpy.savez(path, **{name: w.detach().half().cpu().numpy() for name, w in weights.items()})


def load(path, device):
    return {
        name: torch.from_numpy(w.astype(numpy.float32)).to(device)
        for name, w in numpy.load(path).items()
    }


def main():
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument("--data", type=pathlib.Path, required=True)
    args.add_argument("--out", type=pathlib.Path, required=True)
    args.add_argument("--resume", type=pathlib.Path, help="start from this model")
    args.add_argument("--steps", type=int, default=1400)
    args.add_argument(
        "--seconds", type=float, default=1e9, help="shorten the run to about this long"
    )
    args.add_argument("--dropout", type=float, default=0.3)
    args.add_argument("--rate", type=float, default=3e-3)
    args.add_argument("--decay", type=float, default=0.3)
    args.add_argument(
        "--routing", type=float, default=0.02, help="weight of the loss that shapes the routing"
    )
    args.add_argument("--tokens", type=int, default=32768, help="per step")
    args = args.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(6 if args.resume else 2)
    train, valid = (load_ids(args.data / f"{name}.bin", device) for name in ("train", "valid"))
    valid_bytes = model.byte_count(args.data / "valid.txt")
    weights = load(args.resume, device) if args.resume else model.initial(3, device)
    weights = {name: w.requires_grad_() for name, w in weights.items()}
    adam, wanted = optimiser(weights, args.decay), wanted_shares(device)
    start, step, done, report = time.time(), 0, 0.0, 0.1
    while done < 1:
        set_rate(adam, args.rate, done)
        length = 2048 if done < 0.8 else model.CONTEXT
        inputs, targets = random_windows(train, max(1, args.tokens // length), length, generator)
        logits, routing = model.forward(weights, inputs, dtype, args.dropout)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        shape = routing_loss(routing, wanted)
        (loss + args.routing * shape).backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        step += 1
        done = max(step / args.steps, (time.time() - start) / args.seconds)
        if done >= report or step == 20:
            report += 0.1 if done >= report else 0
            held_out, selections = model.bits_per_byte(weights, valid, valid_bytes, dtype=dtype)
            print(
                f"{args.out.name}: step {step}, {time.time() - start:.0f} s: loss {loss.item():.3f},"
                f" held out {held_out:.4f} bits per byte, busiest quarter {model.busiest_quarter(selections):.2f},"
                f" least used {selections.min().item():.4f}",
                flush=True,
            )
    save(weights, args.out)
    print(f"{held_out:.4f} {args.out}")


if __name__ == "__main__":
    main()
