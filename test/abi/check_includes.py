#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The direction of includes: a module sees its own folder and what lies below it."""
import pathlib
import re
import sys

BELOW = {
    "base": [],
    "pack": ["base"],
    "layout": ["base"],
    "text": ["base"],
    "device": ["base"],
    "kernels": ["base"],
    "session": ["base", "pack", "layout", "device", "kernels", "text"],
    "api": ["base", "pack", "layout", "device", "kernels", "text", "session"],
}
ACCELERATOR = re.compile(r"(cuda|cublas|nvrtc|\bmma\b)", re.I)
MAY_SEE_CUDA = re.compile(r"^lib/(device|kernels)/(cuda/|cuda_|.*\.cu)")


def fault_of(path, module, bracket, target):
    if bracket == "<":
        if target.startswith("strata/"):
            return None
        if ACCELERATOR.search(target) and not MAY_SEE_CUDA.match(path):
            return "an accelerator header"
        return None
    folder = target.split("/")[0]
    if "/" not in target:
        return None
    if folder == module or folder in BELOW[module]:
        return None
    return f"{module} may not see {folder}" if folder in BELOW else None


def includes(path):
    return re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)', path.read_text(), re.M)


def main():
    root = pathlib.Path(sys.argv[1])
    faults = files = 0
    for path in sorted(root.glob("lib/*/**/*")):
        if path.suffix not in (".c", ".h", ".cu", ".cuh", ".inc"):
            continue
        files += 1
        relative = path.relative_to(root).as_posix()
        for bracket, target in includes(path):
            fault = fault_of(relative, relative.split("/")[1], bracket, target)
            if fault:
                print(f"{relative}: {target}: {fault}")
                faults += 1
    for path in sorted(root.glob("examples/**/*.[ch]")):
        files += 1
        for bracket, target in includes(path):
            if bracket == '"' and not (path.parent / target).exists():
                print(f"{path.relative_to(root)}: {target}: examples see the public API alone")
                faults += 1
    print(f"{files} files, {faults} faults")
    return 1 if faults or not files else 0


if __name__ == "__main__":
    sys.exit(main())
