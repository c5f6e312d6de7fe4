"""The worker side of the harness for peers in Python: arguments, the samples in
memory, the crops, and the loop that answers passes.

Every peer turns each encoded image into one 3 x 224 x 224 float32 sample,
normalised, in a batch buffer of 64 that is written over and over, as a loader
would. Crops are drawn once by torchvision's formula with a fixed seed; peers
that bring their own random crop draw from the same distribution.
"""

import argparse
import io
import json
import math
import random
import sys
import time

SIZE = 224
BATCH = 64
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", required=True, help="a list of paths, one per line")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recipe", default="plain", help="of recipes.py")
    return parser.parse_args()


def load(args):
    """Reads the encoded images."""
    with open(args.files) as f:
        paths = f.read().splitlines()
    blobs = []
    for path in paths:
        with open(path, "rb") as f:
            blobs.append(f.read())
    return blobs


def crops(blobs, seed):
    """Draws (left, top, width, height, flip) for each image like torchvision's
    RandomResizedCrop: 10 tries, area uniform in [0.08, 1], log-uniform ratio."""
    from PIL import Image

    rng = random.Random(seed)
    out = []
    for blob in blobs:
        width, height = Image.open(io.BytesIO(blob)).size
        out.append((*crop(rng, width, height), rng.random() < 0.5))
    return out


def crop(rng, width, height):
    low, high = math.log(3 / 4), math.log(4 / 3)
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1)
        ratio = math.exp(rng.uniform(low, high))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, width - w), rng.randint(0, height - h), w, h
    ratio = width / height
    w, h = width, height
    if ratio < 3 / 4:
        h = round(w / (3 / 4))
    elif ratio > 4 / 3:
        w = round(h * (4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h


def serve(name, version, one_pass, samples):
    """Answers passes until standard input ends."""
    print(json.dumps({"name": name, "version": version}), flush=True)
    for line in sys.stdin:
        if line.strip() != "pass":
            break
        wall, cpu = time.perf_counter(), time.process_time()
        one_pass()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(json.dumps({"seconds": wall, "cpu_seconds": cpu, "samples": samples}), flush=True)
