#!/usr/bin/env bash
# Checks that the library builds with each of its features alone, without warnings.
set -euo pipefail
cd "$(dirname "$0")/.."

for feature in nats sentinel url peer postgres sqlite etcd s3 gcs azure kubernetes-latest tower; do
    echo "feature $feature"
    "${CARGO:-cargo}" clippy --quiet --package incumbent --lib --no-default-features --features "$feature" -- -D warnings
done
