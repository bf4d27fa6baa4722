#!/usr/bin/env bash
# Builds the program of the last release into a cache outside the checkout, and prints its path:
#
#     build-last-release.sh             the newest tag v* before this commit; before the first tag, the commit that
#                                       cli/tests/upgrade/base names
#     build-last-release.sh COMMIT      this one
#
# Does nothing if the cache has it. Dependencies that were built for this checkout, with the same versions and features,
# are not compiled again.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "no program of the last release: $1" >&2
    exit 1
}

[ "$(git rev-parse --show-toplevel 2>/dev/null || true)" = "$(pwd -P)" ] ||
    fail "$PWD is no clone of the repository: clone it, or set INCUMBENT_LAST_RELEASE to such a program"
release=${1:-$(scripts/last-release.sh)}
release=${release:-$(cat cli/tests/upgrade/base)}
commit=$(git rev-parse --quiet --verify "$release^{commit}") ||
    fail "this clone lacks $release: run \`git fetch --tags --unshallow\`, or \`git fetch --tags\` if it is complete"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/incumbent/last-release/$commit
if [ -x "$cache/incumbent" ]; then
    echo "$cache/incumbent"
    exit
fi

target=${CARGO_TARGET_DIR:-$PWD/target}
echo "building the program of $release into $cache" >&2
mkdir -p "$target" "$cache"
work=$(mktemp -d "$target/last-release.XXXXXX") # on the file system of what is linked into it
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/sources" "$work/target/debug/deps"
git archive "$commit" | tar -x -C "$work/sources"

# Both checkouts would give one path to what they build of their own, so this one has a target folder of its own. The
# dependencies in it are links: rustc replaces a library, and never writes into it.
built=$target/debug
if [ -d "$built/.fingerprint" ] && [ -d "$built/build" ]; then
    cp -a "$built/.fingerprint" "$built/build" "$work/target/debug/"
    find "$built/deps" -maxdepth 1 -name 'lib*' ! -name 'libincumbent*' \( -name '*.rlib' -o -name '*.rmeta' -o -name '*.so' \) \
        -exec cp -al -t "$work/target/debug/deps" {} +
    rm -rf "$work/target/debug/.fingerprint"/incumbent* "$work/target/debug/build"/incumbent*
fi

cd "$work/sources"
# The features of dependencies are those of the workspace with its tests, where one of the tests is built too.
with=()
[ ! -e cli/tests/campaign.rs ] || with=(--test campaign) # of earlier releases
[ ! -e cli/tests/upgrade/main.rs ] || with=(--test upgrade)
CARGO_TARGET_DIR=$work/target "${CARGO:-cargo}" build --quiet --locked --workspace --all-features --bin incumbent "${with[@]}" >&2

# Whole or not at all: of two runs at once either one is the same.
cp "$work/target/debug/incumbent" "$cache/incumbent.$$"
mv -f "$cache/incumbent.$$" "$cache/incumbent"
echo "$cache/incumbent"
