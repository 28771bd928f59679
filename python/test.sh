#!/usr/bin/env bash
# Builds this machine's wheel and tests it as users get it: installed into a fresh environment of each Python, without
# this checkout's package in sight. PYTHONS names the programs (default: those of 3.10 and later that are found).
#
#   python/test.sh [PYTEST'S ARGUMENTS]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
usable() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
if [ -z "${PYTHONS:-}" ]; then
  for p in python3.10 python3.11 python3.12 python3.13 python3.14 ~/.pyenv/versions/3.1[0-9]*/bin/python3; do
    p=$(command -v "$p") || continue
    usable "$p" || continue
    version=$("$p" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    [[ " ${seen:-} " == *" $version "* ]] && continue
    seen="${seen:-} $version" PYTHONS="${PYTHONS:-} $p"
  done
fi
[ -n "${PYTHONS:-}" ] || { echo "no Python 3.10 or later with venv is found: apt-get install python3-venv" >&2; exit 1; }
build=
for p in $PYTHONS; do "$p" -c 'import tomllib' 2>/dev/null && build=$p; done
[ -n "$build" ] || { echo "the wheel is built by Python 3.11 or later" >&2; exit 1; }

"$build" "$here/build.py" --out "$work/one"
"$build" "$here/build.py" --out "$work/two" >/dev/null
cmp "$work"/one/*.whl "$work"/two/*.whl # reproducible

unset PYTHONPATH GRETA_BINARY
for p in $PYTHONS; do
  echo "--- $("$p" --version), $p"
  "$p" -m venv "$work/venv"
  pip="$work/venv/bin/pip --quiet --disable-pip-version-check"
  $pip install --no-deps "$work"/one/*.whl
  # Alone it works without any other package.
  (cd "$work" && ./venv/bin/python -c 'import greta; print(greta.Process().version)' && ./venv/bin/greta version)
  $pip install numpy pandas matplotlib pytest mypy pandas-stubs
  (
    cd "$work" # the package of the checkout is not on the path here
    tests() { # those of bridges need PyTorch and JAX
      venv/bin/python -m pytest -q -o cache_dir="$work/cache" --rootdir "$here/tests" "$here/tests" \
        --ignore "$here/tests/bridges" "$@"
    }
    tests "$@" || tests --last-failed "$@" # what ran out of time beside others has another try by itself
    venv/bin/mypy --config-file "$here/pyproject.toml" --cache-dir "$work/mypy" "$here"/tests/*.py
    venv/bin/mypy --config-file "$here/pyproject.toml" --cache-dir "$work/mypy" -p greta
  )
  rm -rf "$work/venv"
done

# Debian 13's Python 3.13, where no other is there: it lies in a folder, so that it has no environments.
unpack=${GRETA_SHARED:-$here/../../shared}/tools/debian13-torch.sh
if [ -n "${seen:-}" ] && [[ " $seen " != *" 3.13 "* ]] && [ -f "$unpack" ]; then
  dir=${XDG_CACHE_HOME:-$HOME/.cache}/greta/debian13-torch
  bash "$unpack" "$dir"
  "$dir/python3" --version
  "$dir/python3" -m pip install --quiet --target "$work/site" "$work"/one/*.whl pytest pandas matplotlib
  (cd "$work" && PYTHONPATH=$work/site "$dir/python3" -m pytest -q -p no:cacheprovider --rootdir "$here/tests" \
    "$here"/tests/test_model.py "$here"/tests/test_bench.py)
fi
