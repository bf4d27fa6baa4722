#!/usr/bin/env bash
# Checks what scripts/dist.sh built into dist/, as a release does: installs, uses and removes each in a clean place, and lints it.
# As root, on Linux with apt-get. An election in a SQLite file is what all of them have to run.
set -euo pipefail
cd "$(dirname "$0")/.."

# 17 MiB: what is downloaded and copied into every image stays small.
most=$((17 << 20))
# Of 100; what systemd calls OK begins at 50.
exposure=20

[ "$(id -u)" = 0 ] || { echo "run it as root: it makes clean roots" >&2; exit 1; }
needed=(binutils debootstrap lintian rpm rpmlint systemd systemd-container)
targets=()
for archive in dist/incumbent-*-unknown-linux-musl.tar.gz; do
    [[ $archive =~ ^dist/incumbent-(.*)-([^-]*)-unknown-linux-musl.tar.gz$ ]] || { echo "run make dist first" >&2; exit 1; }
    version=${BASH_REMATCH[1]}
    targets+=("${BASH_REMATCH[2]}")
done
# Programs of the other machine run in its emulator.
for machine in "${targets[@]}"; do
    [ "$machine" = "$(uname -m)" ] || needed+=(qemu-user-static)
done
dpkg --status "${needed[@]}" >/dev/null 2>&1 || scripts/install-packages.sh "install them by hand" "${needed[@]}" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dist=$PWD/dist

step() { printf '%s: ' "$*"; }
fail() {
    echo "failed: $*" >&2
    exit 1
}

# An election in a SQLite file, won by the program that the arguments run, which runs itself: it needs no other.
elects() {
    local program=$1 said
    shift
    said=$("$@" "$program" --quiet run check --lock sqlite:/tmp/check.db --lease 2s -- "$program" --version)
    [ "$said" = "incumbent $version" ] || fail "the leader printed: $said"
    echo "elected, $said"
}

step checksums
(cd dist && sha256sum --check --strict --quiet SHA256SUMS) && echo "all right"

