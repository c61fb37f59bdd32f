#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sums up Meson's test logs: the last line of a CI run."""
import collections
import json
import sys

counts = collections.Counter()
for path in sys.argv[1:]:
    with open(path) as log:
        counts.update(json.loads(line)["result"] for line in log)
passed = counts.pop("OK", 0) + counts.pop("EXPECTEDFAIL", 0)
skipped = counts.pop("SKIP", 0)
print(f"{passed} passed, {sum(counts.values())} failed, {skipped} skipped")
sys.exit(1 if counts or not passed else 0)
