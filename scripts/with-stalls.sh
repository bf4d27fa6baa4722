#!/usr/bin/env bash
# Runs a command on a machine that stands still again and again, to find tests that depend on its speed:
#
#     with-stalls.sh [SECONDS] -- COMMAND...     as root, with the freezer of cgroups v1 or v2
#
# Every 8 to 16 s all its processes are frozen for so long (4 s): time passes, connections stay open, and
# nobody is told. Tests have to pass with stalls shorter than the limit of one request, which is 5 s.
set -euo pipefail

seconds=4
if [ "${1:-}" != -- ]; then
    seconds=${1:?usage: with-stalls.sh [SECONDS] -- COMMAND...}
    shift
fi
shift
if [ -d /sys/fs/cgroup/freezer ]; then
    group=/sys/fs/cgroup/freezer/incumbent-$$ state=freezer.state frozen=FROZEN thawed=THAWED
else
    group=/sys/fs/cgroup/incumbent-$$ state=cgroup.freeze frozen=1 thawed=0
fi
mkdir "$group"
(
    echo "$BASHPID" >"$group/cgroup.procs"
    exec env --default-signal=INT,QUIT,HUP "$@"
) &
command=$!
trap 'kill "$command" 2>/dev/null' INT TERM
while sleep $((8 + RANDOM % 9)) && kill -0 "$command" 2>/dev/null; do
    echo "$frozen" >"$group/$state"
    sleep "$seconds"
    echo "$thawed" >"$group/$state"
done &
wait "$command" && status=0 || status=$?
kill $! 2>/dev/null || true
echo "$thawed" >"$group/$state"
# What the command left behind keeps the group.
rmdir "$group" 2>/dev/null || true
exit "$status"
