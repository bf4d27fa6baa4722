#!/usr/bin/env bash
# Installs Chromium and its WebDriver where one of them is missing: the page of `incumbent ui` is tested in it.
set -euo pipefail

for program in chromium chromedriver; do
    command -v "$program" >/dev/null ||
        exec "$(dirname "$0")/install-packages.sh" "put chromium and chromedriver on PATH" chromium chromium-driver
done
