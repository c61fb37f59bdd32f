#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One line for the decoding of `strata bench --decode --json`: decode_report.py LABEL FILE."""
import json
import sys


def main():
    label, path = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        answer = json.load(file)
    for prompt in answer["prompts"]:
        decode = prompt["decode"]
        stats, steps = decode["stats"], decode["steps"] * decode["rounds"]
        print(f"{label:28} after {prompt['tokens']:6}: {decode['tokens_per_second']:8.1f} tokens/s, "
              f"first {decode['first_tokens_per_second']:8.1f}; "
              f"{decode['rows']} rows, hit {decode['hit_rate']:6.1%}; a step: "
              f"in place {stats['decode_place_bytes'] / steps / 1e6:7.2f} MB, "
              f"fetched {stats['decode_fetch_bytes'] / steps / 1e6:7.2f}, "
              f"admitted {stats['decode_admit_bytes'] / steps / 1e6:7.2f}; "
              f"device {answer['device_bytes'] / 2**30:.2f} GiB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
