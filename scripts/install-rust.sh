#!/usr/bin/env bash
# Installs toolchains with rustup where they are missing: the one that RUSTUP_TOOLCHAIN names, with which cargo then runs, and
# those of the arguments, as `1.89` or `nightly`.
set -euo pipefail

command -v rustup >/dev/null || {
    echo "no rustup: install it, or Rust from your distribution's package" >&2
    exit 1
}
for version in ${RUSTUP_TOOLCHAIN:-} "$@"; do
    rustup toolchain list | grep -q "^$version\(\.[0-9]*\)\?-" ||
        rustup toolchain install "$version" --profile minimal --component clippy --component rustfmt
done
