"""make bench-augment: augmentations on one core against torchvision.

A JPEG file in memory becomes 3 x 224 x 224 normalised floats: RandomResizedCrop, a flip, and the
augmentation of the part. Every worker runs in its own process on the same core; passes alternate.
Figures are ratios over the better of torchvision's two ways: PIL images, and uint8 tensors after
simplejpeg.
"""

import glob
import json
import os
import subprocess
import tempfile

import harness
from harness import Missing, log

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
VENV = os.path.join(os.environ.get("VENV") or os.path.join(ROOT, ".venv"), "bin", "python")
# name: (python, script)
WORKERS = {
    "Headrace": (VENV, "augment_headrace.py"),
    "Headrace, loader": (VENV, "augment_loader.py"),
    "torchvision, PIL": (VENV, "augment_pil.py"),
    "torchvision, tensor": (VENV, "augment_tensor.py"),
}

# One in this many images is enough where torchvision blurs: it takes 20 to 120 ms for each.
BLUR_SHARE = 4

AGAINST_TORCHVISION = ("Headrace", "torchvision, PIL", "torchvision, tensor")


def start(listing, recipe, core, names=AGAINST_TORCHVISION):
    """Starts the workers. A peer that cannot be had is left out."""
    workers = []
    for name in names:
        python, script = WORKERS[name]
        command = [python, os.path.join(HERE, "peers", script), "--files", listing,
                   "--recipe", recipe]
        try:
            workers.append(harness.Worker(name, command, {core}))
        except Missing as reason:
            log(f"missing   {name}: {reason}")
            if name.startswith("Headrace"):
                raise
    if len(names) > 1 and len(workers) == 1:
        raise Missing("neither of torchvision's ways can be had")
    return workers


def measured(workers, passes):
    """Runs all workers in turn, and ends them."""
    try:
        harness.interleave(workers, passes)
    finally:
        for worker in workers:
            worker.close()
    return workers


