#!/usr/bin/env bash
# Tries go install PATH/cmd/greta@latest on the committed tree before it is published: a folder plays the module proxy.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
module=$(go list -m)
version=v$(sed -n 's/^const release = "\(.*\)"$/\1/p' cmd/greta/version.go)
case $module in *[A-Z]*) echo "a path with capitals has another name in a proxy" >&2; exit 1 ;; esac
at=$work/proxy/$module/@v
mkdir -p "$at"
echo "$version" >"$at/list"
echo "{\"Version\": \"$version\", \"Time\": \"$(git log -1 --format=%cI)\"}" >"$at/$version.info"
cp "$at/$version.info" "$work/proxy/$module/@latest"
git show HEAD:go.mod >"$at/$version.mod"
git archive --format=zip --prefix="$module@$version/" -o "$at/$version.zip" HEAD
cd "$work"
GOFLAGS= GOWORK=off GOBIN=$work/bin GONOSUMDB=$module GOMODCACHE=$work/modules \
  GOPROXY=file://$work/proxy,file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY) \
  go install "$module/cmd/greta@latest"
bin/greta version | grep -F "greta ${version#v}"
bin/greta ops | grep -q linear
echo "go install $module/cmd/greta@latest works"
