#!/usr/bin/env bash
# Runs the configurations of docs/leader-discovery.md with the real balancers: requests follow the leader when it stops,
# moves and is killed, and no write is accepted in disorder.
#
# INCUMBENT names a built program; else it is built. NATS_SERVER as in scripts/install-nats.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! unshare --net true 2>/dev/null && ! unshare --net --map-root-user true 2>/dev/null; then
    echo "check-balancers: NOT RUN: network namespaces need root, or user namespaces"
    exit 0
fi
scripts/install-balancers.sh >&2
scripts/install-nats.sh 2.15.1 >&2
if [ -z "${INCUMBENT:-}" ]; then
    "${CARGO:-cargo}" build --quiet --package incumbent-cli
    INCUMBENT=${CARGO_TARGET_DIR:-target}/debug/incumbent
fi
INCUMBENT=$(realpath "$INCUMBENT")
export INCUMBENT
export NATS_SERVER=${NATS_SERVER:-$(command -v nats-server || realpath .tools/nats-server-2.15.1/nats-server)}
timeout --foreground 300 scripts/measure-traffic.py haproxy caddy envoy nginx redirect --count 1
echo "each of them follows the leader"
