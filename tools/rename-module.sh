#!/usr/bin/env bash
# Gives the module another path, and the project another home: tools/rename-module.sh example.org/acme/greta
# The path stands in go.mod; imports, build commands, documents and the installer repeat it, and this changes them
# all. Nothing else of the project knows it. Releases are fetched from https://PATH/releases.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 1 ] || { echo "usage: $0 PATH" >&2; exit 2; }
case $1 in
*[!A-Za-z0-9._/~-]* | /* | */ | *//*) echo "$0: $1 is no module's path, such as example.org/acme/greta" >&2; exit 2 ;;
*.*/*) ;;
*) echo "$0: $1: the first part must be a domain, or go cannot fetch it" >&2; exit 2 ;;
esac
old=$(go list -m) new=$1
go mod edit -module "$new"
git grep -lIzF "$old" | grep -zvx 'go\.mod' |
  xargs -0r sed -i -E 's#(^|[^A-Za-z0-9_.-])'"${old//./\\.}"'($|[^A-Za-z0-9_-])#\1'"$new"'\2#g'
gofmt -l -w .
go build ./...
