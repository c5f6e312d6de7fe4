#!/usr/bin/env python3
"""Makes a set to train classifiers of sounds with: spoken words over quiet music.

A class is a word. Clips differ in voice, speed, pitch, background, length, channels and format (WAV,
FLAC, MP3, Vorbis). The voices of OUT/test are not those of OUT/train. espeak-ng speaks and
libsndfile writes:

    apt-get install espeak-ng libsndfile1
    python tools/make_speech.py OUT [--clips N]
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import wave
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy

import sounds

WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
ACCENTS = ("en-us", "en-gb", "en-gb-scotland")
VOICES = {
    "train": ("m1", "m2", "m3", "m5", "m7", "f1", "f2", "f4"),
    "test": ("m4", "f3"),
}
FORMATS = ("wav", "flac", "mp3", "ogg")
TEST_SHARE = 5  # one clip of so many


def speak(word, draw, part):
    """Returns a word in a voice of a part of the set: its samples, and its rate."""
    voice = f"{draw.choice(ACCENTS)}+{draw.choice(VOICES[part])}"
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        subprocess.run(
            ["espeak-ng", "-v", voice, "-s", str(draw.randint(110, 220)),
             "-p", str(draw.randint(25, 75)), "-w", file.name, word],
            check=True,
        )
        with wave.open(file.name) as spoken:
            data = spoken.readframes(spoken.getnframes())
            return numpy.frombuffer(data, "<i2").astype(numpy.float32) / 32768, spoken.getframerate()


def clip(word, draw, part, seed):
    """Returns a word somewhere in music that is 12 to 30 dB quieter: (channels, frames), rate."""
    spoken, rate = speak(word, draw, part)
    before, after = (int(rate * draw.uniform(0.02, 0.25)) for _ in range(2))
    seconds = (before + len(spoken) + after + 1) / rate
    channels = draw.randint(1, 2)
    mixed = sounds.music(seconds, rate, seed % 7, seed, channels)
    mixed *= 10 ** (-draw.uniform(12, 30) / 20)
    for channel in mixed:
        channel[before : before + len(spoken)] += draw.uniform(0.4, 0.8) * spoken
    return mixed.clip(-1, 1), rate


def make(out, at):
    """Makes clip number `at` of the set."""
    word, number = WORDS[at % len(WORDS)], at // len(WORDS)
    part = "test" if number % TEST_SHARE == TEST_SHARE - 1 else "train"
    path = out / part / word / f"{number:04}.{FORMATS[(at + number) % len(FORMATS)]}"
    if not path.exists():
        whole = path.with_name("." + path.name)
        sounds.write(whole, *clip(word, random.Random(at), part, at))
        whole.rename(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--clips", type=int, default=600, help="in all, at least 50")
    options = parser.parse_args()
    if options.clips < TEST_SHARE * len(WORDS):
        parser.error(f"--clips {options.clips}: at least {TEST_SHARE * len(WORDS)}")
    if shutil.which("espeak-ng") is None or sounds.sndfile() is None:
        sys.exit("make_speech: espeak-ng or libsndfile is missing; "
                 "run: apt-get install espeak-ng libsndfile1")
    for part in VOICES:
        for word in WORDS:
            (options.out / part / word).mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor() as pool:
        for _ in pool.map(lambda at: make(options.out, at), range(options.clips)):
            pass
    print(f"{options.clips} clips of {len(WORDS)} words in {options.out}")


if __name__ == "__main__":
    main()
