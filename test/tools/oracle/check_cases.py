#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The committed cases are what make_cases.py makes.

    check_cases.py DIRECTORY

Models and tokens are compared byte for byte, logits to 1e-5, since float64 sums differ by machine.
Exit status 77 without numpy.
"""
from __future__ import annotations

import contextlib
import io
import pathlib
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("numpy is not installed")
    sys.exit(77)

import make_cases


def same(name: str, made: bytes, committed: bytes) -> bool:
    if not name.endswith(".f32"):
        return made == committed
    if len(made) != len(committed):
        return False
    return bool(np.allclose(np.frombuffer(made, "<f4"), np.frombuffer(committed, "<f4"), rtol=0, atol=1e-5))


def main() -> int:
    committed = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        sys.argv[1:] = [folder]
        with contextlib.redirect_stdout(io.StringIO()):
            make_cases.main()
        made = sorted(path.name for path in pathlib.Path(folder).iterdir())
        missing = sorted({path.name for path in committed.iterdir()} ^ set(made))
        different = [name for name in made if name not in missing and not same(
            name, (pathlib.Path(folder) / name).read_bytes(), (committed / name).read_bytes())]
    print(f"{len(made)} files; only on one side: {missing}; different: {different}")
    return 1 if missing or different else 0


if __name__ == "__main__":
    sys.exit(main())
