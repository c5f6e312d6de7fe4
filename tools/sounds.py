#!/usr/bin/env python3
"""Makes sound files for tests, examples and benchmarks: synthesised music and speech-like clips,
written through libsndfile (with libFLAC, LAME and libvorbis).

Usage: sounds.py FOLDER [--classes N] [--clips N] [--seconds S] [--format wav|flac|mp3|ogg]: makes a
folder of clips, one folder for each class. A class is a melody's scale and timbre, so that a network
can learn it.
"""

import argparse
import ctypes
import ctypes.util
import sys
from pathlib import Path

import numpy

# libsndfile's SF_FORMAT_*
FORMATS = {
    "wav": 0x010000 | 0x0002,
    "flac": 0x170000 | 0x0002,
    "mp3": 0x230000 | 0x0082,
    "ogg": 0x200000 | 0x0060,
    "opus": 0x200000 | 0x0064,
}
READ, WRITE = 0x10, 0x20
SET_BITRATE_MODE, SET_COMPRESSION_LEVEL = 0x1305, 0x1301
BITRATE_MODES = {"constant": 0, "average": 1, "variable": 2}


class _Info(ctypes.Structure):
    _fields_ = [
        ("frames", ctypes.c_int64),
        ("samplerate", ctypes.c_int),
        ("channels", ctypes.c_int),
        ("format", ctypes.c_int),
        ("sections", ctypes.c_int),
        ("seekable", ctypes.c_int),
    ]


def sndfile():
    """Returns libsndfile; None if it is absent."""
    name = ctypes.util.find_library("sndfile")
    if name is None:
        return None
    found = ctypes.CDLL(name)
    found.sf_open.restype = ctypes.c_void_p
    found.sf_open.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(_Info)]
    found.sf_writef_float.restype = ctypes.c_int64
    found.sf_writef_float.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    found.sf_readf_float.restype = ctypes.c_int64
    found.sf_readf_float.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    found.sf_command.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    found.sf_close.argtypes = [ctypes.c_void_p]
    found.sf_strerror.restype = ctypes.c_char_p
    found.sf_strerror.argtypes = [ctypes.c_void_p]
    return found


def read(path):
    """Returns float samples (channels, frames) and the rate."""
    found, info = sndfile(), _Info()
    file = found.sf_open(str(path).encode(), READ, ctypes.byref(info))
    if not file:
        raise RuntimeError(f"{path}: {found.sf_strerror(None).decode()}")
    rows = numpy.empty((info.frames, info.channels), numpy.float32)
    count = found.sf_readf_float(file, rows.ctypes.data, len(rows))
    found.sf_close(file)
    return rows[:count].T, info.samplerate


def write(path, samples, rate, mode="constant", level=None, *, kind=None):
    """Writes float samples (channels, frames).

    Args:
        mode: of the bit rate of MP3.
        level: 0 (best) to 1 (smallest).
        kind: one of SF_FORMAT_*; by default that of the path's extension.
    """
    found = sndfile()
    if found is None:
        raise RuntimeError("libsndfile is missing (apt-get install libsndfile1)")
    rows = numpy.ascontiguousarray(numpy.atleast_2d(samples).T, dtype=numpy.float32)
    kind = kind or FORMATS[Path(path).suffix[1:]]
    info = _Info(samplerate=rate, channels=rows.shape[1], format=kind)
    file = found.sf_open(str(path).encode(), WRITE, ctypes.byref(info))
    if not file:
        raise RuntimeError(f"{path}: {found.sf_strerror(None).decode()}")
    if kind == FORMATS["mp3"]:
        number = ctypes.c_int(BITRATE_MODES[mode])
        found.sf_command(file, SET_BITRATE_MODE, ctypes.byref(number), 4)
    if level is not None:
        real = ctypes.c_double(level)
        found.sf_command(file, SET_COMPRESSION_LEVEL, ctypes.byref(real), 8)
    wrote = found.sf_writef_float(file, rows.ctypes.data, len(rows))
    found.sf_close(file)
    if wrote != len(rows):
        raise RuntimeError(f"{path}: only {wrote} of {len(rows)} frames were written")


def music(seconds, rate, kind=0, seed=0, channels=2):
    """Returns a melody (channels, frames) in -1..1: notes of a scale and a timbre that depend on
    ``kind``, with an attack and a decay, and a little noise."""
    random = numpy.random.default_rng([seed, kind])
    frames = int(seconds * rate)
    out = numpy.zeros((channels, frames))
    at, scale = 0, [0, 2, 4, 5, 7, 9, 11] if kind % 2 else [0, 2, 3, 5, 7, 8, 10]
    while at < frames:
        length = min(int(rate * random.uniform(0.12, 0.5)), frames - at)
        t = numpy.arange(length) / rate
        pitch = 110 * 2 ** ((kind % 5) * 3 / 12 + int(random.integers(0, 3))
                            + scale[int(random.integers(0, 7))] / 12)
        tone = sum(numpy.sin(2 * numpy.pi * pitch * h * t) / h ** (1 + 0.4 * (kind % 3))
                   for h in range(1, 9) if pitch * h < 0.45 * rate)
        tone = tone * numpy.minimum(t / 0.01, 1) * numpy.exp(-t * (3 + kind % 4))
        for c in range(channels):
            out[c, at : at + length] += tone * random.uniform(0.4, 1)
        at += length
    out += random.normal(0, 0.002, out.shape)
    return (0.7 * out / max(abs(out).max(), 1e-9)).astype(numpy.float32)


def folder(root, classes, clips, seconds, extension, rate=44100):
    """Makes a folder of clips, one folder for each class."""
    for kind in range(classes):
        (Path(root) / f"class{kind}").mkdir(parents=True, exist_ok=True)
        for i in range(clips):
            path = Path(root) / f"class{kind}" / f"clip{i:04}.{extension}"
            if not path.exists():
                write(path, music(seconds, rate, kind, i), rate, level=0.3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--classes", type=int, default=4)
    parser.add_argument("--clips", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--format", choices=("wav", "flac", "mp3", "ogg"), default="mp3")
    parser.add_argument("--rate", type=int, default=44100)
    a = parser.parse_args()
    if sndfile() is None:
        sys.exit("sounds.py: libsndfile is missing (apt-get install libsndfile1)")
    folder(a.folder, a.classes, a.clips, a.seconds, a.format, a.rate)


if __name__ == "__main__":
    main()
