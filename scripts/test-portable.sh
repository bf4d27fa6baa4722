#!/usr/bin/env bash
# What runs on macOS and Windows as well: builds the library and the program with every feature, and tests the parts of the
# library that need no server: the protocol, the parsers, and elections on the lock in memory.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
set -x
"$cargo" build --locked --package incumbent --package incumbent-cli --all-features
# As scripts/test-on-wine.sh.
"$cargo" test --locked --package incumbent --no-default-features --features nats,url,peer,_history \
    --lib --test protocol --test memory
"$cargo" run --locked --package incumbent-cli --all-features -- --version
