#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
layout.c must have a line for every public structure, field and constant; the compiler checks the
numbers.
"""
import re
import sys

import headers


def main():
    include, layout = sys.argv[1:3]
    text = open(layout).read()
    sizes = set(re.findall(r"^SIZE\((\w+), \d+\);$", text, re.M))
    fields = set(re.findall(r"^FIELD\((\w+), (\w+), \d+, \d+\);$", text, re.M))
    wanted = headers.structures(include)
    missing = [name for name in wanted if name not in sizes]
    missing += [f"{name}.{f}" for name in wanted for f in wanted[name] if (name, f) not in fields]
    values = set(re.findall(r"^VALUE\((\w+), -?\d+\);$", text, re.M))
    missing += [name for name in headers.constants(include) if name not in values]
    stale = [name for name in sizes if name not in wanted]
    for name in missing:
        print(f"not in layout.c: {name}")
    for name in stale:
        print(f"in layout.c, not in a header: {name}")
    for name, bytes_ in re.findall(r"^SIZE\((\w+), (\d+)\);$", text, re.M):
        if int(bytes_) % 8 and name in wanted and wanted[name][0] == "struct_size":
            print(f"no multiple of 8 bytes: {name}")
            missing.append(name)
    print(f"{len(wanted)} structures, {len(fields)} fields, {len(values)} constants")
    return 1 if missing or stale or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
