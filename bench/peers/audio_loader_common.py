"""What the loaders of bench/audio.py share: M5's input, batches of 8 windows of 5 s at 8 kHz, from
clips that are listed several times, so that an epoch is long enough to measure."""

import argparse
import json
import os
import sys
import time

SECONDS = 5
RATE = 8000
BATCH = 8
REPEATS = 4


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", required=True, help="a list of paths, one per line")
    parser.add_argument("--pack", help="read this pack instead (Headrace)")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args()


def paths(args):
    with open(args.files) as f:
        return f.read().splitlines() * REPEATS


def serve(name, version, loader):
    """Answers passes. Each iterates once over `loader` and drops the batches."""
    print(json.dumps({"name": name, "version": version}), flush=True)
    for line in sys.stdin:
        if line.strip() != "pass":
            break
        wall, samples = time.perf_counter(), 0
        for waves, labels in loader:
            assert tuple(waves.shape[1:]) == (1, SECONDS * RATE)
            samples += len(labels)
        wall = time.perf_counter() - wall
        print(json.dumps({"seconds": wall, "samples": samples}), flush=True)
