#!/bin/sh
# Builds docs/ as a site in BUILD/site, with MkDocs in an environment of its own (VENV-docs). A link
# that leads nowhere is an error. PIP_ARGS: more arguments for pip.
set -eu
cd "$(dirname -- "$0")/.."
venv=${VENV:-.venv}-docs
site=${BUILD:-build}/site
PYTHON=${PYTHON:-python3}
command -v nroff >/dev/null 2>&1 || {
    echo 'docs: nroff is missing, which formats the man pages: apt-get install groff-base' >&2
    exit 3
}
if ! [ -x "$venv/bin/mkdocs" ]; then
    "$PYTHON" -m venv "$venv"
    # shellcheck disable=SC2086
    "$venv/bin/python" -m pip install --disable-pip-version-check -q ${PIP_ARGS:-} mkdocs==1.6.1
fi
case $site in /*) ;; *) site=$PWD/$site ;; esac
"$venv/bin/mkdocs" build --strict --quiet --site-dir "$site"
echo "docs: $site/index.html"
