#!/usr/bin/env python3
"""Makes tests/golden/sounds: one short file of each kind that decoders treat differently."""

import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import sounds  # noqa: E402

OUT = Path(__file__).resolve().parent / "sounds"


def without_tag(data):
    """Drops the first MPEG frame, which holds LAME's tag, of a file of variable bit rate."""
    rates = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
    header = struct.unpack(">I", data[:4])[0]
    bits, padding = rates[header >> 12 & 15], header >> 9 & 1
    return data[144 * bits * 1000 // 44100 + padding :]


def main():
    OUT.mkdir(exist_ok=True)
    stereo = sounds.music(1.2, 44100, kind=1)
    sounds.write(OUT / "mpeg1.mp3", stereo, 44100, "variable", 0.9)
    (OUT / "untagged.mp3").write_bytes(without_tag((OUT / "mpeg1.mp3").read_bytes()))
    sounds.write(OUT / "mpeg2.mp3", sounds.music(3, 22050, kind=2, channels=1), 22050, level=0.8)
    sounds.write(OUT / "stereo.ogg", stereo, 44100, level=0.9)
    sounds.write(OUT / "mono.flac", sounds.music(0.4, 32000, kind=3, channels=1), 32000, level=1)
    sounds.write(OUT / "speech.opus", sounds.music(0.2, 48000, channels=1), 48000)


if __name__ == "__main__":
    main()
