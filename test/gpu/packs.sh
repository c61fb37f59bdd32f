# SPDX-License-Identifier: MIT
# Random packs of the shapes that are measured, for the stages of whole packs; they are kept in
# $PACKS for the next stage. Sourced; or run as `bash test/gpu/packs.sh NAME...`, which makes
# several side by side.
packs=${PACKS:-/dev/shm/strata-packs}
mkdir -p "$packs"

# 34 layers IQ2_S, 11 IQ2_XXS, 3 IQ1_M, all with Q2_0 down.
wide_layers() {
    local i
    for i in $(seq 0 47); do
        case $i in
        8 | 13 | 37) echo IQ1_M/Q2_0 ;;
        1 | 5 | 10 | 15 | 19 | 23 | 27 | 31 | 35 | 40 | 44) echo IQ2_XXS/Q2_0 ;;
        *) echo IQ2_S/Q2_0 ;;
        esac
    done | paste -sd,
}

make_pack() { # NAME
    local options
    case $1 in
    iq2_xs) options="--geometry qwen3-30b-a3b --experts IQ2_XS" ;;
    skewed) options="--geometry qwen3-30b-a3b --experts IQ2_XS --skew 1" ;;
    mixed) options="--geometry qwen3-30b-a3b --experts IQ2_XXS,IQ2_S,IQ2_XXS,IQ2_S,IQ1_M" ;;
    q4_k) options="--geometry qwen3-30b-a3b --experts Q4_K" ;;
    wide) options="--geometry wide-512 --experts $(wide_layers)" ;;
    *) echo "packs.sh: no pack is called $1" >&2; return 2 ;;
    esac
    [ -f "$packs/$1.gguf" ] && return
    # shellcheck disable=SC2086
    python3 test/tools/mkmoe.py "$packs/$1.part" $options >/dev/null &&
        mv "$packs/$1.part" "$packs/$1.gguf" || { rm -f "$packs/$1.part"; return 1; }
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    cd "$(dirname "$0")/../.." || exit
    makers=()
    for name in "$@"; do
        make_pack "$name" &
        makers+=($!)
    done
    code=0
    for maker in "${makers[@]}"; do
        wait "$maker" || code=1
    done
    exit $code
fi
