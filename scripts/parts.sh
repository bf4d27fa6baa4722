#!/usr/bin/env bash
# Runs each argument as a command, all of them even if one fails, and prints at the end how long each took:
#
#     parts.sh [-j N] COMMAND...
#
# With `-j`, N of them at once; what one prints then comes when it has ended.
set -uo pipefail
cd "$(dirname "$0")/.."

at_once=1
if [ "${1:-}" = -j ]; then
    at_once=$2
    shift 2
fi
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

# Runs the command $2, and writes to the file $1 how it ended and how long it took.
run() {
    local began=$SECONDS how=done
    if [ "$at_once" = 1 ]; then
        bash -c "$2" || how=failed
    else
        # The shell lets what it starts in the background ignore interrupts.
        env --default-signal=INT,QUIT bash -c "$2" >"$1.output" 2>&1 || how=failed
        cat "$1.output"
    fi
    printf '%s %5d s  %s\n' "$how" $((SECONDS - began)) "$2" >"$1"
}

number=1000
for command in "$@"; do
    number=$((number + 1))
    if [ "$at_once" = 1 ]; then
        run "$results/$number" "$command"
        continue
    fi
    [ "$(jobs -pr | wc -l)" -lt "$at_once" ] || wait -n
    run "$results/$number" "$command" &
done
wait
sed 's/^[a-z]* //' "$results"/????
failed=$(sed -n 's/^failed *[0-9]* s  /failed: /p' "$results"/????)
[ -z "$failed" ] || { printf '%s\n' "$failed" >&2; exit 1; }
