#!/bin/sh
# Installs greta: fetches the release for this machine, compares its checksum, and puts the program into a folder.
#
#   curl -fsSL https://github.com/greta-project/greta/releases/latest/download/install.sh | sh
#
#   GRETA_VERSION=0.1.0   that release instead of the latest
#   GRETA_DIR=FOLDER      where to, instead of ~/.local/bin
#   GRETA_FROM=URL        where a release's files lie: https://…, or a folder of this machine
#   GRETA_PLATFORM=NAME   the platform, such as linux_amd64_static, instead of asking the machine
set -eu

repository=https://github.com/greta-project/greta

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

# platform says what this machine is, in the words of the archives' names.
platform() {
  system=$(uname -s) machine=$(uname -m)
  case $system in
  Linux) os=linux ;;
  Darwin) os=darwin ;;
  MINGW* | MSYS* | CYGWIN*) fail "on Windows: unpack greta_*_windows_amd64.zip from $repository/releases" ;;
  *) fail "there is no archive for $system; go install builds it: $repository" ;;
  esac
  case $machine in
  x86_64 | amd64) arch=amd64 ;;
  aarch64 | arm64) arch=arm64 ;;
  *) fail "there is no archive for $machine; go install builds it: $repository" ;;
  esac
  # Without glibc's loader only the static program runs, which has no GPU backends.
  if [ $os = linux ] && ! [ -e /lib64/ld-linux-x86-64.so.2 ] && ! [ -e /lib/ld-linux-aarch64.so.1 ]; then
    echo "${os}_${arch}_static"
  else
    echo "${os}_$arch"
  fi
}

# fetch NAME copies a file of the release into the working folder.
fetch() {
  case $from in
  http://* | https://*)
    if command -v curl >/dev/null 2>&1; then
      curl -fsSL --retry 2 -o "$work/$1" "$from/$1"
    elif command -v wget >/dev/null 2>&1; then
      wget -q -O "$work/$1" "$from/$1"
    else
      fail "neither curl nor wget is there: install one of them"
    fi ;;
  *) cp "${from#file://}/$1" "$work/$1" ;;
  esac || fail "$from/$1 cannot be fetched"
}

sha256() {
  if command -v sha256sum >/dev/null 2>&1; then
    sha256sum "$1"
  elif command -v shasum >/dev/null 2>&1; then
    shasum -a 256 "$1"
  else
    fail "neither sha256sum nor shasum is there: the archive cannot be verified"
  fi
}

main() {
  [ -n "${GRETA_DIR:-}${HOME:-}" ] || fail "there is no HOME: GRETA_DIR says where to"
  version=${GRETA_VERSION:-} dir=${GRETA_DIR:-$HOME/.local/bin} from=${GRETA_FROM:-} new=
  [ -n "$from" ] || if [ -n "$version" ]; then
    from=$repository/releases/download/v${version#v}
  else
    from=$repository/releases/latest/download
  fi
  platform=${GRETA_PLATFORM:-$(platform)} || exit 1
  work=$(mktemp -d) || fail "there is no folder for temporary files: TMPDIR says where"
  trap 'rm -rf "$work" ${new:+"$new"}' EXIT
  trap 'exit 130' INT TERM

  fetch SHA256SUMS
  # A line is: checksum, two spaces, name.
  line=$(grep -E "^[0-9a-f]{64}  greta_[0-9][^/ ]*_$platform\.tar\.gz\$" "$work/SHA256SUMS") ||
    fail "$from has no archive for $platform; SHA256SUMS there names: $(
      sed -n 's/^.*  greta_[^_]*_\(.*\)\.tar\.gz$/\1/p' "$work/SHA256SUMS" | grep -v container | tr '\n' ' ')"
  [ "$(echo "$line" | wc -l)" -eq 1 ] || fail "SHA256SUMS of $from names several archives for $platform"
  want=${line%%  *} name=${line#*  }
  if [ -n "$version" ] && [ "${name#greta_"${version#v}"_}" = "$name" ]; then
    fail "$from has $name, not version ${version#v}"
  fi
  fetch "$name"
  got=$(sha256 "$work/$name") || exit 1
  got=${got%% *}
  [ "$got" = "$want" ] || fail "$name is damaged: its SHA-256 is $got, SHA256SUMS says $want; nothing was installed"

  tar -xzf "$work/$name" -C "$work" || fail "$name cannot be unpacked; nothing was installed"
  folder=$work/${name%.tar.gz}
  mkdir -p "$dir" || fail "$dir cannot be made: GRETA_DIR says where to"
  [ ! -d "$dir/greta" ] || fail "$dir/greta is a folder: GRETA_DIR says where to"
  # It is tried where it will lie: nothing may be run in some folders for temporary files.
  new=$dir/.greta.new
  cp "$folder/greta" "$new" || fail "$dir cannot be written: GRETA_DIR says where to"
  "$new" version >"$work/says" 2>&1 ||
    fail "the program does not run on this machine ($platform): $(cat "$work/says"); GRETA_PLATFORM=${platform%_static}_static may"
  mv -f "$new" "$dir/greta" || fail "$dir cannot be written: GRETA_DIR says where to"
  echo "$(cat "$work/says"): $dir/greta"
  case :$PATH: in
  *":$dir:"*) ;;
  *) echo "$dir is not in PATH: export PATH=\"$dir:\$PATH\"" ;;
  esac
  echo "completion: \"$dir/greta\" completion --help"
}

main
