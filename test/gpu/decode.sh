#!/bin/bash
# SPDX-License-Identifier: MIT
# Decoding on CUDA: decode.sh BUILD_FOLDER [PART...]. Needs python3 with numpy, and room for the
# packs in /dev/shm. The parts, all by default:
#
#   bundled   the bundled model against the prompt's path: KL at most 1e-4, the same top token in
#             99.5 % of positions; the same bits for 1, 4 and 16 rows a step
#   paths     forced paths and 8-bit KV pages: KL at most 1e-4, the same top token in 99 % (after a
#             prompt in int8, as decoding is not, 1e-3 and 98 %); random packs of several formats
#             and architectures: KL at most 0.05
#   bits      a random pack of 48 layers: the same bits with all experts on the device and in
#             budgets
#   speed     tokens a second after a prompt of 4096 tokens: all experts on the device, also with 4
#             rows a step; in 8 GiB with uniform and with skewed routing
#   loan      50 tokens after a prompt of 32768 tokens in 8 GiB that borrowed nothing from the
#             expert cache, and after one that did
#
#   PACKS     where packs are kept (/dev/shm/strata-packs); left there for the next part
#   STEPS     of decoding (128)
set -uo pipefail
cd "$(dirname "$0")/../.."
build=$1
strata=$build/examples/strata
shift
. test/gpu/packs.sh
steps=${STEPS:-128}
failed=0

make_check() {
    [ -x "$build/decode_check" ] ||
        gcc -O2 -Iinclude test/gpu/decode_check.c -o "$build/decode_check" -L"$build/lib" -lstrata \
            -Wl,-rpath,"$PWD/$build/lib" -lm
}

bundled() {
    make_check || { failed=1; return; }
    local model=examples/models/strata-chapters
    local ids=$model-heldout-ids.txt
    "$build/decode_check" $model.gguf cuda:0 0 $ids 100 1e-4 0.995 || failed=1
}

paths() {
    make_check || { failed=1; return; }
    local model=examples/models/strata-chapters format name
    local ids=$model-heldout-ids.txt
    "$build/decode_check" $model.gguf cuda:0 0 $ids 1000 1e-4 0.99 fp16 || failed=1
    "$build/decode_check" $model.gguf cuda:0 0 $ids 1000 1e-3 0.98 fused || failed=1
    "$build/decode_check" $model.gguf cuda:0 0 $ids 1000 1e-4 0.99 auto 1 || failed=1
    for format in Q4_0 Q8_0 Q2_K Q4_K Q6_K IQ1_M IQ2_XXS IQ3_S IQ4_XS MXFP4 Q2_0; do
        python3 test/tools/mkmoe.py "$packs/tiny.gguf" --geometry tiny --experts "$format" \
            --seed "$RANDOM" >/dev/null || { failed=1; continue; }
        "$build/decode_check" "$packs/tiny.gguf" cuda:0 0 200 50 0.05 0 | sed "s/^/$format /" ||
            failed=1
    done
    seq 1 70 >"$packs/tokens"
    for name in qwen2moe gpt-oss ernie4_5-moe glm4moe; do
        python3 test/tools/oracle/arch_oracle.py "$name" "$packs/tiny.gguf" "$packs/tokens" \
            "$packs/oracle" "$RANDOM" >/dev/null || { failed=1; continue; }
        "$build/decode_check" "$packs/tiny.gguf" cuda:0 0 "$packs/tokens" 20 0.05 0 |
            sed "s/^/$name /" || failed=1
    done
}

bits() {
    make_check && make_pack iq2_xs || { failed=1; return; }
    local budget hash=
    for budget in 0 $((6 << 30)) $((4 << 30)); do
        "$build/decode_check" "$packs/iq2_xs.gguf" cuda:0 $budget 96 32 1 0 >"$packs/check" ||
            failed=1
        sed "s/^/budget $budget: /" "$packs/check"
        [ -z "$hash" ] || [ "$hash" = "$(tail -1 "$packs/check")" ] ||
            { echo "budget $budget: other bits"; failed=1; }
        hash=$(tail -1 "$packs/check")
    done
}

bench() { # LABEL PACK OPTION...
    local label=$1 pack=$2
    shift 2
    "$strata" bench "$packs/$pack.gguf" --device cuda:0 --kv f16 --decode "$steps" --json "$@" \
        >"$packs/bench.json" || { failed=1; return; }
    python3 test/gpu/decode_report.py "$label" "$packs/bench.json" || failed=1
}

speed() {
    make_pack iq2_xs && make_pack skewed || { failed=1; return; }
    local options=(--context 8192 --prompts 4096 --repeat 3)
    bench "all on the device" iq2_xs "${options[@]}"
    bench "all on the device, 4 rows" iq2_xs "${options[@]}" --rows 4
    bench "8 GiB, uniform" iq2_xs "${options[@]}" --budget 8GiB
    bench "8 GiB, uniform, lent" iq2_xs "${options[@]}" --budget 8GiB --lend
    bench "8 GiB, skewed" skewed "${options[@]}" --budget 8GiB
    bench "8 GiB, skewed, lent" skewed "${options[@]}" --budget 8GiB --lend
}

loan() {
    make_pack iq2_xs || { failed=1; return; }
    local options=(--context 32896 --prompts 32768 --repeat 3 --budget 8GiB)
    steps=50 bench "8 GiB, nothing lent" iq2_xs "${options[@]}"
    steps=50 bench "8 GiB, lent" iq2_xs "${options[@]}" --lend
}

[ $# -gt 0 ] || set -- bundled paths bits speed loan
for part in "$@"; do
    "$part"
done
exit $failed
