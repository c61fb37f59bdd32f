#!/bin/bash
# SPDX-License-Identifier: MIT
# Streaming on CUDA: streaming.sh BUILD_FOLDER [PART...]. Needs python3 with numpy, and room for the
# packs in /dev/shm. The parts, the first five by default:
#
#   iq2_xs mixed q4_k   random packs of 48 layers, 128 experts: speed of prompts in a budget of
#                       8 GiB with the cache cold and warm, beside all experts on the device
#   bits                the same bits for several budgets, given chunks and path
#   cancel              50 prompts stopped at random moments
#   wide                a pack of 36 GiB in a budget of 12 GiB: 32,768 tokens, time to first logits
#
#   PACKS      where packs are kept (/dev/shm/strata-packs); left there for the next part
#   LENGTHS    of the prompts ("512 4096 8192 32768")
#   REPEAT     timed readings of each (3)
set -u
cd "$(dirname "$0")/../.."
build=$1
strata=$build/examples/strata
shift
. test/gpu/packs.sh
lengths=${LENGTHS:-512 4096 8192 32768}
repeat=${REPEAT:-3}
failed=0

bench() { # LABEL PACK BESIDE OPTION... (BESIDE: an answer for the report to compare with, or "")
    local label=$1 pack=$2 beside=$3 answer=$packs/bench.json
    shift 3
    [ "${label##* }" = resident ] && answer=$packs/resident.json
    "$strata" bench "$packs/$pack.gguf" --device cuda:0 --kv f16 --repeat "$repeat" --json "$@" \
        >"$answer" || { failed=1; return; }
    # shellcheck disable=SC2086
    python3 test/gpu/streaming_report.py "$label" "$answer" $beside || failed=1
}

speeds() { # NAME
    make_pack "$1" || { failed=1; return; }
    for tokens in $lengths; do
        local context=$((tokens > 32768 ? tokens : 32832))
        bench "$1 $tokens resident" "$1" "" --context $context --prompts "$tokens" \
            --experts resident
        for use in cold warm; do
            bench "$1 $tokens $use" "$1" "$packs/resident.json" --budget 8GiB --context $context \
                --prompts "$tokens" $([ $use = cold ] && echo --cold)
        done
    done
}

iq2_xs() { speeds iq2_xs; }
mixed() { speeds mixed; }
q4_k() { speeds q4_k; }

bits() {
    make_pack iq2_xs || { failed=1; return; }
    local options=(--device cuda:0 --random 6000 --chunk 2000 --context 6144 --path fp16 --top 0)
    "$strata" prefill "$packs/iq2_xs.gguf" "${options[@]}" --experts resident \
        --logits "$packs/resident.f32" >/dev/null || failed=1
    for budget in 3GiB 4GiB 8GiB; do
        for more in "" "--experts stream" "--host-budget 2GiB"; do
            # shellcheck disable=SC2086
            "$strata" prefill "$packs/iq2_xs.gguf" "${options[@]}" --budget $budget $more \
                --logits "$packs/streamed.f32" >/dev/null || { failed=1; continue; }
            cmp "$packs/resident.f32" "$packs/streamed.f32" &&
                echo "same bits: $budget $more" || failed=1
        done
    done
}

cancel() {
    make_pack iq2_xs || { failed=1; return; }
    gcc -O2 -Iinclude test/gpu/stream_cancel.c -o "$build/stream_cancel" \
        -L"$build/lib" -lstrata -Wl,-rpath,"$PWD/$build/lib" -lpthread || { failed=1; return; }
    "$build/stream_cancel" "$packs/iq2_xs.gguf" cuda:0 $((6 << 30)) 6000 50 "${SEED:-1}" || failed=1
}

wide() {
    make_pack wide || { failed=1; return; }
    local options=(--device cuda:0 --random 32768 --context 32832 --chunk 8192 --path fp16 --top 0)
    "$strata" prefill "$packs/wide.gguf" "${options[@]}" --experts resident \
        --logits "$packs/resident.f32" >/dev/null || failed=1
    "$strata" prefill "$packs/wide.gguf" "${options[@]}" --budget 12GiB \
        --logits "$packs/streamed.f32" --json >/dev/null || failed=1
    cmp "$packs/resident.f32" "$packs/streamed.f32" && echo "same bits: wide, 12GiB" || failed=1
    repeat=1 bench "wide 32768 first" wide "" --budget 12GiB --context 32832 --prompts 32768
    rm -f "$packs/wide.gguf"
}

[ $# -gt 0 ] || set -- iq2_xs mixed q4_k bits cancel
for part in "$@"; do
    "$part"
done
exit $failed
