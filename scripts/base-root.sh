#!/usr/bin/env bash
# Prints the path of an archive with a clean root of this distribution with systemd. It is made once, and kept. As root.
set -euo pipefail

suite=$(source /etc/os-release && echo "$VERSION_CODENAME")
base=${XDG_CACHE_HOME:-$HOME/.cache}/incumbent/root-$suite.tar
if [ ! -e "$base" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    echo "making a clean root of $suite" >&2
    debootstrap --variant=minbase --include=procps,systemd "$suite" "$work/base" >"$work/log" 2>&1 || {
        echo "debootstrap: $(tail -n 5 "$work/log")" >&2
        exit 1
    }
    tar --create --file "$base.new" --directory "$work/base" .
    mv "$base.new" "$base"
fi
echo "$base"
