#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Headers, version script and shared library must name the same functions."""
import re
import subprocess
import sys

import headers


def map_names(path):
    text = open(path).read()
    lines = [m.group(1) for m in re.finditer(r"^    (strata_\w+);$", text, re.M)]
    if lines != sorted(lines):
        print("the version script is not sorted")
        return lines, 1
    return lines, 0


def exported(nm, library):
    output = subprocess.run([nm, "-D", "--defined-only", library], check=True,
                            capture_output=True, text=True).stdout
    rows = [line.split() for line in output.splitlines()]
    return [row[2].split("@")[0] for row in rows if row[1] != "A"]


def report(what, names):
    for name in sorted(names):
        print(f"{what}: {name}")
    return len(names)


def main():
    include, script, library, nm = sys.argv[1:5]
    declared = set(headers.functions(include))
    scripted, faults = map_names(script)
    actual = set(exported(nm, library))
    faults += report("in a header, not in the version script", declared - set(scripted))
    faults += report("in the version script, not in a header", set(scripted) - declared)
    faults += report("in the version script, not exported", set(scripted) - actual)
    faults += report("exported, not in the version script", actual - set(scripted))
    print(f"{len(declared)} declared, {len(scripted)} in the script, {len(actual)} exported")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
