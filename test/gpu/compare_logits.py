#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares two files of little-endian float32 logits, position after position.

  compare_logits.py REFERENCE OTHER --vocabulary N [--kl MAX] [--top MIN] [--nmse MAX] [--bits]

Prints mean and largest KL divergence (natural logarithm), the share of positions with the same top
token and the normalised mean squared error; exits 1 when a limit given is exceeded.
"""
import argparse
import sys

import numpy as np


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("reference")
    parser.add_argument("other")
    parser.add_argument("--vocabulary", type=int, required=True)
    parser.add_argument("--name", default="")
    parser.add_argument("--kl", type=float)
    parser.add_argument("--top", type=float)
    parser.add_argument("--nmse", type=float)
    parser.add_argument("--bits", action="store_true", help="every bit must be equal")
    a = parser.parse_args()
    raw = [np.fromfile(path, "<f4").reshape(-1, a.vocabulary) for path in (a.reference, a.other)]
    if raw[0].shape != raw[1].shape or not raw[0].size:
        sys.exit(f"{a.name}: shapes {raw[0].shape} and {raw[1].shape}")
    reference, other = (x.astype(np.float64) for x in raw)
    p, q = log_softmax(reference), log_softmax(other)
    kl = (np.exp(p) * (p - q)).sum(-1)
    top = (reference.argmax(-1) == other.argmax(-1)).mean()
    nmse = ((reference - other) ** 2).sum() / ((reference - reference.mean()) ** 2).sum()
    same = bool((raw[0].view(np.uint32) == raw[1].view(np.uint32)).all())
    failures = []
    if a.kl is not None and not kl.mean() <= a.kl:
        failures.append("kl")
    if a.top is not None and not top >= a.top:
        failures.append("top")
    if a.nmse is not None and not nmse <= a.nmse:
        failures.append("nmse")
    if a.bits and not same:
        failures.append("bits")
    print(f"{a.name:34} mean KL {kl.mean():.2e}, largest {kl.max():.2e}, same top {100 * top:.2f} %, "
          f"nmse {nmse:.2e}, {'same bits' if same else 'other bits'}"
          f"{'  FAILED: ' + ' '.join(failures) if failures else ''}", flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
