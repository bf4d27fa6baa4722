#!/bin/sh
# How long nobody answers for an address that follows the leader, and how often two hosts do, beside keepalived, for
# docs/benchmarks.md. As root, for network namespaces. ROUNDS: faults of each kind. Takes a quarter of an hour.
set -eu
cd "$(dirname "$0")/.."
scripts/install-keepalived.sh
exec env --default-signal=INT,QUIT,HUP "${CARGO:-cargo}" test --workspace --all-features --test run -- \
    virtual_ip::measure --ignored --nocapture --test-threads=1
