#!/usr/bin/env bash
# Prints a field of the packages that are published, as `version` or `repository`: it is the same for both.
set -euo pipefail
cd "$(dirname "$0")/.."

"${CARGO:-cargo}" metadata --format-version 1 --locked --no-deps | python3 -c '
import json, sys
print(next(package[sys.argv[1]] for package in json.load(sys.stdin)["packages"] if package["name"] == "incumbent"))' "$1"
