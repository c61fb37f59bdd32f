#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
The static library's symbols: globals start with strata_, nothing ends or prints from the process or
reads its environment, and no data is writable but what belongs to a thread.
"""
import re
import subprocess
import sys

FORBIDDEN = re.compile(
    r"^(_*(abort|exit|_Exit|quick_exit|printf|vprintf|puts|putchar|fputs|fputc|putc|fprintf"
    r"|vfprintf|dprintf|perror|secure_getenv|getenv|setenv|putenv|unsetenv|setlocale|signal|sigaction"
    r"|system|atexit)(_chk)?|stdout|stderr)$")
# Written by compilers beside the sources: sanitizers, coverage, the launch code of nvcc.
GENERATED = re.compile(r"(__asan|__odr_asan|__tsan|__ubsan|__sancov|__gcov|__llvm|__sanitizer"
                       r"|__cuda|fatbin|_cuda|__nv_|__device_stub__|_GLOBAL__N_|DW\.ref|\.L)")
# Set once under pthread_once and constant from then on.
ONCE = re.compile(r"^strata__\w+_once\w*$|^\w+_once$")


def objdump(archive):
    output = subprocess.run(["objdump", "-t", archive], check=True, capture_output=True,
                            text=True).stdout
    member = "?"
    for line in output.splitlines():
        if line.endswith("file format elf64-x86-64") or ": " in line and "file format" in line:
            member = line.split(":")[0]
            continue
        m = re.match(r"^[0-9a-f]{16} (.{7}) (\S+)\s+[0-9a-f]{16} (?:\.hidden |\.protected )?(.+)$",
                     line)
        if m:
            yield member, m.group(1), m.group(2), m.group(3)


def fault_of(flags, section, name, from_nvcc):
    if section == "*UND*":
        launch_code = from_nvcc and name == "atexit"
        return f"uses {name}" if FORBIDDEN.match(name) and not launch_code else None
    if flags[0] in "gu!" and not name.startswith("strata_") and not GENERATED.search(name):
        return f"global without the prefix: {name}"
    writable = re.match(r"\.(data|bss)(\.(?!rel\.ro)|$)", section) or section == "*COM*"
    if writable and flags[6] == "O" and not GENERATED.search(name) and not ONCE.match(name):
        return f"writable data: {name} in {section}"
    return None


def main():
    faults = count = 0
    symbols = list(objdump(sys.argv[1]))
    from_nvcc = {member for member, _, _, name in symbols if name == "__cudaRegisterFatBinary"}
    for member, flags, section, name in symbols:
        count += 1
        fault = fault_of(flags, section, name, member in from_nvcc)
        if fault:
            print(f"{member}: {fault}")
            faults += 1
    print(f"{count} symbols, {faults} faults")
    return 1 if faults or not count else 0


if __name__ == "__main__":
    sys.exit(main())
