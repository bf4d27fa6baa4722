#!/usr/bin/env bash
# Runs fleets of the last release and of this one in one election, on every lock (cli/tests/upgrade).
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${INCUMBENT_LAST_RELEASE:-}" ]; then
    if [ -z "$(scripts/last-release.sh)" ] &&
        ! git cat-file -e "$(cat cli/tests/upgrade/base)^{commit}" 2>/dev/null; then
        echo "not run beside the last release: this is no complete clone (git fetch --unshallow --tags)"
        [ -z "${GITHUB_ACTIONS:-}" ] # where the workflow is to fetch all
        exit
    fi
    scripts/build-last-release.sh
fi
# They mostly wait.
RUST_TEST_THREADS=8 "${CARGO:-cargo}" test --workspace --all-features --test upgrade
