#!/bin/sh
# SPDX-License-Identifier: MIT
# Rewrites layout.c and the baseline libstrata.abi from the headers and a build (gcc, with debug
# information). Only for a meant change of the ABI; it takes a line under ABI in CHANGELOG.md.
#   regenerate.sh BUILD
set -eu
build=$1
here=$(cd "$(dirname "$0")" && pwd)
include=$(cd "$here/../../include" && pwd)
python3 "$here/make_layout.py" "$include" "${CC:-cc}" "$here/layout.c"
abidw --headers-dir "$include" --no-corpus-path --no-comp-dir-path --no-show-locs \
    --no-elf-needed --exported-interfaces-only --drop-private-types \
    --out-file "$here/libstrata.abi" "$build/lib/libstrata.so.0"
