#!/usr/bin/env bash
# Installs the wheel in dist/ into empty environments, without a compiler in PATH and without an
# index, and uses what it brings: the command on images, the package without torch and with it.
#
# Usage: try.sh [--suite]
#   --suite   then runs the Python tests against the wheel, those of `make test`
#
# Variables:
#   PYTHONS   interpreters to try, each in an environment of its own (python3 and those of
#             python3.11 to python3.15 that are in PATH and run)
#   ROOT      the root of another system, to try the wheel there too (as root):
#             debootstrap --variant=minbase --include=python3,python3-venv bookworm ROOT
#             One of another machine, --arch=arm64, gets that machine's wheel; qemu-user-static and
#             binfmt-support run its programs.
#   VENV      the environment whose torch is used (.venv); without it that part is left out
#   DIST      the folder with the wheel (dist)
#   JOBS      processes that share the tests of --suite (the cores)
#   LOGS      the folder for their output (a temporary one)
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
dist=$(realpath "${DIST:-dist}")
venv=$(realpath -m "${VENV:-.venv}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

fail() {
    printf 'try: %s\n' "$*" >&2
    exit 1
}

version=$(sed -n "s/^  version: '\(.*\)',/\1/p" meson.build)
# wheel_for MACHINE: its wheel for CPython with the GIL.
wheel_for() {
    local wheels=("$dist"/headrace-"$version"-*-abi3-*"$1".whl)
    [ ${#wheels[@]} = 1 ] && [ -e "${wheels[0]}" ] || fail "not one wheel for $1 in $dist: make wheels"
    echo "${wheels[0]}"
}

wheel=$(wheel_for "$(uname -m)")
mkdir -p "$scratch/images/one" "$scratch/images/two"
cp tests/golden/codec/rgb.jpg "$scratch/images/one/a.jpg"
cp tests/golden/codec/420.jpg "$scratch/images/two/b.jpg"
mkdir -p "$scratch/sounds/all"
cp tests/golden/sounds/{mono.flac,mpeg1.mp3,stereo.ogg} "$scratch/sounds/all"

cat >"$scratch/use.py" <<'END'
import sys
from pathlib import Path
import headrace

root = Path(sys.argv[1])
assert "torch" not in sys.modules
data = headrace.ImageFolder(root)
assert len(data) == 2 and data.classes == ["one", "two"], data
image = memoryview(headrace.Preparer().decode((root / "one" / "a.jpg").read_bytes()))
assert len(image.shape) == 3, image.shape
clips = headrace.AudioFolder(root.parent / "sounds")
assert not clips.verify(), clips.verify()
formats = {clips.info(i)["format"] for i in range(len(clips))}
assert len(formats) == 3, formats
if sys.argv[2:] == ["torch"]:
    from headrace.torch import DataLoader
    from headrace import transforms as t
    recipe = t.Compose([t.Resize((32, 32)), t.ToTensor()])
    loader = DataLoader(headrace.ImageFolder(root, transform=recipe), batch_size=2)
    (batch,) = loader
    assert tuple(batch[0].shape) == (2, 3, 32, 32), batch[0].shape
print("used", headrace.__file__, "with Python", sys.version.split()[0])
END

# use PYTHON FOLDER [torch]: the command and the package of an environment, its bin/ alone in PATH.
use() {
    local bin
    bin=$(dirname "$1")
    env -i PATH="$bin" "$bin/headrace" version
    # Of a compiler's runtime that knows no processor nothing else would tell.
    ! grep -qw avx2 /proc/cpuinfo ||
        ! env -i PATH="$bin" "$bin/headrace" version | grep -qw portable ||
        fail "the wheel does not find this processor's instructions"
    env -i PATH="$bin" "$bin/headrace" scan "$2/images" --verify >/dev/null
    env -i PATH="$bin" HOME="$scratch" "$1" "$2/use.py" "$2/images" "${@:3}"
}

# environment PYTHON FOLDER: an empty one with the wheel.
environment() {
    "$1" -m venv "$2"
    env -i PATH="$2/bin" "$2/bin/pip" install -q --disable-pip-version-check --no-index \
        --only-binary :all: "$wheel"
}

in_other_root() {
    local place=$ROOT/headrace-try
    local other
    [ -x "$ROOT/usr/bin/python3" ] || fail "$ROOT has no python3"
    ! chroot "$ROOT" /bin/sh -c 'command -v cc gcc clang' || fail "$ROOT has a compiler"
    other=$(wheel_for "$(chroot "$ROOT" uname -m)")
    rm -rf "$place"
    mkdir "$place"
    cp -r "$other" "$scratch"/{use.py,images,sounds} "$place"
    # The dynamic linker finds libraries beside a program through /proc; the mount ends with the command.
    unshare --mount sh -ec 'mount -t proc proc "$1/proc"; exec chroot "$@"' - \
        "$ROOT" /bin/sh -ec 'cd /headrace-try; python3 -m venv env
        env/bin/pip install -q --disable-pip-version-check --no-index ./*.whl
        env/bin/headrace version; env/bin/headrace scan images --verify >/dev/null
        env/bin/python use.py images; . /etc/os-release; echo "in $PRETTY_NAME, $(uname -m)"'
    rm -rf "$place"
}

tried=" "
for python in ${PYTHONS:-python3 python3.11 python3.12 python3.13 python3.14 python3.15}; do
    number=$("$python" -c 'import sys
print("%d.%d" % sys.version_info[:2])
sys.exit(sys.version_info < (3, 11))' 2>/dev/null) || continue
    case $tried in *" $number "*) continue ;; esac
    tried+="$number "
    environment "$python" "$scratch/env-$number"
    use "$scratch/env-$number/bin/python" "$scratch"
done
[ "$tried" != " " ] || fail 'no Python of PYTHONS can be started'
[ -z "${ROOT:-}" ] || in_other_root

if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
    [ "${1:-}" != --suite ] || fail "no torch in $venv, which the tests need: make package, or VENV="
    echo "try: no torch in $venv: that part is left out"
    exit
fi
# The wheel's own files come first, then torch and the rest of that environment.
environment "$venv/bin/python" "$scratch/torch"
modules='import sysconfig; print(sysconfig.get_path("purelib"))'
"$venv/bin/python" -c "$modules" >"$("$scratch/torch/bin/python" -c "$modules")/after.pth"
use "$scratch/torch/bin/python" "$scratch" torch
if [ "${1:-}" = --suite ]; then
    logs=$(realpath -m "${LOGS:-$scratch/logs}")
    mkdir -p "$logs" "$scratch/bin"
    # The system's programs without its compilers.
    find /usr/bin /usr/sbin -maxdepth 1 ! -type d -regextype egrep \
        ! -regex '.*/([^/]*-)?(cc|c89|c99|c\+\+|gcc|g\+\+|cpp|clang|clang\+\+|ccache)(-[0-9.]+)?' \
        -exec ln -sf -t "$scratch/bin" {} +
    PATH=$scratch/torch/bin:$scratch/bin "$scratch/torch/bin/python" tools/run_tests.py \
        --build "$logs" --package --jobs "${JOBS:-$(nproc)}"
fi
