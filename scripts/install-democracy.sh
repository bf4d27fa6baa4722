#!/usr/bin/env bash
# Installs the npm package `democracy` into .tools, whose members the tests put into one group with ours.
#
# Node.js and npm: scripts/node.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

version=3.1.3
target=.tools/democracy-$version

[ -e "$target/node_modules/democracy/index.js" ] && [ -e "$target/node" ] && exit 0
mkdir -p .tools
work=$(mktemp -d .tools/install.XXXXXX)
trap 'rm -rf "$work"' EXIT

source scripts/node.sh
find_node

"${npm[@]}" install --silent --no-audit --no-fund --ignore-scripts --prefix "$work/$version" "democracy@$version"
ln -s "$node" "$work/$version/node"
# Of two runs at once the first installs, and the other finds the same there.
mv -T "$work/$version" "$target" 2>/dev/null || [ -e "$target/node" ]
echo "installed democracy $version into .tools"
