# Sourced. `find_std TARGET CRATES` sets RUSTC to a compiler that has the standard library for TARGET: that of rustup, if it has the
# target or can fetch it. Else `built_std` is 1, and cargo builds CRATES of the library, as `std,panic_abort`, from the sources beside
# a compiler: rustc-web and rust-web-src of Debian.

has_std() { [ -e "$("$RUSTC" --print sysroot)/lib/rustlib/$1" ]; }

find_std() {
    local target=$1 crates=$2 sources=src/rust/library/std/Cargo.toml
    built_std=
    RUSTC=$(command -v "${RUSTC:-rustc}")
    export RUSTC
    has_std "$target" && return
    timeout 120 rustup --quiet target add "$target" 2>/dev/null && return
    if ! has_std $sources; then
        RUSTC=/usr/bin/rustc
        { [ -x $RUSTC ] && has_std $sources; } ||
            scripts/install-packages.sh "run: rustup target add $target" rustc-web rust-web-src >&2
    fi
    echo "rustup has no $target: compiling its standard library by $RUSTC" >&2
    export RUSTC_BOOTSTRAP=1 CARGO_UNSTABLE_BUILD_STD=$crates
    built_std=1
}
