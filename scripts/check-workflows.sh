#!/usr/bin/env bash
# Checks .github/: actionlint (syntax and expressions), zizmor (permissions, injections, pinned actions), and
# that what the workflows run is in this repository.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/go.sh

actionlint_version=1.7.12
actionlint_sum=h1:vQ4GeJN86C0QH+gTUQcs8McmK62OLT3kmakPMtEWYnY=
actionlint=${ACTIONLINT:-${XDG_CACHE_HOME:-$HOME/.cache}/incumbent/actionlint-$actionlint_version/actionlint}
zizmor=zizmor==1.32.0

# The first line names what to install; the log follows.
give_up() {
    echo "cannot install actionlint: $1, or set ACTIONLINT to one" >&2
    [ -z "${2:-}" ] || cat "$2" >&2
    exit 1
}

if [ ! -x "$actionlint" ]; then
    [ -z "${ACTIONLINT:-}" ] || give_up "ACTIONLINT names no program: unset it"
    find_go || give_up "install Go 1.24 or later, or python3 with venv and pip"
    out=$(dirname "$actionlint")
    echo "building actionlint into $out" >&2
    mkdir -p "$out"
    work=$(mktemp -d "$out/install.XXXXXX") # on the file system of its target, so that the move is atomic
    trap 'rm -rf "$work"' EXIT
    CGO_ENABLED=0 GOBIN="$work" GOFLAGS=-mod=mod "$go" install -p 2 -ldflags "-s -w" \
        "github.com/rhysd/actionlint/cmd/actionlint@v$actionlint_version" >"$work/log" 2>&1 ||
        give_up "let go reach its module proxy" "$work/log"
    "$go" version -m "$work/actionlint" | grep -q "[[:space:]]v$actionlint_version[[:space:]]$actionlint_sum\$" ||
        give_up "its sources are not those of $actionlint_sum"
    mv -f "$work/actionlint" "$actionlint"
fi
tools=$(scripts/install-wheel-tools.sh $zizmor)

failed=
# The same with and without shellcheck on this machine: each step is one command.
"$actionlint" -shellcheck= -pyflakes= || failed=1
"$tools/$zizmor/bin/zizmor" --offline --no-progress --persona=pedantic .github || failed=1
scripts/check-workflow-steps.py || failed=1
[ -z "$failed" ]
