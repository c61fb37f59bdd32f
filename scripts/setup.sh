#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs what is missing, builds, and does the main job on the bundled model: shows the pack,
# reads a prompt, and prints the likeliest next tokens.
set -euo pipefail
. "$(dirname "$0")/common.sh"

need_packages "${build_packages[@]}"
[ -f "$build/build.ninja" ] && build_in "$build" || build_in "$build" -Dtests=false

model=$repository/examples/models/strata-chapters
echo
"$build/examples/strata" inspect "$model.gguf"
echo
"$build/examples/strata" prefill "$model.gguf" --tokens-file "$model-prompt-ids.txt"
