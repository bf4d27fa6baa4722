#!/usr/bin/env bash
# Runs the units of docs/operations.md that follow the term by hooks, in a root of this distribution with systemd.
# As root, on Linux with apt-get.
#
# INCUMBENT names a built program that runs in that root; else it is built.
set -euo pipefail
cd "$(dirname "$0")/.."

[ "$(id -u)" = 0 ] || { echo "run it as root: it boots systemd in a container" >&2; exit 1; }
needed=(debootstrap systemd-container)
dpkg --status "${needed[@]}" >/dev/null 2>&1 || scripts/install-packages.sh "install them by hand" "${needed[@]}" >&2
if [ -z "${INCUMBENT:-}" ]; then
    "${CARGO:-cargo}" build --quiet --package incumbent-cli
    INCUMBENT=${CARGO_TARGET_DIR:-target}/debug/incumbent
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
base=$(scripts/base-root.sh)
mkdir "$root"
tar --extract --file "$base" --directory "$root"
install -D --strip "$INCUMBENT" "$root/usr/bin/incumbent"

# The units of the page, in the order in which they are there, with a lock that needs no server.
units=$root/etc/systemd/system
python3 - "$units" docs/operations.md <<'EOF'
import re, sys
from pathlib import Path
units, page = Path(sys.argv[1]), Path(sys.argv[2]).read_text()
section = page.split("### A systemd unit that follows the term\n")[1].split("\n### ")[0]
election, service, signals = re.findall(r"^```ini\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
election = re.sub("INCUMBENT_LOCK=.*", "INCUMBENT_LOCK=sqlite:/var/election.db", election)
election = election.replace("--lease 10s --grace 2s", "--lease 4s --grace 1500ms")
(units / "scheduler-election.service").write_text(election)
(units / "scheduler.service").write_text(service)
signals = signals.replace("ExecStart=", "ExecStart=\nExecStart=", 1).replace("--lease 10s", "--lease 4s")
(units / "signals.conf").write_text(f"[Service]\n{signals}")
EOF
cat >"$root/usr/bin/scheduler" <<'EOF'
#!/bin/sh
trap 'echo told of a term' USR1
trap 'echo told of its end' USR2
while :; do sleep 0.1; done
EOF
cat >"$root/usr/bin/check" <<'EOF'
#!/bin/bash
# Waits for a state of the unit.
state() {
    for _ in {1..300}; do
        [ "$(systemctl is-active scheduler)" != "$1" ] || { echo "$2: $1"; return; }
        sleep 0.1
    done
    echo "$2: $(systemctl is-active scheduler), not $1"
    journalctl --no-pager --lines 40
    exit 1
}
told() {
    for _ in {1..300}; do
        [ "$(journalctl --unit scheduler --output cat | grep -c "told of $1")" -lt "$2" ] || { echo "$3: told of $1"; return; }
        sleep 0.1
    done
    echo "$3: not told of $1"
    journalctl --no-pager --lines 40
    exit 1
}
export INCUMBENT_LOCK=sqlite:/var/election.db
systemctl start scheduler-election
state active "a term begins"
incumbent election evict scheduler --force --quiet
state inactive "evicted"
state active "the next term"
systemctl kill --kill-whom=main --signal=SIGKILL scheduler-election
state inactive "incumbent is killed"
state active "it is started again"
systemctl stop scheduler-election
state inactive "a stop"
mv /usr/bin/scheduler /usr/bin/elsewhere
systemctl start scheduler-election
for _ in {1..300}; do
    ! systemctl show --property ExecMainStatus scheduler | grep -q 203 || break
    sleep 0.1
done
incumbent leader scheduler --quiet && { echo "it leads without its service"; exit 1; }
echo "the service cannot be started: no term"
mv /usr/bin/elsewhere /usr/bin/scheduler
state active "it can be started again"
systemctl stop scheduler-election
mkdir /etc/systemd/system/scheduler-election.service.d
mv /etc/systemd/system/{signals.conf,scheduler-election.service.d}
sed -i '/BindsTo/d;/After/d' /etc/systemd/system/scheduler.service
systemctl daemon-reload
systemctl start scheduler scheduler-election
told "a term" 1 "signals"
incumbent election evict scheduler --force --quiet
told "its end" 1 "evicted"
told "a term" 2 "the next term"
systemctl kill --kill-whom=main --signal=SIGKILL scheduler-election
told "its end" 2 "incumbent is killed"
echo "all right"
EOF
chmod +x "$root"/usr/bin/{scheduler,check}
scripts/boot-root.sh "$root" /usr/bin/check 150 || true # its output tells
cat "$root/var/check.log" || tail -n 20 "$root/var/boot.log" >&2
grep -q '^all right$' "$root/var/check.log"
