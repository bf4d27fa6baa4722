#!/usr/bin/env bash
# Checks that the project builds with the oldest Rust it promises, where rustup has that toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."

oldest=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
toolchain=$(rustup toolchain list 2>/dev/null | grep -oE "^${oldest//./\\.}(\.[0-9]+)?-[^ ]+" | head -n 1 || true)
if [ -z "$toolchain" ]; then
    echo "not checked with Rust $oldest: rustup has no such toolchain"
    exit 0
fi
set -x
# All but the SQL locks, and the program that has them: sqlx needs Rust 1.94.
rustup run "$toolchain" cargo check --features "$(scripts/features.py | grep -vxE 'postgres|sqlite' | paste -sd,)"
