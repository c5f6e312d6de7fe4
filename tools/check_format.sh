#!/bin/sh
# Checks that clang-format would not change the C files (.clang-format).
#
# Versions differ in details, so only version 14 is used (Debian 12's, with which the
# project is formatted). Without it the exit status is 77: not checked.
# Usage: check_format.sh [--fix]; --fix formats the files instead.
set -eu

cd -- "$(dirname -- "$0")/.."
format=$(command -v clang-format-14 || command -v clang-format || true)
version=$([ -z "$format" ] || "$format" --version | sed -n 's/.*version \([0-9]*\)\..*/\1/p')
if [ "$version" != 14 ]; then
    echo "format: not checked, clang-format 14 is not there (found: ${version:-none})"
    exit 77
fi
list=$(find include src cli python examples bench tests -name '*.[ch]' 2>/dev/null | sort)
if [ "${1:-}" = --fix ]; then
    # No file name of the project has blanks in it.
    # shellcheck disable=SC2086
    exec "$format" -i $list
fi
# shellcheck disable=SC2086
wrong=$("$format" --dry-run $list 2>&1 | sed -n 's/:[0-9]*:[0-9]*: .*clang-format-violations.*//p' |
    sort -u)
if [ -n "$wrong" ]; then
    echo "$wrong" | sed 's/$/: not formatted; run tools\/check_format.sh --fix/'
    exit 1
fi
echo "format: $(echo "$list" | wc -l) files in order"
