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
        meson setup "$directory" "$repository" "$@"
    fi
    ninja -C "$directory"
}

build_packages=(gcc libc6-dev libpcre2-dev meson ninja-build pkg-config python3)
