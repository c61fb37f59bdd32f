#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Writes layout.c: the place and size of every field of every public structure and the value of every
constant, as the compiler has them now. Run through regenerate.sh, and only when an ABI change is
meant.

  make_layout.py INCLUDE CC OUTPUT
"""
import pathlib
import subprocess
import sys
import tempfile

import headers

HEAD = r"""/* SPDX-License-Identifier: MIT */
/*
 * What is frozen for ever on 64-bit platforms: SIZE(structure, bytes), FIELD(structure, field,
 * offset, bytes) and VALUE(constant, value). Written by make_layout.py; after a release a size may
 * only grow with appended fields, other lines never change, and lines are only added.
 */
#include <stddef.h>

#include <strata/strata.h>

/* clang-format off */
#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
#define FIELD(type, field, offset, bytes) \
    _Static_assert(offsetof(type, field) == (offset) && sizeof(((type *)0)->field) == (bytes), \
                   #type "." #field)
#define VALUE(name, value) _Static_assert((name) == (value), #name)

"""

TAIL = """/* clang-format on */

int main(void)
{
    return 0;
}
"""


def measure(include, cc, structures, constants):
    lines = ["#include <stddef.h>", "#include <stdio.h>", "#include <strata/strata.h>",
             "int main(void) {"]
    for name, fields in structures.items():
        lines.append(f'printf("SIZE({name}, %zu);\\n", sizeof({name}));')
        for f in fields:
            lines.append(f'printf("FIELD({name}, {f}, %zu, %zu);\\n", offsetof({name}, {f}), '
                         f"sizeof((({name} *)0)->{f}));")
    lines += [f'printf("VALUE({name}, %d);\\n", {name});' for name in constants]
    lines.append("return 0; }")
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "measure.c"
        source.write_text("\n".join(lines))
        program = pathlib.Path(folder) / "measure"
        subprocess.run([cc, "-I", include, "-o", program, source], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def main():
    include, cc, output = sys.argv[1:4]
    folder = pathlib.Path(include) / "strata"
    text = measure(include, cc, headers.structures(folder), headers.constants(folder))
    pathlib.Path(output).write_text(HEAD + text + TAIL)


if __name__ == "__main__":
    main()
