#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs the build to a temporary place and builds users of it from its strata.pc: C, C++, a
# static C program, Python.
#   check_consumers.sh BUILD SOURCE PACK
set -euo pipefail
build=$1
source=$2
pack=$3
here=$source/test/consumer
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

DESTDIR=$place meson install -C "$build" --no-rebuild >"$place/install.log" ||
    { cat "$place/install.log"; exit 1; }
pc=$(find "$place" -name strata.pc)
libdir=$(dirname "$(dirname "$pc")")
prefix=$(dirname "$(dirname "$(find "$place" -path '*/include/strata' -type d)")")
export PKG_CONFIG_PATH=$(dirname "$pc")

# The prefix in the file is where the library will live; here it still lies under DESTDIR.
ask() { pkg-config --define-variable=prefix="$prefix" "$@" strata; }

run() {
    echo "== $1"
    LD_LIBRARY_PATH=$libdir "${@:2}"
}

echo "version $(ask --modversion), cuda=$(ask --variable=cuda), blas=$(ask --variable=blas)"
${CC:-cc} -Wall -Wextra -Werror "$here/use.c" -o "$place/use-c" $(ask --cflags --libs)
run "C" "$place/use-c" "$pack"
${CXX:-c++} -Wall -Wextra -Werror -x c++ "$here/use.c" -o "$place/use-cxx" $(ask --cflags --libs)
run "C++" "$place/use-cxx" "$pack"

# The program that the README shows a part of.
${CC:-cc} -Wall -Wextra -Werror "$source/examples/generate.c" -o "$place/generate" \
    $(ask --cflags --libs)
run "generate" "$place/generate" "$pack"

mkdir "$place/static"
cp "$libdir/libstrata.a" "$place/static/"
flags=$(ask --static --libs)
${CC:-cc} "$here/use.c" -o "$place/use-static" $(ask --cflags) -L"$place/static" \
    ${flags/-lstrata/-l:libstrata.a}
if readelf -d "$place/use-static" | grep -q 'libstrata'; then
    echo "the static program needs the shared library"
    exit 1
fi
run "static" "$place/use-static" "$pack"

STRATA_LIBRARY=$libdir/libstrata.so.0 PYTHONPATH=$source/python \
    run "Python" python3 "$here/use.py" "$pack"
run "ctypes" python3 "$source/examples/ctypes_minimal.py" "$libdir/libstrata.so.0" "$pack"
run "tool" "$prefix/bin/strata" inspect "$pack" | head -3
echo "installed: $(cd "$prefix" && find . -type f -o -type l | sort | tr '\n' ' ')"
