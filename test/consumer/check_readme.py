# SPDX-License-Identifier: MIT
"""
The README keeps its word: its C is an excerpt of a program that is built and run here, its Python
runs, and its commands that need no accelerator succeed.

    check_readme.py SOURCE TOOL LIBRARY
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MOST_LINES = 10


def fail(text):
    sys.exit("README.md: " + text)


def blocks(text, language):
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)
    for block in found:
        if len(block.splitlines()) > MOST_LINES:
            fail(f"a block of {language} has more than {MOST_LINES} lines")
    if not found:
        fail(f"no block of {language}")
    return found


def check_c(text, source):
    """Each line of a block is in the program, in the same order."""
    program = [line.strip() for line in (source / "examples/generate.c").read_text().splitlines()]
    for block in blocks(text, "c"):
        at = 0
        for line in filter(None, map(str.strip, block.splitlines())):
            if line not in program[at:]:
                fail(f"not in examples/generate.c: {line}")
            at = program.index(line, at) + 1


def check_python(text, source, library, pack):
    environment = dict(os.environ, STRATA_LIBRARY=str(library), PYTHONPATH=str(source / "python"))
    for block in blocks(text, "python"):
        done = subprocess.run([sys.executable, "-c", block, pack], env=environment,
                              capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0 or not done.stdout.strip():
            fail(f"the Python block failed:\n{done.stderr}")
        print("Python:", done.stdout)


def check_commands(text, tool, pack, folder):
    commands = re.findall(r"^    build/examples/strata (.*)$", text, re.M)
    if not commands:
        fail("no commands")
    for command in commands:
        done = subprocess.run(["sh", "-c", f"{tool} {command}"], cwd=folder, capture_output=True,
                              text=True, env=dict(os.environ, PACK=pack), timeout=300, check=False)
        print(f"$ strata {command}\n{done.stdout}{done.stderr}")
        if done.returncode != 0 or not done.stdout.strip():
            fail(f"strata {command}: exit code {done.returncode}")


def main():
    source, tool, library = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
    text = (source / "README.md").read_text()
    pack = str(source / "examples/models/strata-chapters.gguf")
    check_c(text, source)
    check_python(text, source, library, pack)
    with tempfile.TemporaryDirectory() as folder:
        check_commands(text, tool, pack, folder)


if __name__ == "__main__":
    main()