def compare(parts, recipe, key, share):
    """One recipe: our speed over the better of the peers', on one of `share` images."""
    with open(parts.listing) as f:
        paths = f.read().splitlines()[:parts.args.images // share]
    listing = harness.write_list(parts.scratch, recipe, paths)
    workers = measured(start(listing, recipe, parts.core), parts.args.passes)
    ours, peers = workers[0], workers[1:]
    best = min(peers, key=lambda w: w.micros())
    for worker in workers:
        note = f"{harness.ratio(ours, worker):>6.2f}x" if worker is not ours else ""
        log(f"{recipe:<16} {worker.name:<22} {worker.micros():>8.0f} us {note}")
    parts.figures[f"{recipe}_us"] = ours.micros()
    parts.figures[f"{recipe}_peer"] = best.name
    parts.figures[key] = harness.ratio(ours, best)


def recipe_part(recipe, key, share=1):
    return lambda parts: compare(parts, recipe, key, share)


def views(parts):
    """Ten views of one decode over ten separate decodes, both ours: views that are crops, and views
    with DINO's augmentation."""
    for recipe, key in (("crops", "views_vs_single_decode"), ("dino", "dino_views_vs_single_decode")):
        workers = measured([*start(parts.listing, recipe, parts.core, ("Headrace",)),
                            *start(parts.listing, f"{recipe}_apart", parts.core, ("Headrace",))],
                           parts.args.passes)
        parts.figures[key] = harness.ratio(*workers)
        log(f"{recipe:<9} {workers[0].micros():.0f} us together, {workers[1].micros():.0f} us apart")


def uint8(parts):
    """uint8 batches with headrace.torch.Normalize in the consumer, over float32 batches: a loader
    with one thread, on the same core."""
    workers = measured([*start(parts.listing, "uint8", parts.core, ("Headrace, loader",)),
                        *start(parts.listing, "float32", parts.core, ("Headrace, loader",))],
                       parts.args.passes)
    parts.figures["uint8_handover_vs_float32"] = harness.ratio(*workers)
    log(f"uint8     {workers[0].micros():.0f} us, float32 {workers[1].micros():.0f} us")


def webp(parts):
    """The same photographs as WebP files of quality 80, without augmentation."""
    from PIL import Image

    paths = []
    with open(parts.listing) as f:
        for i, path in enumerate(f.read().splitlines()[:parts.args.images // 4]):
            out = os.path.join(parts.scratch, f"{i}.webp")
            Image.open(path).convert("RGB").save(out, "WEBP", quality=80)
            paths.append(out)
    listing = harness.write_list(parts.scratch, "webp", paths)
    workers = measured(start(listing, "plain", parts.core, ("Headrace", "torchvision, PIL")),
                       parts.args.passes)
    for worker in workers:
        log(f"{'webp':<16} {worker.name:<22} {worker.micros():>8.0f} us")
    parts.figures["webp_vs_pillow"] = harness.ratio(*workers)


def python_tail(parts):
    """A dataset and a transform of one's own in worker processes: bench/tail.py."""
    script = os.path.join(HERE, "tail.py")
    out = subprocess.run([VENV, script], stdout=subprocess.PIPE, text=True, check=False)
    try:
        figures = json.loads(out.stdout.strip().splitlines()[-1])["figures"]
    except (IndexError, KeyError, ValueError):
        raise Missing(f"bench/tail.py ended with status {out.returncode}") from None
    parts.figures.update(figures)


def classes(parts):
    """What tools/transforms_table.py counts, and which of the classes a loader accepts."""
    code = ("import sys; sys.path.insert(0, 'tools'); import transforms_table as t; "
            "found = t.classes_of(t.v2); print(*t.table('v2', found)[1:], t.accepted(found))")
    out = subprocess.run([VENV, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                         check=True).stdout
    native, count, accepted = map(int, out.split())
    parts.figures["v2_classes_native"] = native / count
    parts.figures["v2_classes_accepted"] = accepted / count
    log(f"v2        a loader accepts {accepted} of {count} classes; {native} run in C")


def imports(parts):
    """Seconds to import headrace without torch, the median of nine."""
    code = ("import time; t = time.perf_counter(); import headrace; "
            "print(time.perf_counter() - t)")
    times = [float(subprocess.run([VENV, "-c", code], stdout=subprocess.PIPE, text=True,
                                  check=True).stdout) for _ in range(9)]
    parts.figures["import_s"] = sorted(times)[len(times) // 2]
    log(f"import    {parts.figures['import_s']:.3f} s")


def newest_source():
    """When the files were written that a wheel is made of."""
    files = [os.path.join(ROOT, name) for name in ("meson.build", "pyproject.toml")]
    for folder in ("src", "include", "python", "cli"):
        for place, _, names in os.walk(os.path.join(ROOT, folder)):
            files += [os.path.join(place, name) for name in names if not name.endswith(".pyc")]
    return max(map(os.path.getmtime, files))


def wheel(parts):
    """Size of the x86-64 wheel in dist/. It is built where it is missing, or older than its sources:
    a minute, and two more if its libraries have to be compiled."""
    pattern = os.path.join(ROOT, "dist", "headrace-*-abi3-*x86_64.whl")
    if not glob.glob(pattern) or max(map(os.path.getmtime, glob.glob(pattern))) < newest_source():
        log("wheel     make wheels")
        command = ["timeout", str(int(parts.left())), "tools/wheels/make.sh", "x86_64"]
        made = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True)
        if made.returncode:
            last = made.stderr.strip().rpartition("\n")[2] or f"status {made.returncode}"
            raise Missing(f"the wheel cannot be built: {last}")
    newest = max(glob.glob(pattern), key=os.path.getmtime)
    parts.figures["wheel_mb"] = os.path.getsize(newest) / 1e6
    log(f"wheel     {parts.figures['wheel_mb']:.2f} MB: {os.path.basename(newest)}")


PARTS = {
    "randaugment": (recipe_part("randaugment", "randaugment_vs_torchvision"),
                    ["randaugment_vs_torchvision"], 60),
    "trivialaugment": (recipe_part("trivialaugment", "trivialaugment_vs_torchvision"),
                       ["trivialaugment_vs_torchvision"], 60),
    "erasing_blur": (recipe_part("erasing_blur", "erasing_blur_vs_torchvision", BLUR_SHARE),
                     ["erasing_blur_vs_torchvision"], 60),
    "dino": (recipe_part("dino", "dino_views_vs_torchvision", BLUR_SHARE),
             ["dino_views_vs_torchvision"], 120),
    "views": (views, ["views_vs_single_decode", "dino_views_vs_single_decode"], 60),
    "uint8": (uint8, ["uint8_handover_vs_float32"], 30),
    "webp": (webp, ["webp_vs_pillow"], 60),
    "tail": (python_tail, ["python_tail_vs_torch"], 180),
    "classes": (classes, ["v2_classes_native", "v2_classes_accepted"], 60),
    "import": (imports, ["import_s"], 10),
    "wheel": (wheel, ["wheel_mb"], 60),
}


def main():
    options = harness.parser("augment", __doc__, PARTS, 15,
                             os.environ.get("DATA") or os.path.join(ROOT, "data", "sample"),
                             "an image folder")
    options.add_argument("--images", type=int, default=256)
    options.add_argument("--passes", type=int, default=7)
    parts = harness.Parts(options.parse_args())
    parts.core = harness.choose_core()
    paths = harness.choose_jpegs(parts.args.data, parts.args.images,
                                 "make the sample set with `make samples`")
    with tempfile.TemporaryDirectory() as scratch:
        parts.scratch = scratch
        parts.listing = harness.write_list(scratch, "files", paths)
        parts.run(PARTS, (subprocess.SubprocessError, OSError))
    parts.finish("augment")


if __name__ == "__main__":
    main()
