#!/usr/bin/env bash
# Runs a program against a nats-server of its own: demo.sh PROGRAM [ARGUMENT…] adds `--url URL`.
#
# LOCK=memory runs it without a server and without `--url`. The exit code is the program's.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${LOCK:-nats}" = memory ]; then
    exec "$@"
fi

program=${NATS_SERVER:-$(command -v nats-server || echo .tools/nats-server-2.15.1/nats-server)}
if [ ! -x "$program" ]; then
    echo "no nats-server at $program: run \`make tools\`, or set NATS_SERVER to one" >&2
    exit 1
fi

directory=$(mktemp -d "${TMPDIR:-/tmp}/incumbent-demo.XXXXXX")
server=
clean_up() {
    trap - EXIT
    if [ -n "$server" ]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$directory"
}
trap clean_up EXIT
trap : INT TERM # the program gets them too, ends, and its exit code is ours

# In a process group of its own: Ctrl-C must reach the workers, not the server under them.
set -m
"$program" --addr 127.0.0.1 --port -1 --jetstream --store_dir "$directory/store" \
    --ports_file_dir "$directory" >"$directory/log" 2>&1 &
server=$!
set +m

# The server picks a free port itself, and writes down which.
ports="$directory/$(basename "$program")_$server.ports"
url=
for _ in $(seq 200); do
    url=$(sed -n 's/.*"\(nats:[^"]*\)".*/\1/p' "$ports" 2>/dev/null | head -n 1 || true)
    [ -n "$url" ] && break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.05
done
if [ -z "$url" ]; then
    echo "the nats-server for the demo did not start:" >&2
    cat "$directory/log" >&2
    exit 1
fi

code=0
"$@" --url "$url" || code=$?
exit "$code"
