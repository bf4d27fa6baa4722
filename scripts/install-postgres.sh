#!/usr/bin/env bash
# Installs PostgreSQL and PgBouncer, which the tests start themselves, where they are missing and apt-get is there.
set -euo pipefail

missing=()
[ -n "${POSTGRES_BIN:-}" ] || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null ||
    command -v postgres >/dev/null || missing+=(postgresql)
PATH=$PATH:/usr/sbin command -v pgbouncer >/dev/null || missing+=(pgbouncer)
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "install ${missing[*]} (as root: apt-get install ${missing[*]}), or set POSTGRES_BIN to the directory of PostgreSQL's programs" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
export RUNLEVEL=1 # what is installed does not start
apt-get update --quiet=2
apt-get install --quiet=2 --yes --no-install-recommends "${missing[@]}"
