#!/usr/bin/env bash
# Gives the module another path: tools/rename-module.sh example.org/greta
# The path stands in go.mod; imports, build commands and documents repeat it, and this
# changes them all. Nothing else of the project knows it.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 1 ] || { echo "usage: $0 PATH" >&2; exit 2; }
old=$(go list -m) new=$1
go mod edit -module "$new"
rooms='backends|bench|chat|cmd|engine|grammar|graph|hub|internal|models|ops|serve|tensor|tokenizer|tools|weights'
git grep -lzF "$old/" -- '*.go' '*.md' '*.sh' '*.rb' '*.toml' .ci |
  xargs -0r sed -i -E 's#(^|[^A-Za-z0-9_./-])'"${old//./\\.}/($rooms)"'(/|"|\s|$|\.stamp=)#\1'"$new"'/\2\3#g'
gofmt -l -w .
go build ./...
