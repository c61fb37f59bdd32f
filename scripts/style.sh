#!/bin/bash
# SPDX-License-Identifier: MIT
# Formatting and spelling of every tracked file.
set -euo pipefail
. "$(dirname "$0")/common.sh"
cd "$repository"
faults=0

fail() {
    echo "$1:"
    sed 's/^/    /' <<<"$2"
    faults=$((faults + 1))
}

# Text that people write; tables and data made by scripts are left out.
mapfile -t text < <(git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.py' '*.sh' '*.md' '*.build' '*.map' \
    meson_options.txt .ci/run)
mapfile -t code < <(git ls-files '*.c' '*.h' '*.cu' '*.cuh')

bad=$(grep -nP '\t' "${text[@]}" || true)
[ -z "$bad" ] || fail "tabs" "$bad"
bad=$(grep -nP '\s+$' "${text[@]}" || true)
[ -z "$bad" ] || fail "blanks at the end of a line" "$bad"
bad=$(LC_ALL=C grep -nP '[^\x00-\x7f]' "${text[@]}" || true)
[ -z "$bad" ] || fail "characters that are not ASCII" "$bad"
# Tables that are laid out by hand may be wider.
bad=$(printf '%s\n' "${text[@]}" | grep -v '\.md$\|\.py$' | xargs awk '
    FNR == 1 { table = 0 }
    /clang-format off/ { table = 1 }
    /clang-format on/ { table = 0 }
    length > 100 && !table { print FILENAME ":" FNR ": " $0 }')
[ -z "$bad" ] || fail "lines over 100 columns" "$bad"
bad=$(grep -nP '^.{121,}$' $(printf '%s\n' "${text[@]}" | grep '\.py$') || true)
[ -z "$bad" ] || fail "lines of Python over 120 columns" "$bad"
bad=$(for file in "${text[@]}"; do
    [ ! -s "$file" ] || [ -z "$(tail -c 1 "$file")" ] || echo "$file"
done)
[ -z "$bad" ] || fail "no newline at the end" "$bad"
bad=$(grep -L 'SPDX-License-Identifier: MIT' "${code[@]}" || true)
[ -z "$bad" ] || fail "no licence line" "$bad"
bad=$(wc -l "${code[@]}" | awk '$2 != "total" && $1 > 800 { print $2 ": " $1 " lines" }')
[ -z "$bad" ] || fail "files over 800 lines" "$bad"

clang-format --dry-run -Werror "${code[@]}" || fail "clang-format" "see above: clang-format -i FILE"
codespell "${text[@]}" || fail "codespell" "see above"

echo "${#text[@]} files, $faults kinds of fault"
[ $faults -eq 0 ]
