# SPDX-License-Identifier: MIT
# Sourced by the other scripts: where things are, and how a missing Debian package is installed.
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${STRATA_BUILD:-$repository/build}

# Debian packages that are missing are installed, as root or through sudo.
need_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
            missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    echo "installing: ${missing[*]}"
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get update -q
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -q -y --no-install-recommends \
        "${missing[@]}"
}

# Sets up or changes a build directory, then builds it.
#   build_in DIRECTORY [MESON OPTION...]
build_in() {
    local directory=$1
    shift
    if [ -f "$directory/build.ninja" ]; then
        [ $# -eq 0 ] || meson configure "$directory" "$@"
    else
        choose_cuda "$@"
        meson setup "$directory" "$repository" "${cuda_options[@]}" "$@"
    fi
    ninja -C "$directory"
}

# Kernels are built for the GPU that is here, or, where there is none of 8.0 or later, not at all:
# for all cards they take many minutes.
# Sets cuda_options for meson, unless the caller's options say something of CUDA.
choose_cuda() {
    local capability
    cuda_options=()
    [[ "$*" != *-Dcuda=* ]] || return 0
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 |
        tr -d '. ') || capability=
    if [[ ! $capability =~ ^[0-9]+$ ]] || [ "$capability" -lt 80 ]; then
        cuda_options=(-Dcuda=disabled)
    else
        # The instructions of Hopper that kernels use are of this card alone.
        [ "$capability" != 90 ] || capability=90a
        # A card that the compiler does not know takes the code for all cards.
        ! "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)" --list-gpu-code 2>/dev/null |
            grep -qx "sm_${capability%a}" || cuda_options=(-Dgpu_archs="$capability")
    fi
}

build_packages=(gcc libc6-dev libpcre2-dev meson ninja-build pkg-config python3)
