#!/usr/bin/env bash
# Checks the Helm chart deploy/helm/incumbent and the kustomize base: lint, schema, what they render, and what a real API server says to
# it. Then `incumbent` takes part with the permissions that the chart gives. No kubelet runs: the images and the pods are not tested.
#
# INCUMBENT names a built program; else it is built. HELM names a program; else scripts/install-helm.sh builds it. NATS_SERVER as in
# scripts/install-nats.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/go.sh

chart=deploy/helm/incumbent
# Its custom resources are those of the Prometheus operator.
operator=github.com/prometheus-operator/prometheus-operator@v0.85.0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

failed() {
    echo "check-chart: failed: $1" >&2
    cat "$log" >&2
    exit 1
}

# Prints what passed; if the command fails, what failed and why.
part() {
    local passed=$1
    shift
    timeout --foreground "$@" >"$log" 2>&1 || failed "${*:2}"
    echo "$passed"
}

if [ -z "${HELM:-}" ]; then
    part "helm is there" 1800 scripts/install-helm.sh
    HELM=$(tail -n 1 "$log")
fi
export HELM
part "kubectl is there" 1800 tests/programs/build.sh kubectl
KUBECTL=$(tail -n 1 "$log")
part "the API server is there" 1800 tests/programs/build.sh kube-apiserver
KUBESERVER=$(tail -n 1 "$log")
find_go
part "the custom resources of Prometheus are there" 300 "$go" mod download -json "$operator"
CUSTOM_RESOURCES=$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' "$log")/example/prometheus-operator-crd
if [ -z "${INCUMBENT:-}" ]; then
    # As the tests build it, so that it is not compiled again.
    part "incumbent is built" 1800 "${CARGO:-cargo}" test --quiet --workspace --all-features --no-run --test operator
    INCUMBENT=${CARGO_TARGET_DIR:-target}/debug/incumbent
fi
part "nats-server is there" 300 scripts/install-nats.sh 2.15.1
export NATS_SERVER=${NATS_SERVER:-$(command -v nats-server || echo .tools/nats-server-2.15.1/nats-server)}
export KUBECTL KUBESERVER CUSTOM_RESOURCES INCUMBENT

version=$(scripts/package-field.sh version)
part "the chart has the version of the workspace, $version" 60 scripts/release.sh check-chart

part "the manifests are as rendered" 60 scripts/render-manifests.sh --check

for values in "$chart"/values.yaml "$chart"/ci/*.yaml deploy/helm/manifests/*.yaml; do
    timeout 60 "$HELM" lint --strict --quiet "$chart" --values "$values" --set selectorLabels.app=x >"$log" 2>&1 || failed "lint with $values"
done
echo "the chart is free of lint, with each set of values"

# Each line: the place that the schema must name (/: the whole), and values that it must refuse.
run="mode=run,app.image=a,app.command={a}"
refused=0
while read -r place values; do
    if "$HELM" template x "$chart" --set "$values" >"$log" 2>&1; then
        failed "the schema accepts $values"
    fi
    if ! grep -q "values don't meet the specifications of the schema" "$log" || ! grep -qF "at '${place%/}'" "$log"; then
        failed "the schema does not refuse $place of $values"
    fi
    refused=$((refused + 1))
done <<END
/mode mode=follow
/replicaCount replicaCount=many
/replicaCount replicaCount=-1
/app/image mode=run,app.command={a}
/app/command mode=life,app.image=a
/app/image mode=library
/mode $run,sentinel.enabled=true
/election/name election.name=my_app
/election/lease election.lease=soon
/image/digest image.digest=sha256:12
/image/pullPolicy image.pullPolicy=Sometimes
/http/port http.port=0
/lock/url lock.url=
/selectorLabels standardLabels=false
/podDisruptionBudget/maxUnavailable podDisruptionBudget.maxUnavailable=some
/serviceMonitor/interval serviceMonitor.interval=5
/lock lock.urll=nats
/traffic/service/name traffic.service.name=a.b
/traffic/leaderLabel traffic.leaderLabel=leader
/traffic/podDeletionCost traffic.podDeletionCost=2147483648
/ replicas=3
END
echo "the schema refuses each of $refused wrong values"

"$HELM" template x "$chart" --set "$run" --set-json traffic.podDeletionCost=2000000 >"$log" 2>&1 || failed "a high cost"
grep -q '"2000000"' "$log" || failed "a high cost of deletion is not rendered as a whole number"

# With a lock in another namespace than the Role.
if "$HELM" template x "$chart" --namespace a --set lock.url=kubernetes:b >"$log" 2>&1; then
    failed "the chart accepts a lock in another namespace"
fi
grep -q "lock.url names the namespace b" "$log" || failed "a lock in another namespace is not explained"
"$HELM" template x "$chart" --namespace a --set lock.url=kubernetes:b,rbac.create=false,lock.createLease=false >"$log" 2>&1 ||
    failed "the chart refuses a lock in another namespace, without a Role"
for url in 'kubernetes?kind=configmap' 'kubernetes?object=other'; do
    if "$HELM" template x "$chart" --set-string lock.url="$url" >"$log" 2>&1; then
        failed "the chart accepts $url, for which its Role is no use"
    fi
done
echo "the chart refuses a lock that its Role is not for"

for url in memory: sqlite:/data/elections.db SQLite:/data/elections.db 'nats://n/B peer:12345?dns=a:12345&quorum=3'; do
    if "$HELM" template x "$chart" --set-string lock.url="$url" >"$log" 2>&1; then
        failed "the chart accepts $url, which the pods of a Deployment do not share"
    fi
    grep -q "would lead beside each other" "$log" || failed "the chart does not explain why it refuses $url"
done
echo "the chart refuses locks that the pods of a Deployment do not share"

# As a release has it.
package=$(mktemp -d)
trap 'rm -rf "$log" "$package"' EXIT
part "the chart is packaged" 60 "$HELM" package "$chart" --destination "$package"
for form in "$chart" "$package/incumbent-$version.tgz"; do
    "$HELM" template x "$form" --set prometheusRule.enabled=true >"$package/$(basename "$form").yaml" 2>"$log" || failed "$form does not render"
done
cmp "$package"/*.yaml >"$log" 2>&1 || failed "the package renders otherwise than its folder"
tar --list --file "$package/incumbent-$version.tgz" >"$log"
! grep -q "/ci/" "$log" || failed "the package has the values of the checks"

timeout --foreground 300 scripts/check-chart.py || {
    code=$?
    [ "$code" != 124 ] || echo "check-chart: failed: the API server's part took longer than 300 s" >&2
    exit "$code"
}
