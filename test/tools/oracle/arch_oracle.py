#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a small random model of an architecture and the logits of an independent float64 forward.

    arch_oracle.py ARCHITECTURE OUT.gguf TOKENS.txt LOGITS.f32 [SEED] [KEY=VALUE ...]

TOKENS.txt holds token ids; LOGITS.f32 receives little-endian float32, one row of the vocabulary per
position. Keys are the fields of settings.Settings or their short names (E, K, L, D, H, HK, HD, FF, V,
yarn, orig, swa, groups, ...). Needs numpy only.
"""
from __future__ import annotations

import pathlib
import sys

import numpy as np

from forward import Forward
from model import make_weights, write_model
from settings import ARCHITECTURES, Settings, settings_of


def run(arch: str, s: Settings, seed: int, tokens: list[int], model: str, logits: str) -> float:
    """Writes both files; returns the smallest margin of a selection."""
    weights = make_weights(s, seed)
    write_model(model, arch, s, weights)
    forward = Forward(s, weights)
    result = forward.logits(tokens)
    result.astype("<f4").tofile(logits)
    print(f"{arch} T {len(tokens)} min selection margin {forward.margin.value:.1e} "
          f"logit std {result.std():.3f}")
    return forward.margin.value


def main() -> None:
    if len(sys.argv) < 5 or sys.argv[1] not in ARCHITECTURES:
        raise SystemExit(f"{__doc__}\narchitectures: {' '.join(ARCHITECTURES)}")
    arch, model, tokens, logits = sys.argv[1:5]
    rest = sys.argv[5:]
    seed = int(rest.pop(0)) if rest and "=" not in rest[0] else 1
    ids = [int(word) for word in pathlib.Path(tokens).read_text().split()]
    run(arch, settings_of(arch, rest), seed, ids, model, logits)


if __name__ == "__main__":
    main()
