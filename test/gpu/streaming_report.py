#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One line a prompt length of `strata bench --json`: streaming_report.py LABEL FILE [RESIDENT].

With the same prompts read with all experts on the device, also the rule of overlapping: a prompt
takes at most 1.10 times the longer of its copies and its kernels, and the first layer's copy.

Exit 1 when the parts of the time do not add up to it within 2 %, or when more than 5 % was sent in
vain.
"""
import json
import sys

RULE = 1.10
LAYERS = 48  # of the packs of streaming.sh


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def ratio(a, b):
    return a / b if b else 0


def overlap(prompt, readings, resident):
    """Text about copies alone, kernels alone, and what the rule leaves."""
    stats = prompt["stats"]
    copies = ratio(stats["blob_sent_bytes"] * ratio(stats["link_ns"], stats["link_bytes"]), readings)
    kernels = resident["median_ns"]
    allowed = RULE * max(copies, kernels) + copies / LAYERS
    return (f"  copies {copies * 1e-6:8.2f} ms  kernels {kernels * 1e-6:8.2f} ms  "
            f"rule {ratio(prompt['median_ns'], allowed):5.3f} of {allowed * 1e-6:8.2f} ms")


def report(label, prompt, first_logits_ns, resident):
    stats, seconds = prompt["stats"], prompt["median_ns"] * 1e-9
    readings = stats["prompt_tokens"] / prompt["tokens"]
    parts = [stats[name] / stats["prompt_ns"]
             for name in ("kernel_ns", "blob_wait_ns", "host_gap_ns")]
    sent, vain = stats["blob_sent_bytes"], stats["blob_vain_bytes"]
    rate = ratio(stats["link_bytes"], stats["link_ns"])
    line = (f"{label:24} {prompt['tokens_per_second']:9.0f} tokens/s  {seconds * 1e3:9.2f} ms "
            f"({prompt['least_ns'] * 1e-6:.2f} to {prompt['most_ns'] * 1e-6:.2f})  "
            f"chunks {prompt['chunks']:3}  kernels {parts[0]:6.1%} blobs {parts[1]:6.1%} "
            f"host {parts[2]:6.1%}  launches {stats['expert_launches'] / readings:7.0f}  "
            f"sent {sent / readings / 1e9:7.3f} GB hit {stats['blob_hit_bytes'] / readings / 1e9:7.3f} "
            f"vain {ratio(vain, sent):5.1%} filled {stats['blob_filled_bytes'] / readings / 1e9:6.3f} "
            f"left out {stats['blob_dropped_bytes'] / readings / 1e9:7.3f}  link {rate:5.1f} GB/s  "
            f"locked {stats['lock_bytes'] / 1e9:6.2f} refused {stats['lock_refused_bytes'] / 1e9:5.2f}"
            f"  device {stats['device_bytes'] / 2**30:6.2f} GiB  first {first_logits_ns * 1e-9:6.2f} s")
    if resident and sent:
        line += overlap(prompt, readings, resident)
    print(line, flush=True)
    return abs(sum(parts) - 1) <= 0.02 and ratio(vain, sent) <= 0.05


def main():
    label, answer = sys.argv[1], load(sys.argv[2])
    resident = load(sys.argv[3])["prompts"] if len(sys.argv) > 3 else [None] * len(answer["prompts"])
    good = [report(label, prompt, answer["first_logits_ns"], beside)
            for prompt, beside in zip(answer["prompts"], resident)]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
