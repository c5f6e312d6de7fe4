"""make bench-exact: scaled decoding of JPEG files (exact=False) against exact decoding.

For each set and recipe: the shares of samples decoded at 1/2, 1/4 and 1/8, the time relative to
exact decoding, and the distance of the float tensors in units of 1/255: mean, 99.9th percentile
and largest, of all values and by scale. The sets: files of the sample set, of the large set
(1600x1200), and 4000x3000 pixels: nine photographs of the large set side by side, quality 90.
One process on one core; passes of exact and scaled alternate; times are CPU time, ratios
medians over passes.
Options: --images N, --passes N, --data FOLDER, --large FOLDER.
"""

import argparse
import io
import json
import os
import statistics
import sys
import time

import numpy as np
from PIL import Image

import headrace
import headrace.transforms as T
from harness import choose_jpegs, log, machine

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RECIPES = {
    "crop": [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor()],
    "whole": [T.Resize(256), T.CenterCrop(224), T.ToTensor()],
}
NAMES = {"crop": "RandomResizedCrop(224)", "whole": "Resize(256), CenterCrop(224)"}
MOSAIC = (4000, 3000)


def choose(folder, count):
    return choose_jpegs(folder, count, "make the sets with `make samples` and "
                                       "tools/make_samples.py --large 48 --out data/large")


def read(paths):
    out = []
    for path in paths:
        with open(path, "rb") as f:
            out.append(f.read())
    return out


def mosaics(files, count):
    """Makes an image of 12 megapixels from photographs side by side."""
    images = [Image.open(io.BytesIO(data)) for data in files]
    for n in range(count):
        whole = Image.new("RGB", MOSAIC)
        width, height = images[0].size
        for i in range(9):
            whole.paste(images[(9 * n + i * 5) % len(images)], (i % 3 * width, i // 3 * height))
        out = io.BytesIO()
        whole.save(out, "JPEG", quality=90)
        yield out.getvalue()


def run(prepare, files, epoch):
    """Prepares each file once."""
    for index, data in enumerate(files):
        yield np.asarray(prepare(data, seed=1, epoch=epoch, index=index))


def seconds(prepare, files, epoch):
    start = time.process_time()
    for _ in run(prepare, files, epoch):
        pass
    return time.process_time() - start


def distance(differences):
    values = np.concatenate(differences) * 255
    return {"mean": float(values.mean()), "p999": float(np.quantile(values, 0.999)),
            "largest": float(values.max())}


def measure(files, steps, passes):
    """Computes the shares by scale, the distances, and the time relative to exact decoding."""
    exact, scaled = headrace.Preparer(steps), headrace.Preparer(steps, exact=False)
    by_scale, ratios, times = {}, [], []
    for epoch in range(3):
        for a, b in zip(run(exact, files, epoch), run(scaled, files, epoch)):
            by_scale.setdefault(scaled.scale, []).append(np.abs(a - b).ravel())
    for epoch in range(passes):
        spent = [seconds(prepare, files, epoch) for prepare in (exact, scaled)]
        ratios.append(spent[1] / spent[0])
        times.append(spent[0] / len(files) * 1e6)
    count = sum(len(v) for v in by_scale.values())
    shares = {scale: len(v) / count for scale, v in sorted(by_scale.items())}
    unscaled = by_scale.pop(1, [])
    assert not any(d.any() for d in unscaled), "samples that are not scaled differ"
    distances = {scale: distance(v) for scale, v in sorted(by_scale.items())}
    if by_scale:
        distances["all"] = distance([d for v in by_scale.values() for d in v])
    return shares, distances, statistics.median(ratios), statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=192, help="of the sample set")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--data", default=os.path.join(ROOT, "data", "sample"))
    parser.add_argument("--large", default=os.path.join(ROOT, "data", "large"))
    args = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    large = read(choose(args.large, 48))
    sets = {"sample": read(choose(args.data, args.images)), "1600x1200": large,
            "4000x3000": list(mosaics(large, 8))}
    figures = {}
    log(machine())
    log(f"{'set, recipe':<42} {'exact':>9} {'ratio':>6}  {'scale':>5} {'share':>6} "
        f"{'mean':>6} {'99.9 %':>7} {'largest':>8}")
    for name, files in sets.items():
        for recipe, steps in RECIPES.items():
            shares, distances, ratio, micros = measure(files, steps, args.passes)
            head = f"{name}, {NAMES[recipe]:<30}"
            log(f"{head:<42} {micros:>6.0f} us {ratio:>6.2f}")
            for scale, d in distances.items():
                share = 1 - shares.get(1, 0) if scale == "all" else shares[scale]
                log(f"{'':<59} {scale if scale == 'all' else f'1/{scale}':>5} {share:>6.1%} "
                    f"{d['mean']:>6.2f} {d['p999']:>7.1f} {d['largest']:>8.1f}")
            key = f"{name}_{recipe}"
            figures[f"{key}_scaled_vs_exact_time"] = round(ratio, 3)
            figures[f"{key}_scaled_share"] = round(1 - shares.get(1, 0), 3)
            if "all" in distances:
                for part, value in distances["all"].items():
                    figures[f"{key}_{part}"] = round(value, 3)
    print(json.dumps({"bench": "exact", "figures": figures}))


if __name__ == "__main__":
    main()
