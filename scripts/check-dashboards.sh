#!/usr/bin/env bash
# Checks deploy/helm/incumbent/files/prometheus-alerts.yaml with promtool, and its expressions and those of deploy/grafana-dashboard.json on a
# real Prometheus that scrapes two candidates.
#
# INCUMBENT names a built program; else it is built. NATS_SERVER as in scripts/install-nats.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Prints what passed; if the command fails, what failed and why.
part() {
    local passed=$1
    shift
    if ! timeout --foreground "$@" >"$log" 2>&1; then
        echo "check-dashboards: failed: ${*:2}" >&2
        cat "$log" >&2
        exit 1
    fi
    echo "$passed"
}

part "prometheus and promtool are there" 300 scripts/install-prometheus.sh
part "the alerts are valid" 60 promtool check rules deploy/helm/incumbent/files/prometheus-alerts.yaml
part "the alerts fire, and do not fire, as their tests state" 60 promtool test rules deploy/prometheus-alerts.test.yaml
part "nats-server is there" 300 scripts/install-nats.sh 2.15.1
if [ -z "${INCUMBENT:-}" ]; then
    part "incumbent is built" 1800 "${CARGO:-cargo}" build --quiet --package incumbent-cli
    INCUMBENT=${CARGO_TARGET_DIR:-target}/debug/incumbent
fi
export INCUMBENT
export NATS_SERVER=${NATS_SERVER:-$(command -v nats-server || echo .tools/nats-server-2.15.1/nats-server)}
timeout --foreground 300 scripts/check-dashboards.py || {
    code=$?
    [ "$code" != 124 ] || echo "check-dashboards: failed: the queries took longer than 300 s" >&2
    exit "$code"
}
