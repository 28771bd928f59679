#!/usr/bin/env bash
# Compiles the kernels. The .spv files in the repository are made by Debian 13's
# glslc 2025.2 (other versions give other bytes): GLSLC names it.
#
#   GLSLC=/path/to/glslc backends/vulkan/make.sh [--check]
#
# With --check nothing is written: the files must be what the compiler gives.
set -euo pipefail
cd "$(dirname "$0")"
glslc=${GLSLC:-glslc}
status=0
for source in *.comp; do
  out=${source%.comp}.spv
  [ "${1:-}" = --check ] && out=$(mktemp)
  $glslc --target-env=vulkan1.2 -O -Werror "$source" -o "$out"
  if [ "${1:-}" = --check ]; then
    cmp "$out" "${source%.comp}.spv" || status=1
    rm "$out"
  fi
done
exit $status
