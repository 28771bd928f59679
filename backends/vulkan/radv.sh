#!/usr/bin/env bash
# Compiles every kernel with Mesa's AMD driver as a null device, for GPUs that are
# not there, and keeps what became of it in testdata/radv.txt: registers, spills,
# shared memory, waves of a SIMD, bytes of code. A change of a kernel shows as a diff.
#
#   backends/vulkan/radv.sh RADV [--check]
#
# RADV is a program that runs another one under that driver (debian13-gpu.sh makes
# it, Mesa 25.0.7). With --check nothing is written: the file must be what comes out.
set -euo pipefail
radv=$(realpath "${1:?usage: radv.sh RADV [--check]}")
cd "$(dirname "$0")"
tmp=$(mktemp -d)
trap 'rm -r "$tmp"' EXIT
CGO_ENABLED=0 go test -c -o "$tmp/test" .
export radv tmp
# A GPU, and what the driver calls it.
printf '%s\n' 'gfx1103 phoenix' 'gfx1151 gfx1151' 'navi31 navi31' 'gfx1201 gfx1201' | xargs -P "$(nproc)" -L 1 sh -c \
  'RADV_FORCE_FAMILY=$1 "$radv" "$tmp/test" -test.run "^TestRADV$" -radv "$tmp/$0" >"$tmp/$0.log" 2>&1 || { head -20 "$tmp/$0.log"; exit 255; }'
LC_ALL=C sort "$tmp"/{gfx1103,gfx1151,navi31,gfx1201} | sed 's/ *$//' > "$tmp/all"
if [ "${2:-}" = --check ]; then
  diff -u testdata/radv.txt "$tmp/all"
else
  mkdir -p testdata
  mv "$tmp/all" testdata/radv.txt
fi
