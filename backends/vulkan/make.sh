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

# compile SOURCE OUT DEFINES...
compile() {
  local source=$1.comp out=$2.spv
  shift 2
  if [ -n "$check" ]; then
    $glslc --target-env=vulkan1.2 -O -Werror "$@" "$source" -o "$temporary"
    cmp "$temporary" "$out" || status=1
  else
    $glslc --target-env=vulkan1.2 -O -Werror "$@" "$source" -o "$out"
  fi
}

check=
[ "${1:-}" = --check ] && check=yes
temporary=$(mktemp)
trap 'rm -f "$temporary"' EXIT
compile attention attention -DNA=1
compile attention attention_wide -DNA=4
for name in attention_join elementwise mix norm rope softmax topk; do
  compile $name $name
done
for block in 0 1; do
  kind=$([ $block = 1 ] && echo block || echo plain)
  compile gather gather_$kind -DBLOCK=$block
  for shape in "1 2" "1 4" "4 2" "8 1"; do # rows of x, rows of w
    read -r nx r <<<"$shape"
    compile matvec matvec_${kind}_${nx}x$r -DBLOCK=$block -DNX=$nx -DR=${r}u
  done
  for shape in "32 2" "64 4" "128 8"; do # tile, and an invocation's part
    read -r tile part <<<"$shape"
    compile matmul matmul_${kind}_$tile -DBLOCK=$block -DBN=${tile}u -DBM=${tile}u -DTN=${part}u -DTM=${part}u
  done
done
exit $status
