"""make bench-detection: SSD300's training recipe on images with boxes, on one core against torchvision.

The set of tools/make_detection.py: photographs of 500x375 with pasted objects, in memory. They become
3 x 300 x 300 normalised floats, their boxes move with them. Every worker runs in its own process on
the same core; passes alternate. Figures are ratios over the better of torchvision's two ways: PIL
images, and uint8 tensors after simplejpeg. Then: handing over targets, and opening a large COCO file.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

import harness
from harness import Missing, log

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TOOLS = os.path.join(ROOT, "tools")
PEERS = os.path.join(HERE, "peers")
VENV = os.path.join(os.environ.get("VENV") or os.path.join(ROOT, ".venv"), "bin", "python")

# name: script and arguments
WORKERS = {
    "Headrace, encoded": ("detection_headrace.py", "--form", "encoded"),
    "Headrace, coefficients": ("detection_headrace.py", "--form", "coefficients"),
    "torchvision, PIL": ("detection_torchvision.py", "--way", "pil"),
    "torchvision, tensor": ("detection_torchvision.py", "--way", "tensor"),
}


def start(parts, recipe, workers):
    """Adds the workers to `workers`. A peer that cannot be had is left out."""
    for name, (script, *arguments) in WORKERS.items():
        command = [VENV, os.path.join(PEERS, script), "--set", parts.set, "--recipe", recipe,
                   *arguments]
        try:
            workers.append(harness.Worker(name, command, {parts.core}))
        except Missing as reason:
            log(f"missing   {name}: {reason}")
            if name.startswith("Headrace"):
                raise
    if len(workers) == 2:
        raise Missing("neither of torchvision's ways can be had")


def micros(worker):
    """Returns the median microseconds of CPU for each sample."""
    return statistics.median(p["cpu_seconds"] / p["samples"] * 1e6 for p in worker.passes)


def compare(parts, recipe):
    """One recipe: our speed over the better of the peers', by CPU time, which other programs on the
    machine change least. Every worker has one thread."""
    workers = []
    try:
        start(parts, recipe, workers)
        harness.interleave(workers, parts.args.passes)
    finally:
        for worker in workers:
            worker.close()
    encoded, coefficients, *peers = workers
    best = min(peers, key=micros)
    for worker in workers:
        log(f"{recipe:<9} {worker.name:<24} {micros(worker):>8.0f} us "
            f"{harness.ratio(encoded, worker, 'cpu_seconds'):>6.2f} of encoded's time")
    for key, ours in (("", encoded), ("coefficients_", coefficients)):
        parts.figures[f"{recipe}_{key}us"] = micros(ours)
        parts.figures[f"{recipe}_{key}vs_torchvision"] = harness.ratio(ours, best, "cpu_seconds")
    parts.figures[f"{recipe}_peer"] = best.name


def recipe_part(recipe):
    return lambda parts: compare(parts, recipe)


def distance(ours, theirs):
    """The two-sample Kolmogorov-Smirnov statistic, over its limit at p = 0.001."""
    steps = sorted([(v, 1 / len(ours)) for v in ours] + [(v, -1 / len(theirs)) for v in theirs])
    here, most = 0.0, 0.0
    for i, (value, step) in enumerate(steps):
        here += step
        if i + 1 == len(steps) or steps[i + 1][0] != value:
            most = max(most, abs(here))
    limit = math.sqrt(-math.log(0.001 / 2) / 2 * (1 / len(ours) + 1 / len(theirs)))
    return most / limit


def boxes(parts):
    """What is left of the boxes after the recipe, ours and torchvision's: how many, and of the first of
    each image the size and the place. The distributions must agree."""
    answer = subprocess.run([VENV, os.path.join(PEERS, "detection_boxes.py"), "--set", parts.set],
                            stdout=subprocess.PIPE, text=True, check=True).stdout
    found = json.loads(answer.splitlines()[-1])
    apart = {name: distance(*both) for name, both in found.items()}
    for name, (ours, theirs) in found.items():
        log(f"boxes     {name:<7} mean {sum(ours) / len(ours):8.3f}, torchvision "
            f"{sum(theirs) / len(theirs):8.3f}; distance {apart[name]:.2f} of the limit")
    if max(apart.values()) > 1:
        raise Missing("the boxes are not distributed as torchvision's")
    parts.figures["boxes_distance_over_limit"] = max(apart.values())


def collate(parts):
    """What targets cost the consumer: a step of a loader of images with rows over that of one of the
    same images with labels."""
    path = os.path.join(parts.set, "images", "000000.jpg")
    answer = subprocess.run([VENV, os.path.join(PEERS, "detection_collate.py"), path],
                            stdout=subprocess.PIPE, text=True, check=True).stdout
    found = json.loads(answer.splitlines()[-1])
    parts.figures["collate_us"] = found["rows"] - found["labels"]
    parts.figures["collate_step_us"] = found["rows"]
    parts.figures["collate_dicts_us"] = found["dicts"]
    log(f"collate   {found['rows']:.0f} us of CPU to take a batch of 32 images with 7 boxes each, "
        f"{found['labels']:.0f} us with labels only;\n          {found['dicts']:.0f} us more for all "
        "dicts")


def coco(parts):
    """A file of 450 MB; the annotation count is that of train2017."""
    path = os.path.join(parts.scratch, "instances.json")
    subprocess.run([sys.executable, os.path.join(TOOLS, "make_coco.py"), path,
                    "--polygon-points", "22"], check=True)
    with open(path, "rb") as f:
        os.fsync(f.fileno())  # writing it back would disturb the runs
    runs = []
    for _ in range(3):
        answer = subprocess.run([VENV, os.path.join(PEERS, "detection_coco.py"), path],
                                stdout=subprocess.PIPE, text=True, check=True).stdout
        runs.append(json.loads(answer.splitlines()[-1]))
    parts.figures["coco_mb"] = os.path.getsize(path) / 1e6
    parts.figures["coco_open_s"] = sorted(run["seconds"] for run in runs)[1]
    parts.figures["coco_open_cpu_s"] = sorted(run["cpu_seconds"] for run in runs)[1]
    parts.figures["coco_open_rss_mb"] = max(run["rss_mb"] for run in runs)
    log(f"coco      {parts.figures['coco_mb']:.0f} MB open in {parts.figures['coco_open_s']:.2f} s "
        f"({parts.figures['coco_open_cpu_s']:.2f} s of CPU), "
        f"{parts.figures['coco_open_rss_mb']:.0f} MB of memory at most")
    os.unlink(path)


# what figures.json asks first, in case that time does not suffice for all
PARTS = {
    "ssd300": (recipe_part("ssd300"), ["ssd300_vs_torchvision",
                                       "ssd300_coefficients_vs_torchvision"], 180),
    "collate": (collate, ["collate_us"], 20),
    "coco": (coco, ["coco_open_s", "coco_open_rss_mb"], 60),
    "plain": (recipe_part("plain"), ["plain_vs_torchvision", "plain_coefficients_vs_torchvision"],
              150),
    "boxes": (boxes, ["boxes_distance_over_limit"], 60),
}


def main():
    options = harness.parser("detection", __doc__, PARTS, 15,
                             os.environ.get("DATA") or os.path.join(ROOT, "data", "sample"),
                             "a folder of photographs, from which the set is made")
    options.add_argument("--images", type=int, default=256)
    options.add_argument("--passes", type=int, default=7)
    parts = harness.Parts(options.parse_args())
    parts.core = harness.choose_core()
    with tempfile.TemporaryDirectory() as scratch:
        parts.scratch, parts.set = scratch, os.path.join(scratch, "set")
        subprocess.run([VENV, os.path.join(TOOLS, "make_detection.py"), parts.args.data, parts.set,
                        "--count", str(parts.args.images), "--size", "500"], check=True)
        parts.run(PARTS, (subprocess.SubprocessError, OSError))
    parts.finish("detection")


if __name__ == "__main__":
    main()
