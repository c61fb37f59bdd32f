#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the committed cases of test/data/architectures: models, tokens and float64 logits.

    make_cases.py OUT_DIRECTORY

Each case is NAME.gguf, NAME.tokens (ids as text) and NAME.logits.f32 (one row of the vocabulary per
position). A case's seed is the first whose every selection is clear of a tie by MARGIN, relative, so that
float32 and float64 select the same experts. Needs numpy only.
"""
from __future__ import annotations

import contextlib
import io
import pathlib
import sys

import numpy as np

from arch_oracle import run
from settings import settings_of

MARGIN = 1e-3
SMALL = "D=32 H=4 HK=2 HD=8 L=2 E=8 K=3 FF=16 DFF=48 V=64"
LESS = "D=32 H=2 HK=1 HD=32 L=2 E=4 K=2 FF=32 DFF=64 V=48"
WIDE = "D=32 H=8 HK=4 HD=8 L=2 E=12 K=5 FF=8 DFF=32 V=32"

# Architecture: for each case its sizes, and the length of the prompt.
CASES: dict[str, list[tuple[str, int]]] = {
    "qwen3moe": [(SMALL, 70), (LESS + " yarn=4 orig=16", 40), (WIDE + " tied=1 fused_experts=1", 129)],
    "qwen2moe": [(SMALL + " SF=24", 70), (LESS + " SF=48", 33), (WIDE + " SF=16 K=1", 65)],
    "olmoe": [(SMALL + " HK=4", 70), (LESS + " HK=2", 33), (WIDE + " HK=8 K=6", 65)],
    "llama": [(SMALL + " tied=1", 70), (LESS + " yarn=2 orig=32", 40), (WIDE + " K=2", 65)],
    "gpt-oss": [(SMALL, 70), (LESS + " swa=7 yarn=32 orig=8", 45), (WIDE + " K=4 swa=64", 129)],
    "glm4moe": [(SMALL + " SF=16", 70), (LESS + " SF=32 L=3 dense=2 qk_norm=", 33), (WIDE + " SF=32", 65)],
    "minimax-m2": [(SMALL, 70), (LESS + " NR=24", 33), (WIDE + " K=1", 65)],
    "granitemoe": [(SMALL + " SF=24", 70), (LESS + " SF=0 finet=0", 33), (WIDE + " SF=16 res=0.22", 65)],
    "hunyuan-moe": [(SMALL + " SF=16", 70), (LESS + " SF=32", 33), (WIDE + " SF=16 K=7", 65)],
    "ernie4_5-moe": [(SMALL + " SF=16", 70), (LESS + " SF=32 L=3 dense=2 pb=0", 33), (WIDE + " SF=0", 65)],
    "bailingmoe2": [(SMALL + " SF=16", 70), (LESS + " SF=32 E=6 groups=3 gu=1", 33),
                    (WIDE + " SF=16 K=4 groups=4 gu=3 norm=0 scale=0", 65)],
}


def make_case(folder: pathlib.Path, arch: str, number: int, sizes: str, length: int) -> None:
    s = settings_of(arch, sizes.split())
    name = folder / f"{arch}-{number}"
    for seed in range(100 * number + 1, 100 * number + 100):
        tokens = np.random.default_rng(seed).integers(0, s.vocabulary, length).tolist()
        log = io.StringIO()
        with contextlib.redirect_stdout(log):
            margin = run(arch, s, seed, tokens, f"{name}.gguf", f"{name}.logits.f32")
        if margin >= MARGIN:
            break
    else:
        raise SystemExit(f"{arch} {number}: no seed is clear of ties")
    pathlib.Path(f"{name}.tokens").write_text(" ".join(map(str, tokens)) + "\n")
    print(f"{name.name} seed {seed}: {log.getvalue().strip()}")


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for arch, cases in CASES.items():
        for number, (sizes, length) in enumerate(cases, 1):
            make_case(folder, arch, number, sizes, length)


if __name__ == "__main__":
    main()
