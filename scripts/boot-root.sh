#!/usr/bin/env bash
# Boots systemd in a root, runs a program of it, and ends:
#
#     boot-root.sh ROOT PROGRAM SECONDS     PROGRAM is a path in the root, which may take SECONDS
#
# What it prints is in ROOT/var/check.log, and what systemd prints in ROOT/var/boot.log. As root.
set -euo pipefail

root=$1 program=$2 seconds=$3
units=$root/etc/systemd/system
cat >"$units/check.service" <<END
[Unit]
After=multi-user.target
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
TimeoutStartSec=${seconds}s
ExecStart=$program
StandardOutput=file:/var/check.log
StandardError=file:/var/check.log
END
mkdir -p "$units/multi-user.target.wants"
ln -s ../check.service "$units/multi-user.target.wants/check.service"
timeout --kill-after=5s $((seconds + 60))s systemd-nspawn --quiet --register=no --keep-unit --private-network \
    --machine="incumbent-check-$$" --boot --directory="$root" >"$root/var/boot.log" 2>&1 </dev/null && status=0 || status=$?
rm "$units"/{multi-user.target.wants/,}check.service
exit $status
