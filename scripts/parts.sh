#!/usr/bin/env bash
# Runs each argument as a command, all of them even if one fails, and prints at the end how long each took.
set -uo pipefail
cd "$(dirname "$0")/.."

times=()
failed=()
for command in "$@"; do
    began=$SECONDS
    bash -c "$command" || failed+=("$command")
    times+=("$(printf '%5d s  %s' $((SECONDS - began)) "$command")")
done
printf '%s\n' "${times[@]}"
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}" >&2; exit 1; }
