#!/usr/bin/env bash
# Builds the programs named in the arguments, as `cargo-deny@0.20.2`, into a cache outside the checkout, and prints the
# folder. Each takes minutes, once: without optimization, as they run for seconds.
set -euo pipefail

tools=${XDG_CACHE_HOME:-$HOME/.cache}/incumbent/cargo-tools
for wanted in "$@"; do
    [ -x "$tools/$wanted/bin/${wanted%@*}" ] && continue
    echo "building $wanted into $tools" >&2
    mkdir -p "$tools"
    work=$(mktemp -d "$tools/install.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    CARGO_TARGET_DIR=$work/target "${CARGO:-cargo}" install --quiet --locked --debug --root "$work/root" "$wanted" >&2
    # Of two runs at once the first installs, and the other finds the same there.
    mv -T "$work/root" "$tools/$wanted" 2>/dev/null || [ -x "$tools/$wanted/bin/${wanted%@*}" ]
    rm -rf "$work"
done
echo "$tools"