for machine in "${targets[@]}"; do
    target=$machine-unknown-linux-musl
    name=incumbent-$version-$target
    tar --extract --file "dist/$name.tar.gz" --directory "$work"
    program=$work/$name/incumbent

    step "$machine program"
    # Into files: of a pipe that grep leaves early, only the failure would be seen.
    readelf --dynamic --program-headers "$program" >"$work/headers"
    ! grep -E 'NEEDED|INTERP' "$work/headers" || fail "not static"
    size=$(stat --format=%s "$program")
    [ "$size" -le $most ] || fail "$size bytes, more than $most"
    # The crates that it is made of, as cargo-auditable writes them.
    objcopy --dump-section ".dep-v0=$work/crates" "$program" /dev/null 2>/dev/null || fail "no list of crates in it"
    crates=$(python3 -c 'import json, sys, zlib
print(len(json.loads(zlib.decompress(open(sys.argv[1], "rb").read()))["packages"]))' "$work/crates")
    [ "$crates" -gt 100 ] || fail "lists $crates crates"
    # Paths of the machine that built it would be in no other build.
    strings "$program" >"$work/strings"
    ! grep --max-count=3 -F -e "$HOME/" -e "$PWD/" "$work/strings" || fail "it has paths of this machine"
    echo "static, $size bytes, lists $crates crates"

    step "$machine archive"
    rm -f /tmp/check.db*
    if [ "$machine" = "$(uname -m)" ]; then
        elects "$program" env
    else
        said=$("qemu-$machine-static" "$program" --version)
        [ "$said" = "incumbent $version" ] || fail "printed: $said"
        echo "runs in the emulator, $said"
    fi
    [ "$(find "$work/$name/man" -name '*.1' | wc -l)" -gt 30 ] || fail "manual pages are missing"
    bash -n "$work/$name/completions/incumbent.bash"
done

step "manual pages"
warnings=$(for page in "$work/incumbent-$version-${targets[0]}-unknown-linux-musl"/man/man1/*; do
    LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null
done)
[ -z "$warnings" ] || fail "$warnings"
echo "no warnings"

step lintian
lintian --allow-root --fail-on error,warning dist/*.deb
echo "clean"
step rpmlint
for package in dist/*.rpm; do
    rpmlint --config deploy/packages/rpmlint.toml "$package" >"$work/rpmlint" || fail "$(cat "$work/rpmlint")"
    grep -q ' 0 errors, 0 warnings' "$work/rpmlint" || fail "$(cat "$work/rpmlint")"
done
echo "clean"

base=$(scripts/base-root.sh)
clean_root() {
    mkdir "$1"
    tar --extract --file "$base" --directory "$1"
}
# With namespaces of its own, as containers have them.
inside() {
    local root=$1
    shift
    unshare --fork --pid --kill-child --mount --ipc --uts --mount-proc --root="$root" -- \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}
files() { (cd "$1" && find . -not -type d -not -path './proc/*' -not -path './tmp/*' -not -path './var/*' | sort); }
native() { case $(uname -m) in x86_64) echo amd64 ;; aarch64) echo arm64 ;; esac; }

root=$work/deb-root
clean_root "$root"
files "$root" >"$work/before"
step "deb in a clean root"
cp "dist/incumbent_$version-1_$(native).deb" "$root/tmp/incumbent.deb"
inside "$root" dpkg --install /tmp/incumbent.deb >"$work/log" 2>&1 || fail "$(cat "$work/log")"
inside "$root" dpkg --verify incumbent
elects /usr/bin/incumbent inside "$root"

step "unit"
systemd-analyze verify --man=no --root="$root" incumbent@check-unit.service 2>"$work/log" || fail "$(cat "$work/log")"
[ ! -s "$work/log" ] || fail "$(cat "$work/log")"
systemd-analyze security --no-pager --offline=true --threshold=$exposure --root="$root" incumbent@check-unit.service >"$work/log" ||
    fail "$(tail -n 1 "$work/log")"
grep -o 'Overall.*: [0-9.]* [A-Z]*' "$work/log"

# systemd runs in the root, starts an instance, and sees the package go while it runs.
step "unit under systemd"
cat >"$root/etc/incumbent/check-unit.env" <<'EOF'
INCUMBENT_LOCK=sqlite:/var/lib/incumbent/check-unit/lock.db
INCUMBENT_OPTIONS=--lease 3s
COMMAND=/usr/bin/check-worker "two words"
EOF
chmod 600 "$root/etc/incumbent/check-unit.env"
cat >"$root/usr/bin/check-worker" <<'EOF'
#!/bin/sh
trap 'echo stopped >>work; exit 0' TERM
# Of the numbers that systemd has for users that exist while a service runs.
[ "$(id -u)" -ge 61184 ] || echo "is user $(id -u)" >work
echo "leads $INCUMBENT_ELECTION with token $INCUMBENT_TOKEN: $1" >>work
cat /etc/incumbent/check-unit.env 2>/dev/null && echo "reads the settings" >>work
touch /usr/bin/new 2>/dev/null && echo "writes into /usr" >>work
while :; do sleep 0.1; done
EOF
cat >"$root/usr/bin/check-unit" <<'EOF'
#!/bin/bash
set -x
systemctl start incumbent@check-unit || { journalctl --no-pager --unit incumbent@check-unit; exit 1; }
work=/var/lib/private/incumbent/check-unit/work
for _ in {1..100}; do [ ! -e $work ] || break; sleep 0.1; done
systemctl is-active incumbent@check-unit
systemctl show --property StatusText incumbent@check-unit
dpkg --purge incumbent
[ "$(systemctl is-active incumbent@check-unit)" = inactive ] || exit 1
cat $work
EOF
chmod +x "$root"/usr/bin/check-{unit,worker}
scripts/boot-root.sh "$root" /usr/bin/check-unit 60 || fail "$(tail -n 20 "$root"/var/{boot,check}.log)"
# All that the command wrote, after the command that prints it.
said=$(sed '1,/^+ cat /d' "$root/var/check.log")
[[ $said =~ ^leads\ check-unit\ with\ token\ [0-9]+:\ two\ words$'\n'stopped$ ]] || fail "$(cat "$root/var/check.log")"
grep StatusText= "$root/var/check.log"

step "deb removed"
rm "$root"/usr/bin/check-{unit,worker}
rm -rf "$root"/etc/incumbent
files "$root" | diff "$work/before" - || fail "the files above remain"
echo "nothing remains but /var and the settings"

step "rpm in a clean root"
root=$work/rpm-root
clean_root "$root"
files "$root" >"$work/before"
# The base is not rpm's: what the scripts need is there, without a package that says so.
rpms() { rpm --root="$root" --dbpath=/var/lib/rpm --nodeps "$@" 2>"$work/log" || fail "$(cat "$work/log")"; }
rpms --install "dist/incumbent-$version-1.$(uname -m).rpm"
rpms --verify incumbent
elects /usr/bin/incumbent inside "$root"
step "rpm removed"
rpms --erase incumbent
files "$root" | diff "$work/before" - || fail "the files above remain"
echo "nothing remains but /var and the settings"

step "wheel in a clean environment"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-index --find-links dist "incumbent==$version"
"$work/venv/bin/pip" check >/dev/null
rm -f /tmp/check.db*
elects "$work/venv/bin/incumbent" env
"$work/venv/bin/pip" uninstall --quiet --yes incumbent
[ ! -e "$work/venv/bin/incumbent" ] || fail "the wheel leaves the program behind"

step "image"
root=$work/image-root
entry=$(scripts/check-image.py "dist/incumbent-$version-image.tar" "$(native)" "$root")
[ "$entry" = "65534:65534 /incumbent" ] || fail "it runs $entry"
# What every runtime adds.
mkdir "$root"/{dev,proc}
mknod --mode=666 "$root/dev/null" c 1 3
# As its user, in a root without anything else.
user() {
    unshare --fork --pid --kill-child --mount --ipc --uts --net --mount-proc --root="$root" \
        --setgid 65534 --setuid 65534 -- "$@"
}
elects /incumbent user

echo "all of dist/ works: $dist"
