#!/bin/sh
# Builds and installs the C library, its headers and the command, without the Python package. Uses
# the system's Meson and Ninja, or else a small Python environment with only these.
# With --uninstall it removes what it has installed.
#
# Variables:
#   PREFIX    where to (/usr/local)
#   DESTDIR   a folder to put before PREFIX, for packagers
#   BUILD     the build folder, which --uninstall needs again (build-install)
#   VENV      the small environment, made where Meson or Ninja are missing (.venv-install)
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
cd -- "$root"
PREFIX=${PREFIX:-/usr/local}
DESTDIR=${DESTDIR:-}
BUILD=${BUILD:-$root/build-install}
VENV=${VENV:-$root/.venv-install}

say() { printf 'install: %s\n' "$*"; }

fail() {
    printf 'install: %s\n' "$*" >&2
    exit 3
}

# The library of a program that was just installed is found when ldconfig has seen it.
refresh() {
    if [ -z "$DESTDIR" ] && [ "$(id -u)" = 0 ] && command -v ldconfig >/dev/null 2>&1; then
        ldconfig
    fi
}

# Everything that is missing in one message; of libraries Meson says it, also all at once.
check_tools() {
    missing=
    compiler=${CC:-cc} # may be two words, "ccache cc"
    command -v "${compiler%% *}" >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
    command -v pkg-config >/dev/null 2>&1 || command -v pkgconf >/dev/null 2>&1 ||
        missing="$missing pkg-config"
    if ! has_meson && ! python3 -c 'import venv, ensurepip' >/dev/null 2>&1; then
        missing="$missing meson ninja-build"
    fi
    [ -z "$missing" ] || fail "missing tools; on Debian and Ubuntu: apt-get install$missing"
}

has_meson() {
    command -v ninja >/dev/null 2>&1 && version=$(meson --version 2>/dev/null) &&
        [ "${version%%.*}" -ge 1 ]
}

find_meson() {
    PATH=$VENV/bin:$PATH
    check_tools
    has_meson && return
    say "making a small environment with Meson and Ninja at $VENV"
    python3 -m venv "$VENV"
    "$VENV/bin/python" -m pip install --disable-pip-version-check -q meson ninja ||
        fail "pip could not install them; with packages of the system: apt-get install meson ninja-build"
}

install() {
    find_meson
    made=
    [ -e "$BUILD" ] || made=$BUILD
    if [ -e "$BUILD/build.ninja" ]; then
        meson configure "$BUILD" --prefix "$PREFIX"
    else
        meson setup "$BUILD" --prefix "$PREFIX" -Dtests=disabled >"$BUILD.log" 2>&1 || {
            grep -E 'ERROR' "$BUILD.log" >&2 || cat "$BUILD.log" >&2
            [ -z "$made" ] || rm -rf "$made" # not a folder that was there before
            fail "the build failed; its output is in $BUILD.log"
        }
    fi
    ninja -C "$BUILD" --quiet
    DESTDIR=$DESTDIR meson install -C "$BUILD" --no-rebuild --quiet
    refresh
    say "headrace is in $DESTDIR$PREFIX; make uninstall takes it away again"
}

uninstall() {
    log=$BUILD/meson-logs/install-log.txt
    [ -e "$log" ] || fail "$log is not there, which lists what was installed: run make install" \
        "with the same PREFIX and DESTDIR first"
    # Folders come after what lies in them; those that others use stay.
    grep -v '^#' "$log" | sort -r | while IFS= read -r path; do
        if [ -d "$path" ] && [ ! -L "$path" ]; then
            rmdir "$path" 2>/dev/null || true
        else
            rm -f "$path"
        fi
    done
    rm -f "$log"
    refresh
    say "headrace is gone"
}

case ${1:-} in
'') install ;;
--uninstall) uninstall ;;
*) fail "unknown argument $1 (known: --uninstall)" ;;
esac
