#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds and runs the GPU suite from the tree, on a machine with a GPU and the CUDA toolkit.
#
#   test/gpu/run.sh STAGE...      build device kernels attention int8 launches layers session
#                                 streaming decode state sanitizer racecheck bench profile peer
#                                 packs
#
# Needs nvcc, gcc, meson and ninja, the stages of whole packs also python3 with numpy; installs
# nothing. Each stage takes less than eight minutes and ends with its exit code: 0 right, 77 nothing
# to run on.
#
#   GPU_BUILD   build folder (build-gpu)
#   GPU_ARCH    architecture to build for (90a)
#   NVCC        the compiler (nvcc from the path, or /usr/local/cuda/bin/nvcc)
#   PARTS       of the streaming or decode stage (all), or the packs to make (iq2_xs skewed)
#   GGML        of the peer stage: a folder with include/ and lib/ of a ggml built for the card
#   SEED        of the random inputs (from the clock)
set -eu
cd "$(dirname "$0")/../.."
build=${GPU_BUILD:-build-gpu}
arch=${GPU_ARCH:-90a}
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
cuda=$(dirname "$(dirname "$nvcc")")
seed=${SEED:+seed=$SEED}
jobs=$(nproc)

stage_build() {
    [ -f "$build/build.ninja" ] ||
        meson setup "$build" --buildtype release -Dcuda=enabled -Dgpu_archs="$arch" -Dtests=false \
            -Dblas=disabled -Ddefault_library=shared -Dcuda-home="$cuda"
    ninja -C "$build" -j "$jobs"
    local hopper=
    [ "$arch" = 90a ] && hopper=-DSTRATA__HAVE_SM90A
    mkdir -p "$build/gpu"
    printf '%s\n' test/gpu/*.cu | xargs -P "$jobs" -I{} sh -c '
        object='"$build"'/gpu/$(basename {} .cu).o
        [ -n "$(find {} lib/kernels/cuda test/gpu -newer "$object" 2>&1 | head -1)" ] || exit 0
        '"$nvcc"' -std=c++17 -O2 -lineinfo -Iinclude -Ilib -Itest/gpu '"$hopper"' \
            -gencode arch=compute_'"$arch"',code=sm_'"$arch"' -c {} -o "$object"'
    local archives
    archives=$(find "$build/lib" -name 'libstrata-kernels-*.a')
    for program in check_kernels check_attention check_int8; do
        local objects=$build/gpu/$program.o
        [ $program = check_int8 ] && objects="$objects $build/gpu/check_int8_out.o \
            $build/gpu/check_support.o"
        [ $program = check_kernels ] && objects=$(ls "$build"/gpu/*.o |
            grep -v -e check_attention -e check_int8 -e device_kernels -e bench_link)
        # shellcheck disable=SC2086
        g++ -o "$build/$program" $objects -Wl,--start-group $archives \
            "$build/lib/device/libstrata-device.a" "$build/lib/base/libstrata-base.a" \
            -Wl,--end-group -L"$cuda/lib64" -lcudart_static -lpthread -ldl -lrt -lm
    done
    g++ -o "$build/bench_link" "$build/gpu/bench_link.o" -L"$cuda/lib64" -lcudart_static \
        -lpthread -ldl -lrt -lm
    build_c_programs
}

# On the library's own archives, or on the public interface alone.
build_c_programs() {
    local archives flags="-std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Iinclude -Ilib -Itest/gpu"
    archives=$(find "$build/lib" -name 'libstrata-*.a' | grep -v -e -api -e -text -e -delaying)
    for program in check_device check_layers check_session; do
        local link="-Wl,--start-group $archives -Wl,--end-group"
        [ $program = check_session ] && link="-L$build/lib -lstrata -Wl,-rpath,$PWD/$build/lib"
        # shellcheck disable=SC2086
        gcc $flags -I"$cuda/include" -o "$build/$program" test/gpu/$program.c \
            "$build/gpu/device_kernels.o" $link -L"$cuda/lib64" -lcudart_static -lstdc++ \
            -lpthread -ldl -lrt -lm
    done
}

stage_device() {
    "$build/check_device"
    "$build/check_session" examples/models/strata-chapters.gguf
}

stage_kernels() {
    "$build/check_kernels" check $seed
}

stage_attention() {
    "$build/check_attention" check
}

stage_int8() {
    "$build/check_int8" check $seed
}

# Kernels that start ahead against ones that do not: both right, the same text, and their times.
stage_launches() {
    local level
    "$build/check_kernels" check small plain $seed
    "$build/check_attention" check small plain
    for level in best plain; do
        "$build/examples/strata" generate examples/models/strata-chapters.gguf --device cuda:0 \
            --kernel-level $level --text "And it came to pass" -n 1500 --temperature 0 \
            --context 2048 >"$build/generated.$level"
    done
    cmp "$build/generated.best" "$build/generated.plain"
    "$build/check_kernels" decode level=0 $seed
    "$build/check_kernels" decode plain level=0 $seed
}

stage_layers() {
    test/gpu/session.sh "$build" layers
}

stage_session() {
    test/gpu/session.sh "$build"
}

stage_streaming() {
    # shellcheck disable=SC2086
    test/gpu/streaming.sh "$build" ${PARTS:-}
}

stage_decode() {
    # shellcheck disable=SC2086
    test/gpu/decode.sh "$build" ${PARTS:-}
}

# Forks, cuts and saved sequences; also on the pack of the decode stage where it has been made.
stage_state() {
    local pack=${PACKS:-/dev/shm/strata-packs}/iq2_xs.gguf
    [ -x "$build/state_check" ] ||
        gcc -O2 -Iinclude test/gpu/state_check.c -o "$build/state_check" -L"$build/lib" -lstrata \
            -Wl,-rpath,"$PWD/$build/lib"
    "$build/state_check" examples/models/strata-chapters.gguf cuda:0 0 2000 64 "$build/saved"
    [ -f "$pack" ] || return 0
    "$build/state_check" "$pack" cuda:0 0 4096 32 "$build/saved" &&
        "$build/state_check" "$pack" cuda:0 $((8 << 30)) 4096 32 "$build/saved"
}

# Small cases of everything under a checker; a finding is a failure.
stage_sanitizer() {
    command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer"; return 77; }
    local memcheck="compute-sanitizer --tool memcheck --error-exitcode 1"
    $memcheck "$build/check_kernels" check small $seed
    $memcheck "$build/check_attention" check small
    $memcheck "$build/check_int8" check small $seed
}

stage_racecheck() {
    command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer"; return 77; }
    local racecheck="compute-sanitizer --tool racecheck --error-exitcode 1"
    $racecheck "$build/check_attention" check small
    $racecheck "$build/check_kernels" check small $seed
    $racecheck "$build/check_int8" check small $seed
}

stage_bench() {
    "$build/check_kernels" bench $seed
    "$build/check_kernels" decode $seed
    "$build/check_attention" time
    "$build/check_int8" bench $seed
    "$build/bench_link"
}

stage_profile() {
    test/gpu/profile.sh "$build"
}

# Packs of the later stages, side by side: a stage to run beside others that need no packs.
stage_packs() {
    # shellcheck disable=SC2086
    bash test/gpu/packs.sh ${PARTS:-iq2_xs skewed}
}

# The same products by ggml, for the ratio to the int8 kernels.
stage_peer() {
    [ -n "${GGML:-}" ] || { echo "no ggml"; return 77; }
    gcc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -I"$GGML/include" -o "$build/peer_experts" \
        test/gpu/peer_experts.c -L"$GGML/lib" -Wl,-rpath,"$GGML/lib" -lggml -lggml-base
    "$build/peer_experts" q4_0 q4_1 q5_0 q5_1 q8_0 q2_K q3_K q4_K q5_K q6_K mxfp4 \
        iq1_s iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s iq4_nl iq4_xs
}

[ $# -gt 0 ] || { sed -n '3,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2; }
for stage in "$@"; do
    echo "=== $stage"
    set +e
    (set -e && "stage_$stage")
    code=$?
    set -e
    [ $code -eq 0 ] || [ $code -eq 77 ] || exit $code
done
exit $code
