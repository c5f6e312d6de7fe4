"""The worker side of bench/object.py: epochs over data at URLs, timed from the second batch on."""

import argparse
import json
import resource
import sys
import time


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True, help="a list of URLs, or what holds the shards")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60, help="leave an epoch after so long")
    return parser.parse_args()


def cpu_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def urls(path):
    """Returns the URLs of a list of `bench/object.py`."""
    with open(path) as file:
        return [line.split("\t")[0] for line in file]


def decode(data):
    """Decodes an image to a tensor, as torchvision's datasets do."""
    import io

    import numpy
    import torch
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        pixels = numpy.asarray(image.convert("RGB"))
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1)


def serve(name, version, epoch, seconds, stats=dict):
    """Answers passes. epoch(): the batches of the next epoch. stats(): counts besides."""
    print(json.dumps({"name": name, "version": version}), flush=True)
    for line in sys.stdin:
        if line.strip() != "pass":
            break
        begin, cpu, first, samples, steady = time.perf_counter(), cpu_seconds(), None, 0, 0
        for batch in epoch():
            now = time.perf_counter()
            count = len(batch[0])
            samples += count
            if first is None:
                first = now
            else:
                steady += count
            if now - begin > seconds:
                break
        end = time.perf_counter()
        print(json.dumps({"seconds": end - begin, "first_s": first - begin,
                          "steady_s": end - first, "steady": steady, "samples": samples,
                          "cpu_seconds": cpu_seconds() - cpu, **stats()}), flush=True)
