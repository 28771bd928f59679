#!/usr/bin/env bash
# perplexity-table.sh MODEL: perplexity of MODEL (a folder with expected.json) by type, with and without an importance
# matrix, as rows of docs/formats.md. The matrix is made from texts that the model writes itself, from fixed seeds.
set -euo pipefail
model=$1; greta=${GRETA:-greta}; dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
for seed in $(seq 1 24); do
  "$greta" run "$model" --prompt "" -n 256 --temperature 1 --seed "$seed" --ignore-eos --backend cpu >> "$dir/text" 2> /dev/null
  echo >> "$dir/text"
done
"$greta" imatrix "$model" --text "$dir/text" --length 256 --out "$dir/imatrix.gguf" >&2
tokens=$(tr -d ' \n' < "$model/expected.json" | sed 's/.*"nll_tokens":\[\([^]]*\)\].*/\1/')
measure() { "$greta" run "$1" --tokens "$tokens" --gen 0 --nll --backend cpu --exact --kv f32 2>&1 | sed -n 's/.*perplexity \([0-9.]*\).*/\1/p'; }
echo "| type | bits a weight | perplexity | with the matrix |"
echo "| --- | --- | --- | --- |"
for t in ${TYPES:-f16 q8_0 q6_k q5_1 q5_0 q5_k_m q4_1 q4_k_m q4_0 iq4_nl iq4_xs mxfp4 q3_k_m q2_k}; do
  "$greta" quantize "$model" "$dir/plain.gguf" --type $t --force --json > "$dir/json"
  "$greta" quantize "$model" "$dir/matrix.gguf" --type $t --force --imatrix "$dir/imatrix.gguf" > /dev/null 2> "$dir/err" || rm -f "$dir/matrix.gguf"
  bits=$(sed -n 's/.*"bits_per_weight": \([0-9.]*\).*/\1/p' "$dir/json")
  a=$(measure "$dir/plain.gguf"); b=; [ ! -f "$dir/matrix.gguf" ] || b=$(measure "$dir/matrix.gguf")
  awk -v t=$t -v bits="$bits" -v a="$a" -v b="$b" 'BEGIN { printf "| %s | %.2f | %.3f | %s |\n", t, bits, a, b == "" ? "" : sprintf("%.3f", b) }'
  rm -f "$dir/matrix.gguf"
done
