#!/bin/sh
# SPDX-License-Identifier: MIT
# Compares the built library with the committed baseline.
#   check_abi.sh BASELINE INCLUDE LIBRARY
# abidiff answers in bits: 1 tool error, 2 usage, 4 changed, 8 incompatible.
set -u
command -v abidiff >/dev/null || {
    echo "skipped: abidiff is not installed (Debian: abigail-tools)"
    exit 77
}
abidiff --no-added-syms --headers-dir2 "$2" "$1" "$3"
code=$?
[ $code -eq 0 ] && echo "same ABI as the baseline" && exit 0
[ $((code & 3)) -ne 0 ] && echo "abidiff failed ($code)"
[ $((code & 4)) -ne 0 ] && echo "the ABI changed ($code)"
[ $((code & 8)) -ne 0 ] && echo "the ABI is incompatible ($code)"
echo "If the change is meant: test/abi/regenerate.sh BUILD, and a line under ABI in CHANGELOG.md"
exit 1
