#!/usr/bin/env bash
# Compiles the kernels to spirv: those of one source are packed by tools/spvpack and compressed by zstd together, and
# spirv/modules names them. They are made by Debian 13's glslc 2025.2 (other versions give other bytes): GLSLC names it.
#
#   GLSLC=/path/to/glslc backends/vulkan/make.sh [--check | PATTERN]
#
# With --check nothing is written: unpacked, the files must be what the compiler gives. With a
# pattern only the modules whose names have it, as grep reads it, are compiled: "matvec_q4_0".
set -euo pipefail
cd "$(dirname "$0")"
glslc=${GLSLC:-glslc}

# The numbers of decode.glsl.
types="1=f32 2=f16 3=bf16 4=f64 5=f8e4m3 6=f8e5m2 7=f8e4m3fnuz 8=f8e5m2fnuz
  10=q4_0 11=q4_1 12=q5_0 13=q5_1 14=q8_0 15=iq4_nl 16=mxfp4
  20=q2_K 21=q3_K 22=q4_K 23=q5_K 24=q6_K 25=iq4_xs 26=tq1_0 27=tq2_0"

# jobs prints a line for each module: source, output, macros.
jobs() {
  local name n t number shape x w tile part one
  echo attention.comp attention.spv -DNA=1
  echo attention.comp attention_wide.spv -DNA=4
  echo attention.comp attention_more.spv -DNA=1 -DMORE
  echo attention.comp attention_more_wide.spv -DNA=4 -DMORE
  echo paged_attention.comp paged_attention.spv -DNA=1
  echo paged_attention.comp paged_attention_wide.spv -DNA=4
  echo paged_attention.comp paged_attention_more.spv -DNA=1 -DMORE
  echo paged_attention.comp paged_attention_more_wide.spv -DNA=4 -DMORE
  echo attention.comp attention_coded.spv -DNA=1 -DCODED # caches in eight bits
  echo attention.comp attention_coded_wide.spv -DNA=4 -DCODED
  echo paged_attention.comp paged_attention_coded.spv -DNA=1 -DCODED -DMORE # whatever else there is
  echo paged_attention.comp paged_attention_coded_wide.spv -DNA=4 -DCODED -DMORE
  for n in 1 2 4; do
    echo attention_few.comp attention_few_$n.spv -DNV=$n
    echo attention_few.comp attention_fresh_$n.spv -DNV=$n -DFRESH
  done
  echo attention_one.comp attention_one.spv -DNP=2
  for n in "64 16 32" "96 16 32" "128 16 32" "64 8 8"; do # elements of a head, matrices, subgroups
    read -r x t w <<<"$n"
    echo attention_matrix.comp attention_matrix_${x}_$t.spv -DELEMS=$x -DTS=$t -DSG=$w
    if [ $t = 16 ]; then echo attention_matrix.comp attention_ordered_$x.spv -DORDERED -DELEMS=$x -DTS=$t -DSG=$w; fi
  done
  # Heads of 192 elements whose values have 128, of which AMD's compiler spills registers, and smaller ones for software devices.
  echo attention_matrix.comp attention_ordered_192x128.spv -DORDERED -DELEMS=192 -DVELEMS=128 -DTS=16 -DSG=32
  echo attention_matrix.comp attention_matrix_96x64_8.spv -DELEMS=96 -DVELEMS=64 -DTS=8 -DSG=8
  for x in 64 96 128; do # of workgroups, for devices with VK_NV_cooperative_matrix2
    echo attention_flash.comp attention_flash_${x}_64.spv --target-env=vulkan1.3 -DELEMS=$x -DBR=64 -DBC=64 -DNT=256 -DWORKGROUP
  done
  echo attention_flash.comp attention_flash_64_8.spv --target-env=vulkan1.3 -DELEMS=64 -DBR=8 -DBC=16 -DNT=8 # of software devices
  for name in adjust attention_join draw elementwise experts filter form general integers join logprob mix norm norm_wide paged_push perhead pick pool recur rope rope_rows rowsum select short_conv slots softmax spread topk xielu; do echo $name.comp $name.spv; done
  for name in delta dplr ssm; do
    echo $name.comp $name.spv -DHELD
    echo $name.comp ${name}_long.spv
  done
  for t in $types; do
    number=-DTYPE=${t%=*} name=${t#*=}
    echo gather.comp gather_$name.spv $number
    echo embed.comp embed_$name.spv $number
    case $name in # the formats whose decoding shares much between rows take four
      q3_K | q6_K | f*| bf16) one=2 ;;
      *) one=4 ;;
    esac
    for shape in "1 $one" "4 2" "8 1"; do # rows of x, rows of w
      read -r x w <<<"$shape"
      echo matvec.comp matvec_${name}_$x.spv $number -DNX=$x -DR=$w
    done
    case $name in
      f16 | bf16)
        if [ $name = bf16 ]; then # of experts alone
          echo matrix.comp matrix_bf16_64.spv $number -DGROUPS -DBM=64 -DBN=64 -DWM=32 -DWN=32 -DSG=32 -DTS=16
          echo matrix.comp matrix_bf16_32.spv $number -DGROUPS -DSHARE -DBM=32 -DBN=32 -DWM=16 -DWN=16 -DSG=8 -DTS=8
        fi
        echo matvec.comp gate_$name.spv $number -DNX=1 -DR=4 -DGATE
        echo handvec.comp handvec_$name.spv $number -DR=8
        echo handvec.comp handgate_$name.spv $number -DR=8 -DGATE
        ;;
    esac
    case $name in
      q4_[01] | q5_[01] | q8_0 | mxfp4 | q[456]_K)
        for shape in "1 2" "4 2" "8 1"; do
          read -r x w <<<"$shape"
          echo matvecq.comp matvecq_${name}_$x.spv $number -DNX=$x -DR=$w
        done
        ;;
    esac
    case $name in
      q4_0 | q5_1 | q8_0 | q[456]_K)
        echo matvecq.comp chainq_$name.spv $number -DNX=1 -DR=2 -DCHAIN
        case $name in # twice the rows of each weight at a time
          q4_K) w=4 ;;
          *) w=2 ;;
        esac
        echo matvecq.comp gateq_$name.spv $number -DNX=1 -DR=$w -DCHAIN -DGATE
        case $name in
          q4_0 | q8_0)
            echo matvecq.comp chainq_${name}_1.spv $number -DNX=1 -DR=1 -DCHAIN # a row a subgroup
            echo handq.comp handq_$name.spv $number -DR=8
            ;;
        esac
        if [ $name = q8_0 ]; then echo handq.comp handq_q8_0_half.spv $number -DR=16 -DHALF; fi
        ;;
    esac
    case $name in
      f16 | q* | iq* | tq* | mxfp4) # workgroups of BM by BN, subgroups' parts, subgroups, matrices
        echo matrix.comp matrix_${name}_128.spv $number -DBM=128 -DBN=128 -DWM=64 -DWN=32 -DSG=32 -DTS=16
        if [ $name = f16 ]; then echo matrix.comp matrix_f16_192.spv $number -DBM=128 -DBN=192 -DWM=64 -DWN=48 -DSG=32 -DTS=16; fi
        echo matrix.comp matrix_${name}_64.spv $number -DGROUPS -DBM=64 -DBN=64 -DWM=32 -DWN=32 -DSG=32 -DTS=16
        echo matrix.comp matrix_${name}_32.spv $number -DGROUPS -DSHARE -DBM=32 -DBN=32 -DWM=16 -DWN=16 -DSG=8 -DTS=8
        ;;
    esac
    case $name in
      q4_0 | q8_0 | q4_K) echo regdecode.comp regdecode_$name.spv $number -DSHARE -DBM=128 -DBN=256 -DWM=128 -DWN=32 -DSG=32 -DTS=16 ;;
    esac
    for shape in "32 2" "64 4 -DGROUPS" "128 8"; do # tile, an invocation's part, whether experts take it
      read -r tile part x <<<"$shape"
      echo matmul.comp matmul_${name}_$tile.spv $number $x -DBN=$tile -DBM=$tile -DTN=$part -DTM=$part
    done
  done
}

