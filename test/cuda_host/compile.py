#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles a CUDA source as C++ for the host: compile.py SOURCE OBJECT DEPFILE COMPILER... -- FLAG...

What C++ has no words for is rewritten in private copies of the source and of the headers beside
it; everything else is left to the headers in shim/:

    kernel<<<grid, block, bytes, stream>>>(...)   a call of cuda_host::launcher
    __shared__ T name[N];                         a reference into the block's shared memory
    asm("instruction operands" ...)               a call of cuda_host::ptx::instruction(operands)

Lines keep their numbers, so that messages name the file and line of the source.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
# Folders whose files are rewritten, and the path that they are included under.
FOLDERS = {"lib/kernels/cuda": "kernels/cuda", "test/gpu": "."}
CLOSING = {"(": ")", "[": "]", "{": "}"}


def blank_comments(text):
    """Comments become spaces; strings and line breaks stay."""
    pattern = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/'

    def keep(match):
        found = match.group(0)
        return re.sub(r"[^\n]", " ", found) if found.startswith("/") else found

    return re.sub(pattern, keep, text, flags=re.S)


def closing(text, at):
    """Index of the bracket that closes the one at `at`; strings are skipped."""
    depth = []
    while at < len(text):
        c = text[at]
        if c == '"':
            at += 1
            while text[at] != '"':
                at += 2 if text[at] == "\\" else 1
        elif c in CLOSING:
            depth.append(CLOSING[c])
        elif depth and c == depth[-1]:
            depth.pop()
            if not depth:
                return at
        at += 1
    raise ValueError("a bracket without an end")


def split(text, separator=","):
    """Parts of a list, at separators outside of brackets and strings."""
    parts, start, at = [], 0, 0
    while at < len(text):
        if text[at] == '"':
            at += 1
            while text[at] != '"':
                at += 2 if text[at] == "\\" else 1
        elif text[at] in CLOSING:
            at = closing(text, at)
        elif text[at] == separator:
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return parts + [text[start:]]


def replace(text, start, end, by):
    """`by` in place of text[start:end], with as many line breaks."""
    lines = text.count("\n", start, end) - by.count("\n")
    return text[:start] + by + "\n" * max(lines, 0) + text[end:]


def kernel_start(text, at):
    """Where the expression of the kernel before <<< begins."""
    at = len(text[:at].rstrip())
    if text[at - 1] == ")":
        depth = 0
        while True:
            at -= 1
            depth += (text[at] == ")") - (text[at] == "(")
            if depth == 0:
                break
    elif text[at - 1] == ">":
        at = text.rindex("<", 0, at)
    return re.search(r"[\w:]+\s*$", text[:at]).start()


def rewrite_launches(text):
    while "<<<" in text:
        at = text.index("<<<")
        end = text.index(">>>", at)
        start = kernel_start(text, at)
        by = "::cuda_host::launcher(%s, %s)" % (text[start:at].strip(), text[at + 3:end])
        text = replace(text, start, end + 3, by)
    return text


def shared_reference(kind, declarator):
    name, dims = re.match(r"\s*(\w+)\s*((?:\[.*\])?)\s*$", declarator, re.S).groups()
    whole = "::cuda_host::same<%s%s>" % (kind, dims)
    return "static char %s_slot_; %s &%s = ::cuda_host::shared<%s>(%s_slot_);" % (
        name, whole, name, whole, name)


def rewrite_shared(text):
    pattern = re.compile(r"(extern\s+)?\b__shared__\s+(?:__align__\(\d+\)\s+)?")
    while True:
        match = pattern.search(text)
        if not match:
            return text
        end = match.end()
        while text[end] != ";":
            end = closing(text, end) + 1 if text[end] in CLOSING else end + 1
        first, *others = split(text[match.end():end])
        kind, declarator = re.match(r"\s*(.*?)\s*(\w+\s*(?:\[.*\])?)\s*$", first, re.S).groups()
        if match.group(1):
            name = re.match(r"\w+", declarator).group(0)
            by = "%s *%s = static_cast<%s *>(::cuda_host::dynamic_shared());" % (kind, name, kind)
        else:
            by = " ".join(shared_reference(kind, d) for d in [declarator] + others)
        text = replace(text, match.start(), end + 1, by)


def host_call(body):
    """An asm statement's call: operands in the order in which the instruction has them."""
    parts = split(body, ":") + ["", "", ""]
    # :: is one token to a reader, two separators here.
    template = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', parts[0])).replace("\\n", " ")
    operands = []
    for part in parts[1:3]:
        for operand in split(part):
            if operand.strip():
                operands.append(re.match(r'\s*"[^"]*"\s*\((.*)\)\s*$', operand, re.S).group(1))
    words = template.strip().rstrip(";").split(None, 1)
    if not words: # hides a value from the compiler
        return "(void)0"
    name = re.sub(r"\W+", "_", words[0])
    used = re.findall(r"%\d+|\b\d+\b", words[1]) if len(words) > 1 else []
    values = [operands[int(u[1:])] if u[0] == "%" else u for u in used]
    return "::cuda_host::ptx::%s(%s)" % (name, ", ".join(values))


def rewrite_asm(text):
    pattern = re.compile(r"\basm\b(\s*volatile)?\s*\(")
    while True:
        match = pattern.search(text)
        if not match:
            return text
        end = closing(text, match.end() - 1)
        text = replace(text, match.start(), end + 1, host_call(text[match.end():end]))


def rewrite(path):
    with open(path, encoding="utf-8") as file:
        text = blank_comments(file.read())
    text = rewrite_launches(rewrite_shared(text))
    if not re.search(r"hopper|sm90", os.path.basename(path)):
        text = rewrite_asm(text)
    return '#line 1 "%s"\n%s' % (path, text)


def write_copies(folder):
    """Copies of all headers; answers copy -> source."""
    copies = {}
    for source, name in FOLDERS.items():
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        for file in os.listdir(os.path.join(ROOT, source)):
            if file.endswith((".h", ".cuh", ".cu")):
                copies[os.path.normpath(os.path.join(folder, name, file))] = os.path.join(
                    ROOT, source, file)
    for copy, source in copies.items():
        text = rewrite(source)
        with open(copy, "w", encoding="utf-8") as file:
            file.write(text)
    return copies


def main():
    source, target, depfile, *command = sys.argv[1:]
    folder = target + ".p"
    copies = write_copies(folder)
    source = os.path.realpath(source)
    own = {original: copy for copy, original in copies.items()}.get(source, source)
    shim = os.path.join(ROOT, "test/cuda_host/shim")
    cut = command.index("--")
    compiler, flags = command[:cut], command[cut + 1:]
    command = [*compiler, "-I", folder, "-I", shim, "-include", "cuda_runtime.h", *flags,
               "-MMD", "-MF", depfile, "-x", "c++", "-c", own, "-o", target]
    code = subprocess.run(command, check=False).returncode
    if code == 0:
        with open(depfile, encoding="utf-8") as file:
            words = file.read().replace("\\\n", " ").split()
        words = [words[0]] + [copies.get(os.path.normpath(w), w) for w in words[1:]]
        with open(depfile, "w", encoding="utf-8") as file:
            file.write(" ".join(words + [os.path.realpath(__file__)]) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
