"""make bench-pack: samples/s of a training loader over a pack on all cores, compared with
ImageFolder + torch DataLoader, WebDataset tar shards and FFCV files of the same images, with a
warm page cache, then a cold one; and how fast a pack opens.

Per sample: decode, RandomResizedCrop(224), flip, normalise, float32, into batches
in the training process. Passes alternate; ratios are medians of per-pass ratios;
above 1 means Headrace is faster. Options: --samples N, --passes N, --data DIR.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

import harness
import loader as folders
from harness import log

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HERE = os.path.join(ROOT, "bench")
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build"))
HEADRACE = os.path.join(BUILD, "cli", "headrace")
VENV = os.path.join(os.environ.get("VENV", os.path.join(ROOT, ".venv")), "bin", "python")
BENCH_VENV = os.path.join(os.environ.get("BENCH_VENV", os.path.join(ROOT, ".venv-bench")), "bin",
                          "python")
SHARD_SAMPLES = 160
SHRUNK = 256  # longest side of FFCV's pre-shrunk images

# name: (interpreter, script, what it reads, key of its figure)
PEERS = {
    "torch": (VENV, "torch_loader.py", "folder", "warm_vs_torch"),
    "webdataset": (VENV, "webdataset_loader.py", "shards", "warm_vs_webdataset"),
    "ffcv": (BENCH_VENV, "ffcv_loader.py", "beton", "warm_vs_ffcv"),
    "ffcv_shrunk": (BENCH_VENV, "ffcv_loader.py", "beton_shrunk", "warm_vs_ffcv_shrunk"),
}
FORMS = ["coefficients", "planes", "indexed", "encoded"]
LABELS = {"coefficients": "Headrace pack, coefficients", "planes": "Headrace pack, planes",
          "indexed": "Headrace pack, indexed", "encoded": "Headrace pack, encoded",
          "torch": "ImageFolder + torch DataLoader",
          "webdataset": "WebDataset tar shards", "ffcv": "FFCV, full-size JPEG",
          "ffcv_shrunk": f"FFCV, pre-shrunk to {SHRUNK}"}


def tree_bytes(path):
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, names in os.walk(path) for f in names)


def write_shards(folder, out):
    """Writes tar shards in WebDataset's layout, with samples shuffled once, as its docs advise."""
    os.makedirs(out)
    classes = sorted(os.listdir(folder))
    samples = [(os.path.join(folder, c, f), i) for i, c in enumerate(classes)
               for f in sorted(os.listdir(os.path.join(folder, c)))]
    step = 7919  # a prime, so it visits all samples and mixes the classes
    order = [i * step % len(samples) for i in range(len(samples))]
    for first in range(0, len(order), SHARD_SAMPLES):
        name = os.path.join(out, f"train-{first // SHARD_SAMPLES:06d}.tar")
        with tarfile.open(name, "w") as tar:
            for i in order[first:first + SHARD_SAMPLES]:
                path, label = samples[i]
                tar.add(os.path.realpath(path), arcname=f"{i:08d}.jpg")
                text = os.path.join(out, "label")
                with open(text, "w") as f:
                    f.write(str(label))
                tar.add(text, arcname=f"{i:08d}.cls")
                os.unlink(text)


