#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One line a prompt length of `strata bench --json`: streaming_report.py LABEL FILE.

Exit 1 when the parts of the time do not add up to it within 2 %, or what was sent does not add up.
"""
import json
import sys


def report(label, prompt, first_logits_ns):
    stats, seconds = prompt["stats"], prompt["median_ns"] * 1e-9
    readings = stats["prompt_tokens"] / prompt["tokens"]
    parts = [stats[name] / stats["prompt_ns"]
             for name in ("kernel_ns", "blob_wait_ns", "host_gap_ns")]
    sent, vain = stats["blob_sent_bytes"], stats["blob_vain_bytes"]
    rate = stats["link_bytes"] / stats["link_ns"] if stats["link_ns"] else 0
    print(f"{label:24} {prompt['tokens_per_second']:9.0f} tokens/s  {seconds * 1e3:9.2f} ms  "
          f"chunks {prompt['chunks']:3}  kernels {parts[0]:6.1%} blobs {parts[1]:6.1%} "
          f"host {parts[2]:6.1%}  sent {sent / readings / 1e9:7.3f} GB "
          f"hit {stats['blob_hit_bytes'] / readings / 1e9:7.3f} "
          f"vain {vain / max(sent, 1):5.1%} left out "
          f"{stats['blob_dropped_bytes'] / readings / 1e9:7.3f}  link {rate:5.1f} GB/s  "
          f"locked {stats['lock_bytes'] / 1e9:6.2f} refused {stats['lock_refused_bytes'] / 1e9:5.2f}"
          f"  device {stats['device_bytes'] / 2**30:6.2f} GiB  first {first_logits_ns * 1e-9:6.2f} s",
          flush=True)
    return abs(sum(parts) - 1) <= 0.02


def main():
    label, path = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        answer = json.load(file)
    good = [report(label, prompt, answer["first_logits_ns"]) for prompt in answer["prompts"]]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
