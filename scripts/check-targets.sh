#!/usr/bin/env bash
# Checks that library and program compile on Windows and macOS, with every feature. Nothing is linked or run.
#
#     check-targets.sh [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/std.sh

[ $# -gt 0 ] || set -- x86_64-pc-windows-gnu aarch64-apple-darwin
cache=${XDG_CACHE_HOME:-$HOME/.cache}/incumbent
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}/targets

zig=ziglang==0.17.1

# C code is compiled too: by mingw, and by zig for Apple, whose names of targets are others.
wrapper=$CARGO_TARGET_DIR/zig-cc
mkdir -p "$CARGO_TARGET_DIR"
compile_c_for() {
    case $1 in
    *-windows-gnu)
        command -v x86_64-w64-mingw32-gcc >/dev/null ||
            scripts/install-packages.sh "check another target" gcc-mingw-w64-x86-64
        ;;
    *-apple-darwin)
        cat >"$wrapper" <<END
#!/usr/bin/env bash
set -euo pipefail
args=()
while [ \$# -gt 0 ]; do
    case \$1 in
    --target=*) ;;
    -arch) shift ;;
    *) args+=("\$1") ;;
    esac
    shift
done
exec "$(scripts/install-wheel-tools.sh $zig)/$zig/ziglang/zig" cc -target aarch64-macos "\${args[@]}"
END
        chmod +x "$wrapper"
        local name=${1//-/_}
        export "CC_$name=$wrapper" "CARGO_TARGET_${name^^}_LINKER=$wrapper"
        ;;
    esac
}

check() {
    compile_c_for "$1"
    find_std "$1" std,panic_abort
    echo "target $1"
    "${CARGO:-cargo}" check --quiet --locked --target "$1" --package incumbent --lib --all-features
    "${CARGO:-cargo}" check --quiet --locked --target "$1" --package incumbent-cli --bins
}

for target in "$@"; do
    (check "$target") # what it exports is for this target
done
