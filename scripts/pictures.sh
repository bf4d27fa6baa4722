#!/usr/bin/env bash
# pictures.sh [NAME…]: draws these pictures of docs/pictures, or all, from runs of the programs. `make pictures` runs it.
#
# A picture is a function `picture_NAME`, which writes docs/pictures/NAME.*. CARGO_TARGET_DIR is where programs are built.
set -euo pipefail
cd "$(dirname "$0")/.."

pictures=docs/pictures
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$pictures"

# Who led when in `make demo`. The lines that it is drawn from are kept beside it: `make lint` compares.
picture_demo() {
    "${CARGO:-cargo}" build --quiet --package incumbent-demo
    SVG=$pictures/demo.svg LINES_FILE=$pictures/demo.log scripts/demo.sh "$target/debug/ten_workers"
}

# `incumbent top` (top.svg) and `incumbent ui` (page.png) during one run.
picture_views() {
    INCUMBENT_PICTURES=$PWD/$pictures "${CARGO:-cargo}" test --quiet --package incumbent-cli --test operator \
        pictures::draw -- --ignored
}

all=$(declare -F | sed -n 's/^declare -f picture_//p')
for name in ${@:-$all}; do
    if ! declare -F "picture_$name" >/dev/null; then
        echo "pictures: there is no picture $name: name some of" $all >&2
        exit 2
    fi
done
for name in ${@:-$all}; do
    "picture_$name"
done
