#!/usr/bin/env bash
# Checks the dependencies: each one is used, and deny.toml allows its license, its source and its version.
set -euo pipefail
cd "$(dirname "$0")/.."

deny=cargo-deny@0.20.2
machete=cargo-machete@0.9.2
tools=$(scripts/install-cargo-tools.sh $deny $machete)
deny() { "$tools/$deny/bin/cargo-deny" --workspace --all-features "$@"; }

failed=
"$tools/$machete/bin/cargo-machete" || failed=1
deny check bans licenses sources || failed=1
if deny fetch db 2>/dev/null; then
    deny --offline check advisories || failed=1
else
    echo "not checked for known vulnerabilities: the database of advisories cannot be fetched"
fi
[ -z "$failed" ]
