#!/usr/bin/env bash
# Makes dist/headrace-VERSION.tar.xz of what is committed, with its checksum: the sources for those
# who build the C library and the command. With --deb it also builds Debian packages from this
# archive, and lintian judges them.
#
# Variables: DIST (dist), the folder for results; BUILD_DEB (build-deb), where packages are built.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
dist=$(realpath -m "${DIST:-dist}")
build=$(realpath -m "${BUILD_DEB:-build-deb}")

fail() {
    printf 'dist: %s\n' "$*" >&2
    exit 1
}

version=$(sed -n "s/^  version: '\(.*\)',/\1/p" meson.build)
archive=headrace-$version.tar.xz
mkdir -p "$dist"
git rev-parse --verify -q HEAD >/dev/null || fail "this is no git checkout; the archive is made of a commit"
[ -z "$(git status --porcelain -uno)" ] || echo "dist: changes that are not committed are left out" >&2
# debian/ is no part of it: Debian's tools add it.
git archive --prefix="headrace-$version/" HEAD -- . ':!debian' | xz -9 -T1 >"$dist/$archive"
(cd "$dist" && sha256sum "$archive" >"$archive.sha256sum")
echo "dist: $dist/$archive"
[ "${1:-}" = --deb ] || exit 0

for tool in dpkg-buildpackage dh lintian; do
    command -v $tool >/dev/null || fail "$tool is not there: apt-get install dpkg-dev debhelper lintian"
done
rm -rf "$build"
mkdir -p "$build"
tar -xJf "$dist/$archive" -C "$build"
cp "$dist/$archive" "$build/headrace_$version.orig.tar.xz"
git archive HEAD debian | tar -x -C "$build/headrace-$version"
cd "$build/headrace-$version"
dpkg-checkbuilddeps || fail "as root, \`apt-get build-dep .\` installs what is missing"
dpkg-buildpackage -us -uc >"$build/log" 2>&1 || {
    tail -40 "$build/log" >&2
    fail "the packages cannot be built: see $build/log"
}
# There is no bug of Debian's that asks for the package.
lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs \
    "$build"/headrace_*.changes
cp "$build"/*.deb "$dist"
echo "dist: $(cd "$build" && echo ./*.deb)"
