#!/bin/bash
# SPDX-License-Identifier: MIT
# Whole prompts on CUDA against the CPU device: session.sh BUILD_FOLDER [PART...]. Needs python3
# with numpy. The parts, all by default:
#
#   bundled_model   held-out text, at several chunks and both kernel levels: KL at most 1e-4, the
#                   same top token in 99.5 % of positions; two runs give the same bits
#   layers          each layer alone, given the reference's input and choice of experts, for packs
#                   of every block format and architecture: normalised error at most 1e-5; with
#                   activations of 1e6 and more, or 8-bit KV pages, 1e-4
#   int8_paths      fused, mmq and mixed vectors on the bundled model against the same on the CPU
#                   device, whose other precision elsewhere moves single codes: KL at most 1e-3, the
#                   same top token in 98 %; fused and mmq give the same bits
#   random_packs    one of every block format, 2,000 positions, for near ties in the routers make
#                   single positions differ: normalised mean squared error at most 1e-2
#   architectures   random models against their float64 forwards: the same
#
#   FORMATS    of the random packs (all)
set -u
cd "$(dirname "$0")/../.."
strata=$1/examples/strata
check_layers=$1/check_layers
shift
work=$(mktemp -d /dev/shm/strata-session.XXXXXX)
trap 'rm -rf "$work"' EXIT
failed=0

read_prompt() { # OUT PACK OPTION...
    local out=$1 pack=$2
    shift 2
    "$strata" prefill "$pack" --all-logits --logits "$out" --top 0 "$@" >"$work/log" 2>&1 ||
        { echo "FAILED: $pack $*"; tail -3 "$work/log"; failed=1; return 1; }
}

compare() {
    python3 test/gpu/compare_logits.py "$@" || failed=1
}

bundled_model() {
    local pack=examples/models/strata-chapters.gguf
    local ids=examples/models/strata-chapters-heldout-ids.txt
    local options=(--tokens-file "$ids" --kv f16)
    read_prompt "$work/cpu" "$pack" "${options[@]}" || return
    for level in best sm80; do
        for chunk in 1 7 512 2048; do
            read_prompt "$work/cuda" "$pack" "${options[@]}" --device cuda:0 --chunk $chunk \
                --kernel-level $level || continue
            compare "$work/cpu" "$work/cuda" --vocabulary 1536 --kl 1e-4 --top 0.995 \
                --name "bundled, $level, chunk $chunk"
        done
        read_prompt "$work/again" "$pack" "${options[@]}" --device cuda:0 --chunk 2048 \
            --kernel-level $level &&
            compare "$work/cuda" "$work/again" --vocabulary 1536 --bits \
                --name "bundled, $level, again"
    done
    read_prompt "$work/cpu" "$pack" --tokens-file "$ids" --kv q8_0 &&
        read_prompt "$work/cuda" "$pack" --tokens-file "$ids" --kv q8_0 --device cuda:0 &&
        compare "$work/cpu" "$work/cuda" --vocabulary 1536 --kl 1e-4 --top 0.99 \
            --name "bundled, q8_0 KV"
}

all_formats="F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ1_S IQ1_M IQ2_XXS
IQ2_XS IQ2_S IQ3_XXS IQ3_S IQ4_NL IQ4_XS MXFP4 Q2_0"
formats=()
for format in ${FORMATS:-$all_formats}; do
    formats+=("$format")
done

int8_paths() {
    local pack=examples/models/strata-chapters.gguf
    local ids=examples/models/strata-chapters-heldout-ids.txt
    local path options=(--tokens-file "$ids" --kv f16)
    for path in fused mmq fused,1:fp16 mmq,0:fused,2:fp16; do
        read_prompt "$work/cpu" "$pack" "${options[@]}" --path "$path" || continue
        read_prompt "$work/cuda" "$pack" "${options[@]}" --path "$path" --device cuda:0 || continue
        compare "$work/cpu" "$work/cuda" --vocabulary 1536 --kl 1e-3 --top 0.98 --name "$path"
        [ "$path" = fused ] && cp "$work/cuda" "$work/fused"
        [ "$path" = mmq ] &&
            compare "$work/fused" "$work/cuda" --vocabulary 1536 --bits --name "fused and mmq"
    done
}

make_random() { # FORMAT [GEOMETRY]
    python3 test/tools/mkmoe.py "$work/pack.gguf" --geometry "${2:-tiny}" --experts "$1" \
        --seed "$RANDOM" >/dev/null || { failed=1; return 1; }
}

layers_of() { # NAME OPTION...
    echo "layers of $1"
    shift
    "$check_layers" "$work/pack.gguf" seed=$RANDOM "$@" || failed=1
}

layers_formats() {
    local format
    for format in "${formats[@]}"; do
        make_random "$format" || continue
        layers_of "$format"
        layers_of "$format, activations of 1e6" large=1
    done
    layers_of "the last, q8_0 KV" kv=q8_0
    layers_of "the last, few rows" rows=30 chunk=7
    layers_of "the last, smallest budget" tight=1
    make_random Q8_0 odd || return
    layers_of "rows that are no whole blocks of 64 values, smallest budget" tight=1
}

layers_architectures() {
    local name
    for name in "${architectures[@]}"; do
        make_architecture "$name" || continue
        layers_of "$name" rows=70 chunk=40
    done
}

layers() {
    layers_formats
    layers_architectures
}

random_packs() {
    local format level
    for format in "${formats[@]}"; do
        make_random "$format" || continue
        read_prompt "$work/cpu" "$work/pack.gguf" --random 2000 || continue
        for level in best sm80; do
            read_prompt "$work/cuda" "$work/pack.gguf" --random 2000 --device cuda:0 \
                --kernel-level $level || continue
            compare "$work/cpu" "$work/cuda" --vocabulary 512 --nmse 1e-2 \
                --name "random, $format, $level"
        done
    done
}

architectures=(qwen3moe qwen2moe olmoe llama gpt-oss glm4moe minimax-m2 granitemoe hunyuan-moe
    ernie4_5-moe bailingmoe2)

make_architecture() { # NAME
    seq 1 70 >"$work/tokens"
    python3 test/tools/oracle/arch_oracle.py "$1" "$work/pack.gguf" "$work/tokens" \
        "$work/oracle" "$RANDOM" >/dev/null || { failed=1; return 1; }
}

architectures() {
    local name
    for name in "${architectures[@]}"; do
        make_architecture "$name" || continue
        read_prompt "$work/cuda" "$work/pack.gguf" --tokens-file "$work/tokens" --device cuda:0 ||
            continue
        compare "$work/oracle" "$work/cuda" --vocabulary 512 --nmse 1e-2 --name "$name"
    done
}

[ $# -gt 0 ] || set -- bundled_model layers int8_paths random_packs architectures
for part in "$@"; do
    "$part"
done
exit $failed
