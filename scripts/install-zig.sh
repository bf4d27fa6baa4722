#!/usr/bin/env bash
# Installs zig, a C compiler and linker for other systems, into the cache outside the checkout, and prints the path of `zig`.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/wheels.sh

version=0.17.1
tools=${XDG_CACHE_HOME:-$HOME/.cache}/incumbent/zig-$version
zig=$tools/zig
if [ ! -x "$zig" ]; then
    mkdir -p "$(dirname "$tools")"
    work=$(mktemp -d "$tools.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    wheel "ziglang==$version" "$work/wheel.txt"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$work" \
        --require-hashes -r "$work/wheel.txt" >&2
    python3 -m zipfile -e "$work"/*.whl "$work/wheel"
    chmod +x "$work/wheel/ziglang/zig"
    # Of two runs at once the first installs, and the other finds the same there.
    mv -T "$work/wheel/ziglang" "$tools" 2>/dev/null || [ -x "$zig" ]
fi
echo "$zig"
