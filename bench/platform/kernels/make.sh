#!/usr/bin/env bash
# Compiles the microbenchmarks' shaders for Vulkan to spirv, packed as backends/vulkan's are. They are made by
# Debian 13's glslc 2025.2 (other versions give other bytes): GLSLC names it.
#
#   GLSLC=/path/to/glslc bench/platform/kernels/make.sh [--check]
#
# With --check nothing is written: the files must be what the compiler gives.
set -euo pipefail
cd "$(dirname "$0")"
glslc=${GLSLC:-glslc}

# jobs prints a line for each module: source, output, macros. The output is named
# FILE_FUNCTION with the macros that a Go file gives behind it, without "=".
jobs() {
  local f e l n
  for e in float:float double:vec2 uint2:uvec2; do
    echo fill.comp fill_fill_ELEM${e%:*}.spv -DFN_fill -DELEM=${e#*:}
  done
  for f in words same; do echo fill.comp fill_$f.spv -DFN_$f; done
  echo launch.comp launch_empty.spv
  for f in init read scale triad stencil3 stencil5 check hide; do echo stream.comp stream_$f.spv -DFN_$f; done
  for f in init read scale triad; do echo stream.comp l2stream_$f.spv -DFN_$f -DMODULO; done
  for f in hide constant; do echo wide.comp wide_$f.spv -DFN_$f; done
  for f in read copy write; do
    for l in 1 2 4 8; do echo wide.comp wide_${f}_LOADS$l.spv -DFN_$f -DLOADS=$l; done
  done
  echo latency.comp latency_chase.spv
  for l in 1 2 4 8; do
    echo cache.comp cache_sum_LOADS$l.spv -DLOADS=$l
    echo cache.comp cache_sum_LOADS${l}_ONCE1.spv -DLOADS=$l -DONCE=1
  done
  for f in sum check; do echo l2cache.comp l2cache_${f}_LOADS64.spv -DFN_$f -DLOADS=64; done
  echo strides.comp strides_loads.spv
  for f in scale check; do echo small.comp small_$f.spv -DFN_$f; done
  for n in 0 1 2 4 8 16 32 64 128 256 512 1024; do
    echo roofline.comp roofline_chains_STEPS${n}_ELEMfloat.spv -DSTEPS=$n
  done
  echo roofline.comp roofline_check_ELEMfloat.spv -DFN_check
  for f in add check; do echo vecadd.comp vecadd_$f.spv -DFN_$f; done
}

to=$(mktemp -d)
trap 'rm -r "$to"' EXIT
go build -o "$to/spvpack" ../../../tools/spvpack
export glslc to
jobs | xargs -P "$(nproc)" -I {} sh -c 'set -- {}; source=$1 out=$2; shift 2
  mkdir -p "$to/spv/${source%.comp}"
  $glslc --target-env=vulkan1.2 -O -Werror "$@" "$source" -o "$to/spv/${source%.comp}/$out"'
if [ "${1:-}" = --check ]; then
  "$to/spvpack" unpack spirv "$to/were"
  diff -r "$to/were" "$to/spv"
  exit
fi
"$to/spvpack" pack "$to/spv" "$to/packed"
rm -rf spirv
mkdir spirv
mv "$to/packed/modules" spirv
for f in "$to"/packed/*; do zstd -qf --ultra -22 "$f" -o "spirv/$(basename "$f").zst"; done
