#!/bin/bash
# SPDX-License-Identifier: MIT
# Where the time of resident prompts goes, kernel by kernel: profile.sh BUILD_FOLDER. Needs ncu and
# python3 with numpy; the kernels run one at a time, so that gaps and overlaps do not show.
#
#   PACKS    where packs are kept (/dev/shm/strata-packs)
#   FORMAT   of the experts (IQ2_XS)
#   LENGTHS  of the prompts ("4096 32768")
set -eu
cd "$(dirname "$0")/../.."
strata=$1/examples/strata
packs=${PACKS:-/dev/shm/strata-packs}
format=${FORMAT:-IQ2_XS}
pack=$packs/12l-$format.gguf
command -v ncu >/dev/null || { echo "no ncu"; exit 77; }
mkdir -p "$packs"
[ -f "$pack" ] || python3 test/tools/mkmoe.py "$pack" --geometry qwen3-30b-a3b-12l \
    --experts "$format" >/dev/null
for tokens in ${LENGTHS:-4096 32768}; do
    ncu --csv --page raw --metrics gpu__time_duration.sum,dram__bytes.sum --clock-control none \
        --cache-control none --log-file "$packs/profile.csv" \
        "$strata" prefill "$pack" --device cuda:0 --context 32832 \
        --random "$tokens" --experts resident --top 0 >/dev/null
    python3 test/gpu/profile_report.py "$format, 12 layers, $tokens tokens" "$packs/profile.csv"
done
