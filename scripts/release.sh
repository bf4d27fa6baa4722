#!/usr/bin/env bash
# The steps of a release, which .github/workflows/release.yml runs for a tag:
#
#     release.sh check TAG     the tag, the crates, the chart and the changelog agree, and the tag is on a branch of releases
#     release.sh check-chart   the chart has the version of the crates
#     release.sh notes         prints the section of the changelog
#     release.sh crates        publishes what the registry does not have yet
#     release.sh image         pushes the image of dist/, and names its digest to the workflow
#     release.sh chart         pushes the chart of dist/
#     release.sh github TAG    makes the release, with the files of dist/
#
# Each can be repeated when a later one failed. DRY_RUN=1: prints what would leave this machine, and sends nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
crates=(incumbent incumbent-cli)
version=$(scripts/package-field.sh version)

give_up() {
    echo "$1" >&2
    exit 1
}

# What leaves this machine.
send() { if [ -n "${DRY_RUN:-}" ]; then printf 'would run: %s\n' "$*"; else "$@"; fi; }

# Whether no release is later, of all or of those that begin with the argument: a backport becomes no `latest`.
is_latest() {
    local tags
    tags=$(git tag --list "v${1:-}*" | grep -E '^v[0-9.]+$' || true)
    [ "$(printf '%s\n' "v$version" $tags | sort -V | tail -n 1)" = "v$version" ]
}

# Where images and charts are, as in ghcr.io/incumbent-rs.
registry() {
    local owner=${GITHUB_REPOSITORY_OWNER:?the owner of the repository}
    echo "ghcr.io/${owner,,}"
}

check_chart() {
    local file=deploy/helm/incumbent/Chart.yaml key
    for key in version appVersion; do
        grep -Eq "^$key: \"?${version//./\\.}\"?( |$)" $file || give_up "$file: $key is not $version, as in Cargo.toml"
    done
}

check() {
    local tag=${1:?name the tag}
    [ "$tag" = "v$version" ] || give_up "the tag $tag is not v$version, the version in Cargo.toml: tag the right commit"
    [[ $version != *-* ]] || give_up "$version: packages and wheels have no names for such versions: use X.Y.Z"
    check_chart
    ! grep -q "^## ${version//./\\.} (not yet released)" CHANGELOG.md ||
        give_up "CHANGELOG.md: $version is marked as not yet released"
    [ -n "$(notes)" ] || give_up "CHANGELOG.md has no section \`## $version\`, or an empty one"
    git branch --remotes --contains HEAD --format '%(refname:lstrip=3)' | grep -Eqx 'main|release-[0-9]+\.[0-9]+' ||
        give_up "the commit of $tag is on neither main nor a branch release-X.Y: push it there first"
    echo "$tag agrees with Cargo.toml, the chart and CHANGELOG.md"
}

notes() {
    awk -v heading="## $version" '
        /^## / { inside = ($0 == heading || index($0, heading " ") == 1); next }
        inside' CHANGELOG.md | sed '/./,$!d'
}

publish_crates() {
    local crate
    for crate in "${crates[@]}"; do
        if "$cargo" info --quiet --registry crates-io "$crate@$version" >/dev/null 2>&1; then
            echo "$crate $version is published already"
        else
            send "$cargo" publish --locked --package "$crate"
        fi
    done
}

push_image() {
    local image tag tags=("$version") digest
    image=$(registry)/incumbent
    ! is_latest "${version%.*}." || tags+=("${version%.*}")
    ! is_latest || tags+=(latest)
    digest=$(mktemp)
    for tag in "${tags[@]}"; do
        # Every platform of the archive.
        send skopeo copy --all --digestfile "$digest" "oci-archive:dist/incumbent-$version-image.tar" "docker://$image:$tag"
    done
    [ -z "${GITHUB_OUTPUT:-}" ] || printf 'image=%s\ndigest=%s\n' "$image" "$(cat "$digest")" >>"$GITHUB_OUTPUT"
    rm "$digest"
}

push_chart() {
    local charts
    charts=$(registry)/charts
    send helm push "dist/incumbent-chart-$version.tgz" "oci://$charts"
}

make_release() {
    local tag=${1:?name the tag} flags=(--verify-tag --title "$1") file
    if [ -z "${DRY_RUN:-}" ] && gh release view "$tag" >/dev/null 2>&1; then
        echo "the release $tag exists already"
        return
    fi
    is_latest || flags+=(--latest=false)
    (cd dist && sha256sum --check --quiet SHA256SUMS)
    for file in dist/*; do
        flags+=("$file")
    done
    notes | send gh release create "$tag" --notes-file - "${flags[@]}"
}

case ${1:-} in
check) check "${2:-}" ;;
check-chart) check_chart ;;
notes) notes ;;
crates) publish_crates ;;
image) push_image ;;
chart) push_chart ;;
github) make_release "${2:-}" ;;
*)
    sed -n '2,12s/^# \?//p' "$0" >&2
    exit 2
    ;;
esac