only=.
if [ $# -gt 0 ] && [ "$1" != --check ]; then only=$1; fi
to=$(mktemp -d)
trap 'rm -r "$to"' EXIT
go build -o "$to/spvpack" ../../tools/spvpack
export glslc to
jobs >"$to/all"
grep -E "^[^ ]+ [^ ]*$only" "$to/all" >"$to/jobs" ||
  { echo "make.sh: no module's name has $only in it; they are in spirv/modules" >&2; exit 1; }
if [ "$only" != . ]; then # the others are those that are there
  "$to/spvpack" unpack spirv "$to/were"
  while read -r source out _; do
    mkdir -p "$to/spv/${source%.comp}"
    [ ! -f "$to/were/${source%.comp}/$out" ] || mv "$to/were/${source%.comp}/$out" "$to/spv/${source%.comp}"
  done <"$to/all"
fi
<"$to/jobs" xargs -P "$(nproc)" -I {} sh -c 'set -- {}; source=$1 out=$2; shift 2
  mkdir -p "$to/spv/${source%.comp}"
  $glslc --target-env=vulkan1.2 -O -Werror "$@" "$source" -o "$to/spv/${source%.comp}/$out"'
if [ "${1:-}" = --check ]; then
  "$to/spvpack" unpack spirv "$to/were"
  diff -r "$to/were" "$to/spv"
  exit
fi
"$to/spvpack" pack "$to/spv" "$to/packed"
mkdir -p spirv
mv "$to/packed/modules" spirv
for f in spirv/*.zst; do
  [ -f "$to/packed/$(basename "$f" .zst)" ] || rm -f "$f"
done
for f in "$to"/packed/*; do # what compiles to the same keeps its file, whichever zstd packed it
  packed=spirv/$(basename "$f").zst
  [ -f "$packed" ] && zstd -dqc "$packed" | cmp -s - "$f" && continue
  zstd -qf --ultra -22 "$f" -o "$packed" # of a file, whose size it knows
done
