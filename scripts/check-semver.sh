#!/usr/bin/env bash
# Checks that the version of the library says how its public items have changed since the last release: the last tag
# `v*`, or the one named in the argument.
set -euo pipefail
cd "$(dirname "$0")/.."

last=${1:-$(scripts/last-release.sh)}
if [ -z "$last" ]; then
    echo "not compared: there is no release yet"
    exit 0
fi
semver=cargo-semver-checks@0.51.0
tools=$(scripts/install-cargo-tools.sh $semver)
"$tools/$semver/bin/cargo-semver-checks" semver-checks --package incumbent --baseline-rev "$last" \
    --only-explicit-features --features full
