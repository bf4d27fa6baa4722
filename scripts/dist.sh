#!/usr/bin/env bash
# Builds what a release gives away into dist/:
#
#     dist.sh [--check-reproducible] [TARGET...]     all targets by default
#
#   incumbent-VERSION-TARGET.tar.gz      the program, statically linked, manual pages, completions, the systemd unit
#   incumbent_VERSION-1_ARCH.deb, .rpm   the same as packages
#   incumbent-VERSION-….whl              the program as a Python wheel
#   incumbent-VERSION-image.tar          a container image: an OCI layout, with a platform for each target
#   incumbent-chart-VERSION.tgz          the Helm chart
#   incumbent-VERSION.cdx.json           what it is made of: a CycloneDX bill of materials
#   SHA256SUMS
#
# The same commit and compilers give the same bytes; --check-reproducible builds all of it again, in a copy with another path,
# and compares. Everything has the time of the commit.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/wheels.sh

check=
[ "${1:-}" != --check-reproducible ] || { check=1 && shift; }
targets=("$@")
[ $# -gt 0 ] || targets=(x86_64-unknown-linux-musl aarch64-unknown-linux-musl)

here=$(uname -m)-unknown-linux-musl
[[ " ${targets[*]} " == *" $here "* ]] || {
    echo "name $here too: the program writes its manual pages itself" >&2
    exit 2
}

# An export of a commit has no history: who makes it gives both.
export COMMIT=${COMMIT:-$(git rev-parse HEAD)}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export LC_ALL=C TZ=UTC
umask 022

VERSION=$(scripts/package-field.sh version)
REPOSITORY=$(scripts/package-field.sh repository)
export VERSION REPOSITORY
export MAINTAINER="The incumbent authors <incumbent-rs@users.noreply.github.com>"
DATE=$(date --date="@$SOURCE_DATE_EPOCH" --rfc-email)
export DATE
# What packs them is the distributions' own.
missing=()
command -v dpkg-deb >/dev/null || missing+=(dpkg)
command -v rpmbuild >/dev/null || missing+=(rpm)
[ ${#missing[@]} = 0 ] || scripts/install-packages.sh "put dpkg-deb and rpmbuild on PATH" "${missing[@]}" >&2

cyclonedx=cargo-cyclonedx@0.5.9
cyclonedx=$(scripts/install-cargo-tools.sh $cyclonedx)/$cyclonedx/bin/cargo-cyclonedx

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$work/dist
mkdir "$out"

# The authorities that TLS trusts in the image. Their list has a version and a hash, not that of the machine's.
wheel certifi==2026.7.22 "$work/wheel.txt"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" --require-hashes -r "$work/wheel.txt"
python3 -m zipfile -e "$work"/certifi-*.whl "$work/certifi"
export CA_CERTIFICATES=$work/certifi/certifi/cacert.pem

# Sorted, without the owners of this machine, and with one time.
pack() {
    tar --create --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --mtime="@$SOURCE_DATE_EPOCH" \
        --directory "$1" "$2" | gzip -9 --no-name
}

declare -A programs
for target in "${targets[@]}"; do
    programs[$target]=$(scripts/dist-program.sh "$target")
done
run=${programs[$here]}

# Puts variables of the environment into a file.
fill() { python3 -c 'import os, string, sys; sys.stdout.write(string.Template(sys.stdin.read()).substitute(os.environ))' <"$1"; }

# The deb of the files in the folder $1, for the architecture $2.
deb() {
    local root=$1 documents=$1/usr/share/doc/incumbent
    install -m 644 -D "$STAGE/completions/_incumbent" "$root/usr/share/zsh/vendor-completions/_incumbent"
    install -m 644 -D deploy/packages/deb/lintian-overrides "$root/usr/share/lintian/overrides/incumbent"
    install -m 644 -D deploy/systemd/example.env "$documents/examples/example.env"
    install -m 644 deploy/packages/deb/copyright "$documents"
    install -m 644 "$STAGE/THIRD-PARTY-LICENSES.txt.gz" "$documents"
    fill deploy/packages/deb/changelog | gzip -9 --no-name >"$documents/changelog.Debian.gz"
    local files
    files=$(cd "$root" && find . -type f | sed 's|^\./||' | sort)
    mkdir "$root/DEBIAN"
    (cd "$root" && xargs -d '\n' md5sum <<<"$files") >"$root/DEBIAN/md5sums"
    SIZE=$(cd "$root" && xargs -d '\n' stat --format=%s <<<"$files" | awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }')
    export SIZE DEB_ARCH=$2
    fill deploy/packages/deb/control >"$root/DEBIAN/control"
    install deploy/packages/deb/{postinst,prerm,postrm} "$root/DEBIAN"
    dpkg-deb --root-owner-group -Zxz --build "$root" "$out/incumbent_$VERSION-1_$2.deb" >&2
}

# The rpm of the files in the folder $1, for the architecture $2.
rpm() {
    local root=$1
    install -m 644 -D "$STAGE/completions/_incumbent" "$root/usr/share/zsh/site-functions/_incumbent"
    install -m 644 -D LICENSE "$root/usr/share/licenses/incumbent/LICENSE"
    install -m 644 "$STAGE/THIRD-PARTY-LICENSES.txt.gz" "$root/usr/share/licenses/incumbent"
    install -m 644 -D README.md "$root/usr/share/doc/incumbent/README.md"
    install -m 644 deploy/systemd/example.env "$root/usr/share/doc/incumbent"
    rpmbuild --quiet -bb --target "$2" --define "_topdir $STAGE/rpmbuild" --define "stage $root" \
        --define "version $VERSION" --define "repository $REPOSITORY" --define "maintainer $MAINTAINER" \
        --define "day $(date --date="@$SOURCE_DATE_EPOCH" '+%a %b %d %Y')" --define "epoch_of_commit $SOURCE_DATE_EPOCH" \
        deploy/packages/incumbent.spec >&2
    mv "$STAGE/rpmbuild/RPMS/$2/incumbent-$VERSION-1.$2.rpm" "$out"
}

platforms=()
for target in "${targets[@]}"; do
    machine=${target%%-*}
    STAGE=$work/$target
    name=incumbent-$VERSION-$target
    archive=$STAGE/$name
    mkdir -p "$archive" "$STAGE/completions"
    install "${programs[$target]}" "$archive/incumbent"
    "$run" --quiet man "$archive/man/man1"
    "$run" completions bash >"$STAGE/completions/incumbent.bash"
    "$run" completions zsh >"$STAGE/completions/_incumbent"
    "$run" completions fish >"$STAGE/completions/incumbent.fish"
    scripts/dist-files.py licenses "$target" "$archive/THIRD-PARTY-LICENSES.txt"
    cp -R "$STAGE/completions" deploy/systemd LICENSE README.md "$archive"
    pack "$STAGE" "$name" >"$out/$name.tar.gz"

    root=$STAGE/root
    mkdir -p "$root"/{etc/incumbent,usr/{bin,lib/systemd/system,share/{bash-completion/completions,fish/vendor_completions.d}}}
    install "$archive/incumbent" "$root/usr/bin/incumbent"
    install -m 644 deploy/systemd/incumbent@.service "$root/usr/lib/systemd/system"
    install -m 644 "$STAGE/completions/incumbent.bash" "$root/usr/share/bash-completion/completions/incumbent"
    install -m 644 "$STAGE/completions/incumbent.fish" "$root/usr/share/fish/vendor_completions.d/incumbent.fish"
    cp -R "$archive/man" "$root/usr/share/man"
    gzip -9 --no-name "$root"/usr/share/man/man1/*
    gzip -9 --no-name --stdout "$archive/THIRD-PARTY-LICENSES.txt" >"$STAGE/THIRD-PARTY-LICENSES.txt.gz"
    cp -R "$root" "$STAGE/deb"
    cp -R "$root" "$STAGE/rpm"
    case $machine in x86_64) deb "$STAGE/deb" amd64 ;; aarch64) deb "$STAGE/deb" arm64 ;; esac
    rpm "$STAGE/rpm" "$machine"
    scripts/dist-files.py wheel "$VERSION" "$target" "$archive" "$out"
    platforms+=("$target=$archive")
done
scripts/dist-files.py image "$VERSION" "$out/incumbent-$VERSION-image.tar" "${platforms[@]}"

# Helm gives its files the time of the day.
"$(scripts/install-helm.sh)" package deploy/helm/incumbent --destination "$work/chart" >&2
tar --extract --touch --file "$work/chart/incumbent-$VERSION.tgz" --directory "$work/chart"
pack "$work/chart" incumbent >"$out/incumbent-chart-$VERSION.tgz"

# Of the first target: the crates of the others are the same.
bill=incumbent-$VERSION.cdx
"$cyclonedx" cyclonedx --quiet --manifest-path cli/Cargo.toml --format json --spec-version 1.5 --target "${targets[0]}" \
    --override-filename "$bill"
find . -name "$bill.json" -not -path ./cli/"$bill.json" -not -path './dist/*' -delete
# It names the packages of the workspace by their path.
sed "s|file://$PWD|file:///incumbent|g" "cli/$bill.json" >"$out/$bill.json"
rm "cli/$bill.json"

(cd "$out" && sha256sum -- *) >"$work/sums"
mv "$work/sums" "$out/SHA256SUMS"
rm -rf dist
mv "$out" dist
cat dist/SHA256SUMS

if [ -n "$check" ]; then
    git diff --quiet HEAD || echo "comparing with the commit, without the changes that are not committed" >&2
    again=$work/again
    mkdir -p "$again"
    git archive "$COMMIT" | tar --extract --directory "$again"
    CARGO_TARGET_DIR=$work/again-target "$again/scripts/dist.sh" "${targets[@]}" >/dev/null
    diff -u dist/SHA256SUMS "$again/dist/SHA256SUMS" >&2 || {
        echo "not reproducible: the files above differ between two builds" >&2
        exit 1
    }
    echo "reproducible: two builds are the same"
fi
