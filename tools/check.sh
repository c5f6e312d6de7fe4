#!/bin/sh
# Runs every check of the repository's rules: include order, calls and imports without circles,
# headers that compile alone as C and C++, exported symbols, install-and-link, sources, names,
# subjects of commits, formatting.
# `make test` contains all but the last; this is the quick way while working.
#
# Variables: BUILD (build), the Meson build folder, made where it is missing.
set -eu

cd -- "$(dirname -- "$0")/.."
BUILD=${BUILD:-build}
if [ -d .venv/bin ]; then
    PATH=$PWD/.venv/bin:$PATH
fi
command -v meson >/dev/null 2>&1 || {
    echo "check: meson is not there; run tools/setup.sh first" >&2
    exit 3
}
[ -e "$BUILD/build.ninja" ] || meson setup "$BUILD" >/dev/null
ninja -C "$BUILD" --quiet
status=0
meson test -C "$BUILD" --suite checks --no-rebuild --print-errorlogs || status=1
# Only where clang-format 14 is there: 77 says that it is not.
tools/check_format.sh || [ $? = 77 ] || status=1
exit $status
