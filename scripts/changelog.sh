#!/usr/bin/env bash
# Prints a draft of the next section of CHANGELOG.md: the commits since the last release, grouped by their areas. With a version
# as argument, the section has its name.
set -euo pipefail
cd "$(dirname "$0")/.."

cliff=git-cliff==2.14.2
tools=$(scripts/install-wheel-tools.sh $cliff)
exec "$tools/$cliff/bin/git-cliff" --offline --unreleased ${1:+--tag "v$1"}
