"""What the workers of bench/audio.py share: the clips in memory, the windows, and the loop that
answers passes. Every peer takes the same window of 5 s of a clip, mixes it down, resamples it to
16 kHz and makes Whisper's log-mel features of it ("logmel"), or resamples it to 8 kHz ("raw")."""

import argparse
import json
import random
import sys
import time

SECONDS = 5
CLIP_SECONDS = 30
RATE = {"logmel": 16000, "raw": 8000}
POINTS, HOP, BANDS = 400, 160, 80


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", required=True, help="a list of paths, one per line")
    parser.add_argument("--recipe", choices=tuple(RATE), default="logmel")
    parser.add_argument("--form", default="encoded", help="of the items (Headrace)")
    parser.add_argument("--rounds", type=int, default=1, help="over the clips in a pass")
    return parser.parse_args()


def load(args):
    """Reads the files."""
    blobs = []
    with open(args.files) as f:
        for path in f.read().splitlines():
            with open(path, "rb") as clip:
                blobs.append(clip.read())
    return blobs


def serve(name, version, one, blobs, rounds=1):
    """Answers passes until standard input ends: calls one(clip, second where the window begins) for
    each clip, `rounds` times."""
    print(json.dumps({"name": name, "version": version, "bytes": sum(map(len, blobs))}), flush=True)
    begins = random.Random(1)
    for line in sys.stdin:
        if line.strip() != "pass":
            break
        clips = blobs * rounds
        at = [begins.uniform(0, CLIP_SECONDS - SECONDS - 0.1) for _ in clips]
        wall, cpu = time.perf_counter(), time.process_time()
        for blob, second in zip(clips, at):
            one(blob, second)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(json.dumps({"seconds": wall, "cpu_seconds": cpu, "samples": len(clips)}), flush=True)
