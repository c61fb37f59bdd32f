#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs what the tests need, builds, and runs every test that needs no accelerator,
# but for the mutants, which take minutes: meson test -C build --suite mutants.
set -euo pipefail
. "$(dirname "$0")/common.sh"

need_packages "${build_packages[@]}" libcmocka-dev g++ abigail-tools binutils python3-venv

# The Python tests use numpy where it is there.
venv=$repository/.venv
if [ ! -x "$venv/bin/python3" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check numpy
fi
export PATH=$venv/bin:$PATH

build_in "$build" -Dtests=true
meson test -C "$build" --no-rebuild --print-errorlogs --no-suite gpu --no-suite mutants \
    "$@"
