#!/bin/sh
# Installs the library to a temporary folder and builds programs against it through
# pkg-config, as a user would: with the shared library and with the static one. Then
# runs these on a small image folder, and the installed command alone, without the
# library.
#
# Usage: check_install.sh BUILD (a finished Meson build). Needs meson, pkg-config
# and a C compiler (CC).
set -eu

[ $# = 1 ] || { echo "usage: check_install.sh BUILD" >&2; exit 2; }
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
build=$(CDPATH= cd -- "$1" && pwd)
CC=${CC:-cc}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT INT TERM

fail() {
    echo "install: $*" >&2
    exit 1
}

meson install -C "$build" --no-rebuild --quiet --destdir "$stage/root" >"$stage/log" 2>&1 || {
    cat "$stage/log" >&2
    fail "meson install failed"
}
pc=$(find "$stage/root" -name headrace.pc)
[ -n "$pc" ] || fail "no headrace.pc was installed"
libdir=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_PATH="$(dirname "$pc")" PKG_CONFIG_SYSROOT_DIR="$stage/root"
number=$(sed -n "s/.*soversion: '\([0-9]*\)'.*/\1/p" "$root/src/meson.build")
[ -e "$libdir/libheadrace.so.$number" ] || fail "no libheadrace.so.$number in $libdir"
[ -e "$libdir/libheadrace.a" ] || fail "no libheadrace.a in $libdir"
[ -e "$libdir/libheadrace-tap.so" ] || fail "no libheadrace-tap.so in $libdir"
[ -e "$libdir/libheadrace-guard.so" ] || fail "no libheadrace-guard.so in $libdir"
# Libraries that are preloaded into programs of others have nothing of ours beside them.
for library in "$libdir"/libheadrace-*.so; do
    [ "$(LD_PRELOAD=$library sh -c 'echo runs' 2>&1)" = runs ] || fail "$library cannot be preloaded"
done
version=$(pkg-config --modversion headrace)
command=$(find "$stage/root" -path '*/bin/headrace')
# From the folder where it lies, without a path to the library, and from any other.
cp "$command" "$stage/headrace"
for program in "$command" "$stage/headrace"; do
    env -i "$program" version | grep -q "^headrace $version$" || fail "$program does not run"
done

# An image folder of two classes, out of the decoder tests' files.
mkdir -p "$stage/images/one" "$stage/images/two"
for number in 1 2 3 4; do
    cp "$root/tests/golden/codec/rgb.jpg" "$stage/images/one/$number.jpg"
    cp "$root/tests/golden/codec/420.jpg" "$stage/images/two/$number.jpg"
done

warnings="-std=gnu11 -Wall -Wextra -Werror"
for source in "$root/tests/checks/installed.c" "$root/examples/read_batches.c" \
    "$root/examples/stalls.c" "$root/examples/memory.c"; do
    name=$(basename "$source" .c)
    arguments=images tap=
    case $name in
    stalls) arguments="images 2" ;;
    memory) arguments=memory.hrm tap="-L$libdir -lheadrace-tap" ;;
    esac
    # Flags are lists: they are split on purpose.
    # shellcheck disable=SC2046,SC2086
    $CC $warnings "$source" -o "$stage/$name-shared" $(pkg-config --cflags --libs headrace) $tap -lm ||
        fail "$name does not build against the shared library"
    # The system's own libraries are not below the staging folder.
    libraries=$(PKG_CONFIG_SYSROOT_DIR= pkg-config --static --libs headrace |
        tr ' ' '\n' | grep -v -e '^-L' -e '^-lheadrace$' | tr '\n' ' ')
    # shellcheck disable=SC2046,SC2086
    $CC $warnings $(pkg-config --cflags headrace) "$source" -o "$stage/$name-static" \
        "$libdir/libheadrace.a" $libraries $tap -lm ||
        fail "$name does not build against the static library"
    for kind in shared static; do
        # A list, on purpose without quotes.
        # shellcheck disable=SC2086
        if ! (cd "$stage" && LD_LIBRARY_PATH="$libdir" "./$name-$kind" $arguments) \
            >"$stage/out" 2>&1; then
            cat "$stage/out" >&2
            fail "$name ($kind) failed"
        fi
        [ -s "$stage/out" ] || fail "$name ($kind) printed nothing"
    done
done
[ -s "$stage/stalls.json" ] || fail "examples/stalls.c wrote no stalls.json"
"$stage/installed-static" "$stage/images" | grep -q "^headrace $version, 8 samples in 2 classes$" ||
    fail "the installed library is not version $version, or does not read a folder"
[ "$(head -c 8 "$stage/memory.hrm")" = HRMEMORY ] || fail "examples/memory.c wrote no record"
env -i "$command" scan "$stage/images" >"$stage/out" || fail "the command cannot scan a folder"
echo "install: four programs built and run against headrace $version, shared and static"
