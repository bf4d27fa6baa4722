#!/usr/bin/env bash
# Installs Prometheus with promtool where one of them is missing.
set -euo pipefail

for program in prometheus promtool; do
    command -v "$program" >/dev/null ||
        exec "$(dirname "$0")/install-packages.sh" "put prometheus and promtool on PATH" prometheus
done
