#!/usr/bin/env bash
# Runs fleets of the last release and of this one in one election, on every lock (cli/tests/upgrade).
set -euo pipefail
cd "$(dirname "$0")/.."

# The last release, or what stands for it before the first tag.
last() { git tag --list 'v[0-9]*' | head -n 1; git rev-parse --quiet --verify "$(cat cli/tests/upgrade/base)^{commit}"; }

if [ -z "${INCUMBENT_LAST_RELEASE:-}" ]; then
    if [ -z "$(last 2>/dev/null || true)" ]; then
        echo "not run beside the last release: this is no complete clone (git fetch --unshallow --tags)"
        [ -z "${GITHUB_ACTIONS:-}" ] # where the workflow is to fetch all
        exit
    fi
    scripts/build-last-release.sh
fi
# They mostly wait.
RUST_TEST_THREADS=8 "${CARGO:-cargo}" test --workspace --all-features --test upgrade