def make_inputs(folder, scratch, figures):
    """Makes everything that the loaders read: {name: path; None: the reason is in figures}."""
    paths = {"folder": folder, "shards": os.path.join(scratch, "shards")}
    write_shards(folder, paths["shards"])
    for form in FORMS:
        paths[form] = os.path.join(scratch, form + ".hrpack")
        start = time.perf_counter()
        subprocess.run([HEADRACE, "pack", folder, paths[form], "--form", form, "--no-progress"],
                       check=True, stdout=subprocess.DEVNULL)
        figures[f"write_{form}_s"] = time.perf_counter() - start
    for name, extra in (("beton", []), ("beton_shrunk", [str(SHRUNK)])):
        paths[name] = os.path.join(scratch, name)
        done = subprocess.run([BENCH_VENV, os.path.join(HERE, "peers", "ffcv_write.py"), folder,
                               paths[name], *extra], check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it ended without an answer"])[-1]
            paths[name], figures[name + "_reason"] = None, last[:200]
    return paths


def start_workers(args, paths, figures):
    cores = os.sched_getaffinity(0)
    common = ["--workers", str(len(cores)), "--samples", str(args.samples)]
    workers = []
    for form in FORMS:
        workers.append(harness.Worker(form, [VENV, os.path.join(HERE, "peers", "headrace_pack.py"),
                                             "--data", paths[form], *common], cores))
    for name, (python, script, source, key) in PEERS.items():
        figures[key] = None
        if paths[source] is None:
            figures[key + "_reason"] = figures[source + "_reason"]
            continue
        try:
            workers.append(harness.Worker(
                name, [python, os.path.join(HERE, "peers", script), "--data", paths[source],
                       *common], cores, {"OMP_NUM_THREADS": "1"}))
        except harness.Missing as reason:
            figures[key + "_reason"] = str(reason)
            log(f"missing   {name}: {reason}")
    return workers


def report(workers, paths, figures, prefix, base):
    ours = workers[0]
    sources = {name: source for name, (_, _, source, _) in PEERS.items()}
    for worker in workers:
        speed = 1e6 / worker.micros()
        figures[f"{prefix}_{worker.name}_samples_per_s"] = round(speed)
        if worker is not ours:
            figures[f"{prefix}_vs_{worker.name}"] = harness.ratio(ours, worker)
        path = paths[sources.get(worker.name, worker.name)]
        cpu = statistics.median(p["cpu_seconds"] / p["samples"] for p in worker.passes) * 1e3
        times = "" if worker is ours else f"{harness.ratio(ours, worker):.2f}x"
        log(f"{LABELS[worker.name]:<32} {speed:>10.0f} {cpu:>10.3f} {worker.spread():>7.1%} "
            f"{tree_bytes(path) / base:>6.2f} {times:>13}")


def table(title):
    log("")
    log(f"{title:<32} {'samples/s':>10} {'CPU ms':>10} {'spread':>7} {'bytes':>6} "
        f"{'coefficients':>13}")


def cold_passes(workers, count):
    """Runs passes that read from storage. Returns False if the page cache cannot be emptied."""
    for worker in workers:
        worker.passes.clear()
    for _ in range(count):
        for worker in workers:
            if not harness.drop_caches():
                return False
            worker.run()
    return True


def opening(scratch, figures):
    """Measures opening a pack of 40,000 samples and reading the first one."""
    images = os.path.join(scratch, "tiny")
    os.makedirs(images)
    subprocess.run([VENV, "-c",
                    "import sys\nfrom PIL import Image\n"
                    "for i in range(100):\n"
                    "    Image.effect_noise((48, 48), 20 + i).convert('RGB').save("
                    "f'{sys.argv[1]}/{i}.jpg')", images], check=True)
    listing, pack = os.path.join(scratch, "tiny.txt"), os.path.join(scratch, "tiny.hrpack")
    with open(listing, "w") as f:
        f.writelines(f"tiny/{i % 100}.jpg\t{i % 1000}\n" for i in range(40_000))
    subprocess.run([HEADRACE, "pack", listing, pack, "--no-progress"], check=True,
                   stdout=subprocess.DEVNULL)
    for name, prepare in (("open_ms", lambda: None), ("open_cold_ms", harness.drop_caches)):
        times = []
        for _ in range(7):
            if prepare() is False:
                figures[name], figures[name + "_reason"] = None, "caches cannot be dropped here"
                break
            answer = folders.c_worker("open", pack)[0]
            times.append(answer["seconds"] * 1e3)
        else:
            figures[name] = statistics.median(times)
    log(f"\nopening    a pack of 40,000 samples and the first one's bytes: "
        f"{figures['open_ms']:.1f} ms"
        + (f", {figures['open_cold_ms']:.1f} ms cold" if figures["open_cold_ms"] else ""))


def main():
    parser = argparse.ArgumentParser(prog="bench/run pack", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("DATA") or
                        os.path.join(ROOT, "data", "sample"), help="an image folder")
    parser.add_argument("--samples", type=int, default=1280)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--scratch", default=os.path.join(ROOT, "data"),
                        help="where packs, shards and FFCV files are made")
    args = parser.parse_args()
    if not os.path.isdir(args.data):
        sys.exit(f"{args.data}: no such folder; make the sample set with `make samples`, or name "
                 "a folder with --data")
    figures = {}
    log(f"machine   {harness.machine()}")
    log(f"          {harness.busy_note()}")
    os.makedirs(args.scratch, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        folder = folders.sample_part(args.data, os.path.join(scratch, "folder"), args.samples)
        args.samples = sum(len(names) for _, _, names in os.walk(folder))
        log(f"samples   {args.samples} of {args.data}, {tree_bytes(folder) / 1e6:.0f} MB")
        paths = make_inputs(folder, scratch, figures)
        workers = start_workers(args, paths, figures)
        try:
            harness.interleave(workers, args.passes)
            base = tree_bytes(folder)
            table(f"page cache warm, {len(os.sched_getaffinity(0))} cores")
            report(workers, paths, figures, "warm", base)
            if cold_passes(workers, 2):
                table("page cache cold")
                report(workers, paths, figures, "cold", base)
            else:
                log("cold passes left out: the page cache cannot be emptied here")
        finally:
            for worker in workers:
                worker.close()
        for worker in workers:
            if worker.name in PEERS:
                log(f"version   {worker.info['version']}")
        opening(scratch, figures)
    harness.finish("pack", figures)


if __name__ == "__main__":
    main()
