#!/usr/bin/env bash
# Installs Prometheus and promtool where they are missing and apt-get is there.
set -euo pipefail

missing=()
for program in prometheus promtool; do
    command -v "$program" >/dev/null || missing+=("$program")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "install ${missing[*]} (as root: apt-get install prometheus), or put both programs on PATH" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
export RUNLEVEL=1 # what is installed does not start
apt-get update --quiet=2
apt-get install --quiet=2 --yes --no-install-recommends prometheus
