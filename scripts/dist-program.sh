#!/usr/bin/env bash
# Builds the program as it is given away, statically linked, and prints its path:
#
#     dist-program.sh TARGET     as x86_64-unknown-linux-musl or aarch64-unknown-linux-musl
#
# zig compiles what is in C, and links: it has the C library of both targets. scripts/std.sh finds the standard library.
#
# The program is the same wherever it is built from the same commit by the same compilers: paths of the machine are mapped away.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/std.sh

target=${1:?name a target, as x86_64-unknown-linux-musl}
zig=ziglang==0.17.1
zigbuild=cargo-zigbuild==0.24.1
auditable=cargo-auditable@0.7.7

tools=$(scripts/install-wheel-tools.sh $zig $zigbuild)
export CARGO_ZIGBUILD_ZIG_PATH=$tools/$zig/ziglang/zig

find_std "$target" std,panic_unwind
flags=
# The C library and the unwinder are those of zig: this compiler has none for the target.
[ -z "$built_std" ] || flags="-C link-self-contained=no "

# What builds it is compiled by the cargo of the machine, before the settings below.
cargo_tools=$(env -u RUSTC -u RUSTC_BOOTSTRAP -u CARGO_UNSTABLE_BUILD_STD scripts/install-cargo-tools.sh $auditable)
export PATH=$cargo_tools/$auditable/bin:$tools/$zigbuild/bin:$PATH

# Of several that fit the last counts.
built=${CARGO_TARGET_DIR:-$PWD/target}
prefixes=(
    "${CARGO_HOME:-$HOME/.cargo}=/cargo"
    "$("$RUSTC" --print sysroot)/lib/rustlib/src/rust=/rust"
    "$PWD=/incumbent"
    "$built=/target"
)
export RUSTFLAGS="$flags${prefixes[*]/#/--remap-path-prefix=}"
# No sanitizer, which zig adds to C that is not optimized.
export CFLAGS="-g0 -fno-sanitize=all ${prefixes[*]/#/-ffile-prefix-map=}"
# SQLite without searches of texts and maps, and statistics, which nothing here uses.
export LIBSQLITE3_FLAGS="-USQLITE_ENABLE_DBSTAT_VTAB -USQLITE_ENABLE_FTS3 -USQLITE_ENABLE_FTS3_PARENTHESIS \
    -USQLITE_ENABLE_FTS5 -USQLITE_ENABLE_RTREE -USQLITE_ENABLE_STAT4"

${CARGO:-cargo} auditable zigbuild --quiet --locked --profile dist --package incumbent-cli --target "$target" >&2
echo "$built/$target/dist/incumbent"
