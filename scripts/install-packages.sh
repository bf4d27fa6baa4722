#!/usr/bin/env bash
# Installs packages of Debian, where apt-get is there:
#
#     install-packages.sh INSTEAD PACKAGE...     INSTEAD: what else one can do, for the error
set -euo pipefail

instead=$1
shift
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "install $* (as root: apt-get install $*), or $instead" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
export RUNLEVEL=1 # what is installed does not start
apt-get update --quiet=2
apt-get install --quiet=2 --yes --no-install-recommends "$@"
