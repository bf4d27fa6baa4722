#!/usr/bin/env bash
# Builds the documentation of the library as docs.rs does: with a nightly compiler, and the features and flags that
# `package.metadata.docs.rs` names.
set -euo pipefail
cd "$(dirname "$0")/.."

rustup run nightly rustc --version >/dev/null 2>&1 || {
    echo "no nightly compiler: scripts/install-rust.sh nightly" >&2
    exit 1
}
docs_rs=cargo-docs-rs@1.0.4
tools=$(scripts/install-cargo-tools.sh $docs_rs)
RUSTDOCFLAGS="-D warnings" rustup run nightly "$tools/$docs_rs/bin/cargo-docs-rs" docs-rs --package incumbent
