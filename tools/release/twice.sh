#!/usr/bin/env bash
# Makes a release twice, from two clones in different folders, and compares all bytes; then looks at what was made:
# the checksums, the installer, the packages, and the bill of materials.
#
#   tools/release/twice.sh [PLATFORMS]     with commas between them; all where none are named
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for n in 1 2; do
  git clone -q --no-hardlinks . "$work/clone$n/in/folder$n"
done
for n in 1 2; do
  (cd "$work/clone$n/in/folder$n" && go run ./tools/release -only "${1:-}" -o "$work/dist$n")
done
diff -r "$work/dist1" "$work/dist2"
echo "two releases are equal, byte for byte: $(wc -l <"$work/dist1/SHA256SUMS") files"
cd "$work/dist1"
sha256sum --quiet -c SHA256SUMS
version=$(sed -n 's/.* greta_\(.*\)_linux_amd64.tar.gz$/\1/p' SHA256SUMS)
[ -n "$version" ] || exit 0 # not made for what runs here
GRETA_FROM=$PWD GRETA_DIR=$work/bin GRETA_PLATFORM=linux_amd64 sh ./install.sh
"$work/bin/greta" version | grep -F "greta $version+"
"$work/bin/greta" completion bash | cmp - <(tar -xzOf "greta_${version}_linux_amd64.tar.gz" "greta_${version}_linux_amd64/completions/greta.bash")
jq -e '.bomFormat == "CycloneDX" and (.components | length) > 30' "greta_${version}_linux_amd64.cdx.json" >/dev/null
dpkg-deb -x "greta_${version}_linux_amd64.deb" "$work/deb"
cmp "$work/deb/usr/bin/greta" "$work/bin/greta"
mkdir "$work/rpm"
rpm --root "$work/rpm" -i --nodeps "greta_${version}_linux_amd64.rpm" 2>/dev/null
cmp "$work/rpm/usr/bin/greta" "$work/bin/greta"
# zsh looks for completions in another folder on Debian than elsewhere.
[ -f "$work/deb/usr/share/zsh/vendor-completions/_greta" ] && [ ! -e "$work/deb/usr/share/zsh/site-functions" ]
[ -f "$work/rpm/usr/share/zsh/site-functions/_greta" ] && [ ! -e "$work/rpm/usr/share/zsh/vendor-completions" ]
ruby -c greta.rb
