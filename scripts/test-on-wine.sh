#!/usr/bin/env bash
# Runs the library's tests that need no server as Windows programs, on wine: the parsers, the protocol, and elections on the lock in
# memory.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/std.sh

target=x86_64-pc-windows-gnu
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/incumbent/target}/targets
wine=$(command -v wine || command -v wine64 || ls /usr/lib/wine/wine64 2>/dev/null || true)
if [ -z "$wine" ] || ! command -v x86_64-w64-mingw32-gcc >/dev/null; then
    scripts/install-packages.sh "put wine and mingw on PATH" wine64 gcc-mingw-w64-x86-64
    wine=$(command -v wine || command -v wine64 || ls /usr/lib/wine/wine64)
fi
find_std $target std,panic_unwind,test
export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=$wine WINEDEBUG=${WINEDEBUG:--all}
export WINEPREFIX=$CARGO_TARGET_DIR/wine

# Rust's standard library takes random numbers from a library that wine 8 lacks.
dlls=$CARGO_TARGET_DIR/wine-dlls
mkdir -p "$dlls"
cat >"$dlls/prng.c" <<'END'
#include <windows.h>
#include <ntsecapi.h>
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length) { return RtlGenRandom(data, length); }
END
x86_64-w64-mingw32-gcc -shared -o "$dlls/bcryptprimitives.dll" "$dlls/prng.c" -ladvapi32
export WINEPATH=Z:${dlls//\//\\}

# Without the locks in databases and on Kubernetes, whose tests need servers.
"${CARGO:-cargo}" test --locked --target "$target" --package incumbent --no-default-features \
    --features nats,url,peer,_history --lib --test protocol --test memory
