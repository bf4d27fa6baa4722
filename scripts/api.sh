#!/usr/bin/env bash
# Prints the public items of the library.
#
# The text comes from rustdoc's JSON, whose format changes with the compiler: with a Rust that writes another format than
# cargo-public-api reads, nothing can be printed.
set -euo pipefail
cd "$(dirname "$0")/.."

public_api=cargo-public-api@0.52.0
format=57 # of Rust 1.95

tools=$(scripts/install-cargo-tools.sh $public_api)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# JSON is unstable. Only rustdoc may know that it is wanted: dependencies are compiled anew if their compiler is unstable.
printf '#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec %s "$@"\n' "${RUSTDOC:-rustdoc}" >"$work/rustdoc"
chmod +x "$work/rustdoc"
RUSTDOC=$work/rustdoc "${CARGO:-cargo}" rustdoc --quiet --package incumbent --lib --no-default-features \
    --features full -- -Z unstable-options --output-format json --cap-lints allow >&2
json=${CARGO_TARGET_DIR:-target}/doc/incumbent.json
found=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["format_version"])' "$json")
if [ "$found" != $format ]; then
    echo "$(rustc --version) writes format $found of rustdoc's JSON, and format $format can be read: use Rust 1.95" >&2
    exit 1
fi
"$tools/$public_api/bin/cargo-public-api" -sss --rustdoc-json "$json"
