#!/usr/bin/env bash
# Installs what the benchmarks compare with: Pillow, OpenCV, DALI, SPDL, FFCV, torchcodec,
# torchaudio, soundfile, librosa, boto3, s3torchconnector, mosaicml-streaming, litdata and WebDataset
# into an environment of their own (.venv-bench), simplejpeg, WebDataset and TensorSocket beside our
# torch, fio, ffmpeg and nginx, and the distribution's torchvision,
# whose compiled decoder loads beside its own torch. Everything is optional: a benchmark says which peer is missing.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
venv=${BENCH_VENV:-$root/.venv-bench}
stamp=$venv/.stamp
[ "$stamp" -nt "$0" ] && exit 0
sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
command -v fio >/dev/null || {
    echo "bench: installing fio"
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends fio >/dev/null ||
        echo "bench: fio cannot be installed here; its figures will be null"
}
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv" || exit 1
for package in numpy pillow opencv-python-headless nvidia-dali-cuda130 spdl; do
    echo "bench: installing $package"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$package" ||
        echo "bench: $package cannot be installed here; its figures will be null"
done
# Sounds: torchcodec needs FFmpeg's libraries, which also make the clips. torchaudio, and torchcodec
# after 0.13, are built for CUDA; what is used of torchaudio needs no compiled part.
command -v ffmpeg >/dev/null || {
    echo "bench: installing ffmpeg"
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ffmpeg >/dev/null ||
        echo "bench: ffmpeg cannot be installed here; figures of sounds will be null"
}
for packages in "${TORCH:-torch==2.13.0} torchcodec==0.13.0" "--no-deps torchaudio" soundfile librosa; do
    echo "bench: installing $packages"
    # shellcheck disable=SC2086 # several words
    "$venv/bin/pip" install --quiet --disable-pip-version-check $packages ||
        echo "bench: $packages cannot be installed here; their figures will be null"
done
"$venv/bin/python" -c 'import torchaudio' 2>/dev/null ||
    rm -f "$venv"/lib/python3*/site-packages/torchaudio/lib/_torchaudio*.so
# Object storage: nginx is the server of bench/object.py.
command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || {
    echo "bench: installing nginx"
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nginx-light >/dev/null ||
        echo "bench: nginx cannot be installed here; figures of object storage will be null"
}
for package in boto3 s3torchconnector mosaicml-streaming litdata webdataset; do
    echo "bench: installing $package"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$package" ||
        echo "bench: $package cannot be installed here; its figures will be null"
done
# FFCV comes as source: it needs OpenCV's and TurboJPEG's headers, and a torch.
if ! "$venv/bin/python" -c 'import ffcv' 2>/dev/null; then
    echo "bench: building ffcv"
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        g++ pkg-config libopencv-dev libturbojpeg0-dev >/dev/null &&
        "$venv/bin/pip" install --quiet --disable-pip-version-check "${TORCH:-torch==2.13.0}" ffcv ||
        echo "bench: ffcv cannot be built here; its figures will be null"
fi
if [ -n "${VENV:-}" ] && [ -x "$VENV/bin/pip" ]; then
    "$VENV/bin/pip" install --quiet --disable-pip-version-check simplejpeg webdataset || true
    echo "bench: installing tensorsocket"
    "$VENV/bin/pip" install --quiet --disable-pip-version-check tensorsocket==0.0.5 ||
        echo "bench: tensorsocket cannot be installed here; its figure will be null"
fi
if ! /usr/bin/python3 -c 'import torchvision' 2>/dev/null; then
    echo "bench: installing python3-torchvision from the distribution"
    $sudo apt-get install -y -qq python3-torchvision >/dev/null ||
        echo "bench: python3-torchvision cannot be installed here; its figure will be null"
fi
touch "$stamp"
