#!/usr/bin/env bash
# demo.sh PROGRAM: ten workers, each a process of its own, elect a leader on a nats-server; the leader is killed, and
# later another is stopped; each time a standby takes over. Its last lines are a timeline: who led when, and the gaps.
#
# PROGRAM is the example `ten_workers`. LOCK=sqlite has them share a file, without a server (PROGRAM then needs the feature
# `sqlite`). LOCK=memory runs its ten workers in one process, without a server: there they elect a leader, and end one
# after the other. SVG=FILE draws the timeline into this file, and LINES_FILE=FILE keeps the lines that it is made from.
set -euo pipefail
cd "$(dirname "$0")/.."

example=$1
directory=$(mktemp -d "${TMPDIR:-/tmp}/incumbent-demo.XXXXXX")
server=
workers=() # process ids, by the number of the worker; empty once it has ended

say() { printf '\n== %s\n' "$1"; }

# Prints a line, and keeps it for the timeline.
show() {
    printf '%s\n' "$1"
    printf '%s\n' "$1" >>"$directory/lines"
}

# The time of day in UTC, as the workers print it.
now() {
    local micros=${EPOCHREALTIME:-$(python3 -c 'import time; print(f"{time.time():.6f}")' 2>/dev/null || date +%s.000000)}
    local seconds=${micros%[.,]*} rest=${micros#*[.,]}
    seconds=$((seconds % 86400))
    printf '%02d:%02d:%02d.%s' $((seconds / 3600)) $((seconds / 60 % 60)) $((seconds % 60)) "${rest:0:3}"
}

# Prints who led when, from the lines of the workers.
timeline() {
    if ! command -v python3 >/dev/null; then
        say "no timeline: it needs python3"
        return
    fi
    say "who led when"
    scripts/timeline.py ${SVG:+--svg "$SVG"} <"$directory/lines"
    [ -z "${LINES_FILE:-}" ] || cp "$directory/lines" "$LINES_FILE"
}

# Ends a child with a signal, and waits for its end.
end() {
    kill -s "$1" "$2" 2>/dev/null || true
    wait "$2" 2>/dev/null || true
}

clean_up() {
    trap - EXIT
    for worker in ${workers[@]+"${workers[@]}"}; do
        [ -z "$worker" ] || end KILL "$worker"
    done
    [ -z "$server" ] || end TERM "$server"
    rm -rf "$directory"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Every child in a process group of its own: Ctrl-C ends this script, which ends them in the right order.
set -m

start_server() {
    local program
    program=${NATS_SERVER:-$(command -v nats-server || echo .tools/nats-server-2.15.1/nats-server)}
    if [ ! -x "$program" ]; then
        echo "no nats-server at $program: run \`make tools\`, or set NATS_SERVER to one" >&2
        exit 1
    fi
    "$program" --addr 127.0.0.1 --port -1 --jetstream --store_dir "$directory/store" \
        --ports_file_dir "$directory" >"$directory/log" 2>&1 &
    server=$!

    # The server picks a free port itself, and writes down which.
    local ports
    ports="$directory/$(basename "$program")_$server.ports"
    url=
    for _ in $(seq 200); do
        url=$(sed -n 's/.*"\(nats:[^"]*\)".*/\1/p' "$ports" 2>/dev/null | head -n 1 || true)
        [ -z "$url" ] || return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    echo "the nats-server for the demo did not start:" >&2
    cat "$directory/log" >&2
    exit 1
}

# Prints what the workers say until one has led for three lines of work, and leaves its number in `leader`.
watch_leader() {
    local line lines=0
    leader=
    while [ "$lines" -lt 3 ]; do
        if ! read -r -t 30 line <&3; then
            echo "no worker said anything for 30 s" >&2
            exit 1
        fi
        show "$line"
        case $line in
            *" leads, with token "*)
                leader=${line#* worker-}
                leader=${leader%% *}
                ;;
            *" is at work") [ -z "$leader" ] || lines=$((lines + 1)) ;;
        esac
    done
}

# Prints what is still unread when all have ended.
watch_end() {
    local line
    while read -r -t 1 line <&3; do
        show "$line"
    done
}

# Ends the worker that leads with a signal.
end_leader() {
    local process=${workers[$leader]}
    workers[$leader]=
    local at
    at=$(now) # before the signal: until it arrives, the leader works
    end "$1" "$process"
    [ "$1" != KILL ] || show "$at worker-$leader is killed"
}

mkfifo "$directory/said"
exec 3<>"$directory/said"

if [ "${LOCK:-nats}" = memory ]; then
    say "ten workers in one process"
    "$example" >&3 &
    workers[0]=$!
    watch_leader
    say "they stop"
    leader=0
    end_leader TERM
    watch_end
    timeline
    exit 0
fi

if [ "${LOCK:-nats}" = sqlite ]; then
    say "ten workers in the file $directory/elections.db"
    place=(--file "$directory/elections.db")
else
    start_server
    say "ten workers on $url"
    place=(--url "$url")
fi
for number in 1 2 3 4 5 6 7 8 9 10; do
    "$example" "${place[@]}" --workers 1 --first "$number" >&3 &
    workers[number]=$!
done
watch_leader

say "kill -9 of worker-$leader, which leads: its lease must run out"
end_leader KILL
watch_leader

say "kill of worker-$leader, which leads: it releases what it holds"
end_leader TERM
watch_leader

say "all stop, worker-$leader last"
last=$leader
for leader in 1 2 3 4 5 6 7 8 9 10; do
    [ "$leader" = "$last" ] || [ -z "${workers[$leader]}" ] || end_leader TERM
done
leader=$last
end_leader TERM
watch_end
timeline
