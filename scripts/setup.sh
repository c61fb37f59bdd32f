#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs what is missing, builds, and does the main job on the bundled model: shows the pack, and
# goes on from a text.
set -euo pipefail
. "$(dirname "$0")/common.sh"

need_packages "${build_packages[@]}"
[ -f "$build/build.ninja" ] && build_in "$build" || build_in "$build" -Dtests=false

model=$repository/examples/models/strata-chapters.gguf
text="And it came to pass after"
echo
"$build/examples/strata" inspect "$model"
echo
"$build/examples/strata" generate "$model" --text "$text" -n 60 --echo
