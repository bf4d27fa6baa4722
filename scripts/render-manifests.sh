#!/usr/bin/env bash
# Writes deploy/kubernetes*.yaml and deploy/kustomize/candidates.yaml from the chart deploy/helm/incumbent and the values in
# deploy/helm/manifests. With --check it writes nothing, and fails if one of them differs. HELM names a program, else scripts/install-helm.sh builds it.
set -euo pipefail
cd "$(dirname "$0")/.."
HELM=${HELM:-$(scripts/install-helm.sh)}

# `manifest VALUES NAME TEMPLATE…`: the comment at the top of the values, then the objects in this order, without what only Helm reads.
manifest() {
    local values=deploy/helm/manifests/$1.yaml name=$2
    shift 2
    sed '/^$/,$d' "$values"
    for template in "$@"; do
        "$HELM" template "$name" deploy/helm/incumbent --values "$values" --set "standardLabels=false,selectorLabels.app=$name" \
            --show-only "templates/$template.yaml"
        echo
    done | sed -e '1d' -e '/^# Source: /d' -e '/^ *helm\.sh\//d' -e '/^$/d'
}

differ=0
# `put FILE COMMAND…` has FILE be the output of COMMAND.
put() {
    local file=$1
    shift
    "$@" >"$work/new"
    if cmp --silent "$work/new" "$file"; then
        return
    elif [ "$mode" = --check ]; then
        diff -u --label "$file" --label "as rendered" "$file" "$work/new" >&2 || true
        echo "$file differs: run scripts/render-manifests.sh" >&2
        differ=1
    else
        cp "$work/new" "$file"
        echo "wrote $file"
    fi
}

mode=${1:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
put deploy/kubernetes.yaml manifest kubernetes my-app serviceaccount rbac lease deployment
# Without the Lease, which states that no earlier leader is left: what restores objects continuously would state it again.
put deploy/kustomize/candidates.yaml manifest kubernetes my-app serviceaccount rbac deployment
put deploy/kubernetes-life.yaml manifest kubernetes-life my-app serviceaccount rbac deployment
put deploy/kubernetes-sentinel.yaml manifest kubernetes-sentinel my-daemon serviceaccount rbac lease deployment
exit "$differ"
