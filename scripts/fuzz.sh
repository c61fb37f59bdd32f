#!/bin/bash
# SPDX-License-Identifier: MIT
# fuzz.sh [SECONDS [SEED]]: fuzzes every target for a number of seconds (60), under address and
# undefined-behaviour sanitizers. With a seed runs start alike.
set -euo pipefail
. "$(dirname "$0")/common.sh"

seconds=${1:-60}
seed=${2:-0}
directory=$repository/build-fuzz
uncounted=$repository/test/fuzz/uncounted.txt
export CC=clang
[ -f "$directory/build.ninja" ] ||
    meson setup "$directory" "$repository" -Dfuzz=true -Dcuda=disabled -Dblas=disabled \
        -Dtools=false -Ddefault_library=static -Db_sanitize=address,undefined -Db_lundef=false \
        -Dc_args="-fsanitize=fuzzer-no-link -fsanitize-coverage-ignorelist=$uncounted"
ninja -C "$directory" fuzz-engines
for program in "$directory"/test/fuzz/fuzz-*-engine; do
    name=$(basename "$program")
    name=${name#fuzz-}
    name=${name%-engine}
    found=$directory/found-$name
    corpus=$repository/test/fuzz/corpus/$name
    # Sessions run on packs.
    [ -d "$corpus" ] || corpus=$repository/test/fuzz/corpus/pack
    [ "$seed" = 0 ] || rm -rf "$found"
    mkdir -p "$found"
    UBSAN_OPTIONS=halt_on_error=1 "$program" -max_total_time="$seconds" -seed="$seed" \
        -timeout=60 -max_len=65536 -rss_limit_mb=2048 -artifact_prefix="$found/" \
        -print_final_stats=1 -verbosity=0 "$found" "$corpus"
done
