#!/usr/bin/env bash
# Builds a nats-server whose wall clock can be stepped while it runs: build.sh OUT. Does nothing if OUT is there; without
# `go` it prints that, and the faults that need it are reported as not run.
#
# Go reads the clock through the vDSO, so neither libfaketime nor a time namespace moves it. This adds an offset to the
# standard library's time.Now by `go build -overlay`: the seconds in the file that CLOCK_STEP_FILE names, an eight byte
# integer of this machine, mapped into memory and read at every call. Monotonic time stays as it is, as in a real step.
set -euo pipefail
mkdir -p "$(dirname "$1")"
out=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cd "$(dirname "$0")"

[ -x "$out" ] && exit
if ! command -v go >/dev/null; then
    echo "no go: clocks will not be stepped"
    exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$(go env GOROOT)
sed '0,/sec, nsec, mono := runtimeNow()/s//&\n\tsec += stepped()/' "$root/src/time/time.go" >"$work/time.go"
if ! grep -q 'stepped()' "$work/time.go"; then
    echo "time.Now of $(go version) is not as expected: clocks will not be stepped" >&2
    exit
fi
cp step.go.txt "$work/step.go"
cat >"$work/overlay.json" <<J
{"Replace": {"$root/src/time/time.go": "$work/time.go", "$root/src/time/step.go": "$work/step.go"}}
J
echo "building a nats-server whose clock can be stepped"
if go build -overlay "$work/overlay.json" -o "$work/nats-server" github.com/nats-io/nats-server/v2; then
    mv "$work/nats-server" "$out"
else
    echo "go could not build it: clocks will not be stepped" >&2
fi
