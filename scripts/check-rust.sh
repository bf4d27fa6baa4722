#!/usr/bin/env bash
# Prints what to install if Rust is missing or too old, or lacks one of the subcommands named in the arguments.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
oldest=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)

if ! command -v "$cargo" >/dev/null; then
    echo "no cargo: install Rust $oldest or later, with rustup or your distribution's package" >&2
    exit 1
fi
found=$("$cargo" --version | cut -d ' ' -f 2)
if [ "$(printf '%s\n' "$oldest" "${found%%-*}" | sort -V | head -n 1)" != "$oldest" ]; then
    echo "Rust $found is too old: install $oldest or later, with rustup or your distribution's package" >&2
    exit 1
fi
for subcommand in "$@"; do
    if ! "$cargo" "$subcommand" --version >/dev/null 2>&1; then
        echo "no cargo $subcommand: install it with \`rustup component add rustfmt clippy\` or your distribution's package" >&2
        exit 1
    fi
done
