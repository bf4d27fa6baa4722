#!/usr/bin/env bash
# Checks that the library builds with each of its features alone, without warnings.
set -euo pipefail
cd "$(dirname "$0")/.."

# `kubernetes` leaves the choice of the version of the Kubernetes API to the program.
for feature in $(scripts/features.py | grep -vx kubernetes); do
    echo "feature $feature"
    "${CARGO:-cargo}" clippy --quiet --package incumbent --lib --no-default-features --features "$feature" -- -D warnings
done
