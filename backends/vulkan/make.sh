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

# The numbers of decode.glsl.
types="1=f32 2=f16 3=bf16 4=f64 5=f8e4m3 6=f8e5m2 7=f8e4m3fnuz 8=f8e5m2fnuz
  10=q4_0 11=q4_1 12=q5_0 13=q5_1 14=q8_0 15=iq4_nl
  20=q2_K 21=q3_K 22=q4_K 23=q5_K 24=q6_K 25=iq4_xs 26=tq1_0 27=tq2_0"

# jobs prints a line for each module: source, output, macros.
jobs() {
  local name t number shape x w tile part one
  echo attention.comp attention.spv -DNA=1
  echo attention.comp attention_wide.spv -DNA=4
  for name in attention_join elementwise mix norm pick rope softmax topk; do echo $name.comp $name.spv; done
  for t in $types; do
    number=-DTYPE=${t%=*} name=${t#*=}
    echo gather.comp gather_$name.spv $number
    case $name in # the formats whose decoding shares much between rows take four
      q3_K | q6_K | f*| bf16) one=2 ;;
      *) one=4 ;;
    esac
    for shape in "1 $one" "4 2" "8 1"; do # rows of x, rows of w
      read -r x w <<<"$shape"
      echo matvec.comp matvec_${name}_$x.spv $number -DNX=$x -DR=$w
    done
    for shape in "32 2" "64 4" "128 8"; do # tile, and an invocation's part
      read -r tile part <<<"$shape"
      echo matmul.comp matmul_${name}_$tile.spv $number -DBN=$tile -DBM=$tile -DTN=$part -DTM=$part
    done
  done
}

to=.
if [ "${1:-}" = --check ]; then
  to=$(mktemp -d)
  trap 'rm -r "$to"' EXIT
fi
export glslc to
jobs | xargs -P "$(nproc)" -I {} sh -c 'set -- {}; source=$1 out=$2; shift 2
  $glslc --target-env=vulkan1.2 -O -Werror "$@" "$source" -o "$to/$out"'
if [ "$to" != . ]; then
  for f in *.spv "$to"/*.spv; do
    cmp "$to/$(basename "$f")" "$(basename "$f")" || status=1
  done
fi
exit $status
