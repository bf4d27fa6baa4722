#!/usr/bin/env bash
# Installs keepalived where it is missing: an address that follows the leader is measured beside it.
set -euo pipefail

command -v keepalived >/dev/null ||
    exec "$(dirname "$0")/install-packages.sh" "put keepalived on PATH" keepalived
