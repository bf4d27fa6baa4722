#!/usr/bin/env bash
# Prints the tag of the last release before this commit, or nothing. What is tagged v1.0.0-rc.1 is no release, and a commit that is
# itself a release is compared with the one before it.
set -euo pipefail
cd "$(dirname "$0")/.."

but=(--exclude '*-*')
for tag in $(git tag --points-at HEAD --list 'v[0-9]*' 2>/dev/null || true); do
    but+=(--exclude "$tag")
done
git describe --tags --abbrev=0 --match 'v[0-9]*' "${but[@]}" HEAD 2>/dev/null || true
