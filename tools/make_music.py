#!/usr/bin/env python3
"""Makes the clips that `make bench-audio` decodes: 24 clips of 30 s of the music of the game Battle
for Wesnoth, which Debian packages, stereo of 44.1 kHz, as WAV, FLAC, MP3 (256 kb/s) and Vorbis.

Usage: make_music.py [FOLDER]. The folder gets one folder for each format; a complete one is not
changed. Needs apt-get, dpkg and ffmpeg. Nothing is installed.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("wesnoth-1.16-music", "wesnoth-1.18-music")
CLIPS = 24
SECONDS = 30
BEGIN = 15  # seconds into a piece
ENCODERS = {
    "wav": ["-c:a", "pcm_s16le"],
    "flac": ["-c:a", "flac"],
    "mp3": ["-c:a", "libmp3lame", "-b:a", "256k"],
    "ogg": ["-c:a", "libvorbis", "-q:a", "6"],
}


def is_complete(folder):
    return all(len(list((folder / kind).glob(f"*.{kind}"))) == CLIPS for kind in ENCODERS)


def unpack(scratch):
    """Downloads the package. Returns the pieces of music, by name."""
    for package in PACKAGES:
        # as root, apt-get gives up its rights and could not write to the folder
        got = subprocess.run(["apt-get", "-o", "APT::Sandbox::User=root", "download", package],
                             cwd=scratch, capture_output=True, text=True)
        if got.returncode == 0:
            break
    else:
        sys.exit(f"make_music.py: apt-get cannot download {' or '.join(PACKAGES)}: "
                 f"{got.stderr.strip()}; run apt-get update")
    archive = next(Path(scratch).glob("*.deb"))
    subprocess.run(["dpkg", "-x", str(archive), scratch], check=True)
    return sorted(Path(scratch).rglob("*.ogg"), key=lambda path: path.name)


def is_suitable(path):
    """Whether it is stereo of 44.1 kHz and long enough."""
    found = subprocess.run(
        ["ffprobe", "-v", "error", "-show_entries", "stream=sample_rate,channels:format=duration",
         "-of", "default=nw=1:nk=1", str(path)], capture_output=True, text=True, check=True)
    rate, channels, seconds = found.stdout.split()[:3]
    return (rate, channels) == ("44100", "2") and float(seconds) >= BEGIN + SECONDS


def encode(source, folder, number):
    """Writes one clip in all formats; files get their names when they are complete."""
    wav = folder / "wav" / f"{number:02}.wav"
    for kind, encoder in ENCODERS.items():
        out = folder / kind / f"{number:02}.{kind}"
        part = out.with_name(f"part-{out.name}")
        cut = ["-ss", str(BEGIN), "-t", str(SECONDS), "-i", str(source)]
        given = cut if kind == "wav" else ["-i", str(wav)]
        subprocess.run(["ffmpeg", "-v", "error", "-y", *given,
                        "-map", "0:a:0", "-map_metadata", "-1", *encoder, str(part)], check=True)
        os.replace(part, out)


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "data" / "music")
    if is_complete(folder):
        return
    for kind in ENCODERS:
        (folder / kind).mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            pieces = [path for path in unpack(scratch) if is_suitable(path)]
            if len(pieces) < CLIPS:
                sys.exit(f"make_music.py: the package has {len(pieces)} suitable pieces, and "
                         f"{CLIPS} are needed")
            for number, piece in enumerate(pieces[:CLIPS]):
                print(f"\rclip {number + 1} of {CLIPS}", end="", flush=True)
                encode(piece, folder, number)
            print()
    except FileNotFoundError as missing:
        sys.exit(f"make_music.py: {missing.filename} is missing (apt-get install dpkg apt ffmpeg)")


if __name__ == "__main__":
    main()
