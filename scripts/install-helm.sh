#!/usr/bin/env bash
# Builds Helm into a cache outside the checkout, and prints its path. Takes minutes, once. Go verifies the module by its checksum
# database.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/go.sh

version=3.22.0
out=${XDG_CACHE_HOME:-$HOME/.cache}/incumbent/helm-$version
if [ ! -x "$out/helm" ]; then
    find_go || {
        echo "cannot build helm: install Go 1.26 or later, or python3 with venv and pip" >&2
        exit 1
    }
    echo "building helm into $out" >&2
    mkdir -p "$out"
    work=$(mktemp -d "$out/build.XXXXXX") # on the file system of its target, so that the move is atomic
    trap 'rm -rf "$work"' EXIT
    # As Helm's Makefile: the versions that it reports, and the one of Kubernetes that it assumes without a server.
    flags="-s -w -X helm.sh/helm/v3/internal/version.version=v$version"
    for package in lint/rules chartutil; do
        prefix=helm.sh/helm/v3/pkg/$package.k8sVersion
        flags="$flags -X ${prefix}Major=1 -X ${prefix}Minor=36"
    done
    GOBIN=$work "$go" install -p 2 -ldflags "$flags" "helm.sh/helm/v3/cmd/helm@v$version" >&2
    mv -f "$work/helm" "$out/helm"
fi
echo "$out/helm"
