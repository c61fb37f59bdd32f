#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Puts one fault at a time into a copy of lib/layout and shows that its tests catch it.

    run_layout.py [--only TEXT]

Prints a line a mutant; exit 0 when all are caught, 1 when one survives, 77 without a compiler.
"""
import argparse
import concurrent.futures
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile

from layout_mutants import MUTANTS

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ["cases", "tables", "input", "save", "predict", "simulate", "planner"]
TEST_SECONDS = 180
FLAGS = ["-std=c11", "-O1", "-D_POSIX_C_SOURCE=200809L", "-D_DEFAULT_SOURCE"]


class Copy:
    """A copy of the sources and its objects."""

    def __init__(self, folder, compiler):
        self.folder = folder
        self.compiler = compiler
        for name in ("include", "lib/base", "lib/layout", "test/unit/layout"):
            shutil.copytree(ROOT / name, folder / name)
        self.flags = FLAGS + [f"-I{folder / name}" for name in
                              ("include", "lib", "test/unit/layout")]
        self.objects = {}
        for path in sorted(folder.rglob("*.c")):
            self.compile(path)

    def compile(self, path):
        target = path.with_suffix(".o")
        done = subprocess.run([self.compiler, *self.flags, "-c", str(path), "-o", str(target)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if done.returncode != 0:
            raise SystemExit(f"{path.name} does not build:\n{done.stdout}")
        self.objects[path] = target

    def link(self, test):
        main = self.folder / "test/unit/layout" / f"test_layout_{test}.c"
        program = self.folder / test
        objects = [str(target) for path, target in self.objects.items()
                   if path == main or not path.name.startswith("test_layout_")]
        subprocess.run([self.compiler, *objects, "-lcmocka", "-pthread", "-lm",
                        "-o", str(program)], check=True)
        return program

    def failing_test(self):
        """The first test that fails, crashes or does not end, or None."""
        for test in TESTS:
            program = self.link(test)
            try:
                done = subprocess.run([str(program), "quick"], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, timeout=TEST_SECONDS,
                                      check=False)
            except subprocess.TimeoutExpired:
                return f"{test} (no end)"
            if done.returncode != 0:
                return test
        return None

    def failing_with(self, mutant):
        name, old, new = mutant
        path = self.folder / "lib/layout" / name
        text = path.read_text()
        if text.count(old) != 1:
            raise SystemExit(f"{name}: {text.count(old)} places have:\n{old}")
        path.write_text(text.replace(old, new))
        self.compile(path)
        caught = self.failing_test()
        path.write_text(text)
        self.compile(path)
        return caught


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="mutants whose name has this text")
    options = parser.parse_args()
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if not compiler:
        return 77
    chosen = {name: mutant for name, mutant in MUTANTS.items()
              if not options.only or options.only in name}
    jobs = min(os.cpu_count() or 1, 4)
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copies = queue.SimpleQueue()
        for job in range(jobs):
            copies.put(Copy(pathlib.Path(folder) / str(job), compiler))
        copy = copies.get()
        caught = copy.failing_test()
        copies.put(copy)
        if caught:
            print(f"{caught} fails without a mutant")
            return 1

        def run(mutant):
            own = copies.get()
            try:
                return own.failing_with(mutant)
            finally:
                copies.put(own)

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for name, caught in zip(chosen, pool.map(run, chosen.values())):
                print(f"{'caught by ' + caught if caught else 'SURVIVES':32} {name}", flush=True)
                survivors += caught is None
    print(f"{survivors} survive")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
