#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds copies of the sources with one fault each and shows that the session tests catch it.

    run.py [--only TEXT] [--keep DIRECTORY]

Prints a line a mutant; exit 0 when all are caught, 1 when one survives, 77 without a build tool.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

from mutants import MUTANTS

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ["kv", "sequences", "ring", "loan", "decode", "budget", "stream_faults", "streaming",
         "stream_failures"]
FOLDERS = ["include", "lib", "test"]
FILES = ["meson.build", "meson_options.txt"]
TEST_SECONDS = 180


def copy_sources(target):
    for name in FOLDERS:
        shutil.copytree(ROOT / name, target / name,
                        ignore=shutil.ignore_patterns("__pycache__", "data"))
    for name in FILES:
        shutil.copy(ROOT / name, target / name)
    # The session tests alone: the other suites need what is not copied.
    (target / "test" / "meson.build").write_text(
        "cmocka_dep = dependency('cmocka')\n"
        "test_inc = include_directories('.')\n"
        "tiny_pack_lib = static_library('test-tiny-pack', 'support/tiny_pack.c',\n"
        "  include_directories: test_inc, dependencies: m_dep)\n"
        "tiny_pack_dep = declare_dependency(link_with: tiny_pack_lib,\n"
        "  include_directories: test_inc)\n"
        "subdir('unit/session')\n")


def build(directory):
    targets = [f"test/unit/session/test-session-{name}" for name in TESTS]
    return subprocess.run(["ninja", "-C", str(directory), *targets], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)


def failing_test(directory):
    """The first test that fails or does not end, or None."""
    for name in TESTS:
        program = directory / "test" / "unit" / "session" / f"test-session-{name}"
        try:
            done = subprocess.run([str(program)], cwd=directory, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, timeout=TEST_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return f"{name} (no end)"
        if done.returncode != 0:
            return name
    return None


def apply(sources, mutant):
    """Makes the replacements; returns the original texts by path."""
    originals = {}
    for at in range(0, len(mutant), 3):
        path, old, new = sources / mutant[at], mutant[at + 1], mutant[at + 2]
        text = path.read_text()
        originals.setdefault(path, text)
        if text.count(old) != 1:
            raise SystemExit(f"{mutant[at]}: {text.count(old)} places have:\n{old}")
        path.write_text(text.replace(old, new))
    return originals


def run_all(sources, only):
    directory = sources / "build"
    survivors = 0
    for name, mutant in MUTANTS.items():
        if only and only not in name:
            continue
        originals = apply(sources, mutant)
        built = build(directory)
        if built.returncode != 0:
            print(built.stdout)
            raise SystemExit(f"{name}: does not build")
        caught = failing_test(directory)
        print(f"{'caught by ' + caught if caught else 'SURVIVES':32} {name}", flush=True)
        survivors += caught is None
        for path, text in originals.items():
            path.write_text(text)
    return survivors


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="mutants whose name has this text")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the copy, which stays")
    options = parser.parse_args()
    if not shutil.which("meson") or not shutil.which("ninja"):
        return 77
    with tempfile.TemporaryDirectory() as folder:
        sources = options.keep or pathlib.Path(folder) / "sources"
        sources.mkdir(parents=True, exist_ok=True)
        copy_sources(sources)
        subprocess.run(["meson", "setup", str(sources / "build"), str(sources), "-Dcuda=disabled",
                        "-Dblas=disabled", "-Dtools=false", "-Ddefault_library=static"],
                       stdout=subprocess.DEVNULL, check=True)
        built = build(sources / "build")
        if built.returncode != 0:
            print(built.stdout)
            return 1
        if failing_test(sources / "build"):
            print("the tests fail without a mutant")
            return 1
        survivors = run_all(sources, options.only)
    print(f"{survivors} survive")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
