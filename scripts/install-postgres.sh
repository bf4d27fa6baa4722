#!/usr/bin/env bash
# Installs PostgreSQL and PgBouncer, which the tests start themselves, where they are missing.
set -euo pipefail

missing=()
[ -n "${POSTGRES_BIN:-}" ] || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null ||
    command -v postgres >/dev/null || missing+=(postgresql)
PATH=$PATH:/usr/sbin command -v pgbouncer >/dev/null || missing+=(pgbouncer)
[ ${#missing[@]} -gt 0 ] || exit 0
exec "$(dirname "$0")/install-packages.sh" "set POSTGRES_BIN to the directory of PostgreSQL's programs" "${missing[@]}"
