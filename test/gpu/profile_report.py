#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Shares of the kernels of a prompt, from what ncu wrote: profile_report.py LABEL CSV...

The CSV is that of `ncu --csv --page raw` with gpu__time_duration.sum and dram__bytes.sum. Products
are told apart by the format that was decoded before them.
"""
import csv
import re
import sys

UNITS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3, "s": 1e6,
         "second": 1e6, "byte": 1e-9, "Kbyte": 1e-6, "Mbyte": 1e-3, "Gbyte": 1}


def read_rows(path):
    """Name, microseconds and gigabytes of each launch."""
    with open(path, newline="") as file:
        lines = [line for line in file if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    time, data = "gpu__time_duration.sum", "dram__bytes.sum"
    units, rows = rows[0], rows[1:]
    for row in rows:
        yield (row["Kernel Name"], float(row[time].replace(",", "")) * UNITS[units[time]],
               float(row[data].replace(",", "")) * UNITS[units[data]])


def short_name(name):
    name = re.sub(r"<unnamed>::|\(anonymous namespace\)::|^void ", "", name)
    return re.sub(r"\(int\)|\(bool\)", "", name.split("(")[0] if "<" not in name else
                  name[:name.rindex(">") + 1])


def labelled(rows):
    decoded, before = "", ""
    for name, us, gigabytes in rows:
        label = short_name(name)
        if "decode" in label:
            decoded = re.sub(r"\D+", "", label)
        if label.startswith("product"):
            label += f" after decoding type {decoded}"
            if before == label:
                label += ", again"
        before = label
        yield label, us, gigabytes


def main():
    label, totals = sys.argv[1], {}
    for path in sys.argv[2:]:
        for name, us, gigabytes in labelled(read_rows(path)):
            total = totals.setdefault(name, [0, 0.0, 0.0])
            total[0] += 1
            total[1] += us
            total[2] += gigabytes
    whole = sum(total[1] for total in totals.values())
    print(f"{label}: {whole / 1e3:.2f} ms in kernels")
    for name, (count, us, gigabytes) in sorted(totals.items(), key=lambda item: -item[1][1]):
        print(f"  {100 * us / whole:5.1f} %  {us / 1e3:8.3f} ms  {count:5} x {us / count:9.1f} us  "
              f"{gigabytes / us * 1e6:6.0f} GB/s  {name}")


if __name__ == "__main__":
    main()
