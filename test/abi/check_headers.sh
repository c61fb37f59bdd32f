#!/bin/sh
# SPDX-License-Identifier: MIT
# Compiles every public header alone, strictly, in one language standard with each compiler present.
#   check_headers.sh INCLUDE STANDARD
set -u
include=$1
standard=$2
case $standard in
c++*) language=c++ compilers="g++ clang++" ;;
*) language=c compilers="gcc clang" ;;
esac
flags="-pedantic-errors -Wall -Wextra -Wpadded -Wundef -Werror -fsyntax-only"
faults=0
compiled=0
for compiler in $compilers; do
    command -v "$compiler" >/dev/null || continue
    for header in "$include"/strata/*.h; do
        name=$(basename "$header")
        # Twice: the include guard must hold.
        printf '#include <strata/%s>\n#include <strata/%s>\n' "$name" "$name" |
            "$compiler" -x $language "-std=$standard" $flags -I "$include" - || {
            echo "$compiler -std=$standard: $name"
            faults=$((faults + 1))
        }
        compiled=$((compiled + 1))
    done
done
echo "$compiled compilations, $faults faults"
[ $faults -eq 0 ] && [ $compiled -gt 0 ]
