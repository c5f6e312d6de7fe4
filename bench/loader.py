"""make bench-loader: an image folder to batches in the training process with a warm page
cache, compared with torch's DataLoader with the same transform; then the loader's scaling,
memory, and time to start.

In each pass a peer loads the same samples once; passes alternate, and ratios are medians of
per-pass ratios. Options: --passes N, --samples N.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import harness
from harness import log

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HERE = os.path.join(ROOT, "bench")
VENV = os.path.join(os.environ.get("VENV", os.path.join(ROOT, ".venv")), "bin", "python")
WORKER = os.path.join(os.environ.get("BUILD", os.path.join(ROOT, "build")), "bench",
                      "loader_worker")
MIB = 1 << 20


def c_worker(*args, env=None):
    """Runs loader_worker. Returns its answers."""
    result = subprocess.run([WORKER, *map(str, args)], check=True, stdout=subprocess.PIPE,
                            text=True, env=dict(os.environ, **(env or {})))
    return [json.loads(line) for line in result.stdout.splitlines()]


def warm(folder):
    """Reads every file once, so that the page cache is warm in all passes."""
    for directory, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(directory, name), "rb") as f:
                f.read()


def drop(folder):
    """Evicts the files from the page cache, as far as the system permits."""
    for directory, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(directory, name), "rb") as f:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def against_torch(args, figures):
    cores = set(range(os.cpu_count()))
    for count in sorted({1, 2, len(os.sched_getaffinity(0))}):
        workers = []
        common = ["--data", args.data, "--workers", str(count), "--samples", str(args.samples)]
        try:
            for name in ("headrace_loader", "torch_loader"):
                workers.append(harness.Worker(
                    name, [VENV, os.path.join(HERE, "peers", name + ".py"), *common], cores))
            harness.interleave(workers, args.passes)
        finally:
            for worker in workers:
                worker.close()
        ours, theirs = workers
        speed, cpu = harness.ratio(ours, theirs), 1 / harness.ratio(ours, theirs, "cpu_seconds")
        figures[f"vs_torch_{count}"] = speed
        figures[f"cpu_vs_torch_{count}"] = cpu
        if count == len(os.sched_getaffinity(0)):
            figures["vs_torch_all"], figures["cpu_vs_torch_all"] = speed, cpu
        log(f"\n{count} worker{'s' if count > 1 else ' '} or threads {'samples/s':>12} "
            f"{'CPU ms/sample':>14} {'spread':>8}")
        for worker in workers:
            cpu_ms = statistics.median(p["cpu_seconds"] / p["samples"] for p in worker.passes) * 1e3
            log(f"  {worker.info['name']:<20} {1e6 / worker.micros():>12.0f} {cpu_ms:>14.3f} "
                f"{worker.spread():>8.1%}")
        log(f"  Headrace is {speed:.2f} x as fast and takes {cpu:.2f} of the CPU time"
            f"   ({theirs.info['version']})")


def scaling(args, figures):
    """Measures a C program whose consumer does nothing: the speed with each number of threads,
    relative to as many times the speed of one. Threads are not pinned: with fewer threads than
    cores, the consumer and the kernel have cores of their own."""
    cores = len(os.sched_getaffinity(0))
    counts = range(1, cores + 1) if cores <= 8 else [2 ** i for i in range(cores.bit_length())]
    rates = {count: [] for count in sorted({*counts, cores})}
    for _ in range(args.passes):
        for threads in rates:
            epochs = c_worker("epochs", args.data, threads, 64, 2)
            rates[threads].append(epochs[-1]["samples"] / epochs[-1]["seconds"])
    value = statistics.median(a / (cores * o) for o, a in zip(rates[1], rates[cores]))
    figures["scaling"] = value
    figures["c_samples_per_s_1"] = statistics.median(rates[1])
    figures["c_samples_per_s_all"] = statistics.median(rates[cores])
    log(f"\nscaling    C reader: {figures['c_samples_per_s_1']:.0f} samples/s on 1 thread, "
        f"{figures['c_samples_per_s_all']:.0f} on {cores}: {value:.3f} of {cores} x")
    for count, found in rates.items():
        each = statistics.median(a / (count * o) for o, a in zip(rates[1], found))
        figures[f"scaling_{count}"] = each
        log(f"           {count:>3} thread{'s' if count > 1 else ' '} "
            f"{statistics.median(found):>9.0f} samples/s, {each:.3f} of {count} x")


def memory(args, figures):
    """Runs twenty epochs over a part of the samples in C, and reads the resident set
    afterwards. The first epoch reads from storage with a full queue, so the loader uses all
    memory it may use."""
    with tempfile.TemporaryDirectory() as scratch:
        part = sample_part(args.data, scratch, 640)
        drop(part)
        epochs = c_worker("epochs", part, 0, 64, 20)
    growth = epochs[-1]["resident_bytes"] / epochs[1]["resident_bytes"]
    peak = max(e["resident_bytes"] for e in epochs)
    bound = epochs[-1]["slots_bytes"] + 64 * MIB + epochs[-1]["index_bytes"]
    figures["rss_growth_20_epochs"] = growth
    figures["rss_mib"] = peak / MIB
    figures["rss_over_bound"] = peak / bound
    figures["io_uring"] = epochs[-1]["io_uring"]
    log(f"memory     {peak / MIB:.0f} MiB resident, bound {bound / MIB:.0f} MiB (slots + 64 MiB + "
        f"index); epoch 20 over epoch 2: {growth:.3f}")


def sample_part(folder, scratch, count):
    """Makes a folder of links to `count` samples, spread over the classes."""
    paths = sorted(os.path.join(d, f) for d, _, names in os.walk(folder) for f in names
                   if f.lower().endswith((".jpg", ".jpeg", ".png")))
    for path in paths[::max(1, len(paths) // count)][:count]:
        target = os.path.join(scratch, os.path.basename(os.path.dirname(path)))
        os.makedirs(target, exist_ok=True)
        os.symlink(os.path.abspath(path), os.path.join(target, os.path.basename(path)))
    return scratch


def make_names(folder, count, classes, put):
    """Makes `count` files in `classes` folders; put(i, path) makes the i-th."""
    for i in range(count):
        if i % (count // classes) == 0:
            directory = os.path.join(folder, f"class{i // (count // classes):04d}")
            os.makedirs(directory)
        put(i, os.path.join(directory, f"image_{i:08d}.jpg"))


def links_to(source):
    """Returns a `put` that makes hard links to files of the sample set: real sizes, no space."""
    paths = sorted(os.path.join(d, f) for d, _, names in os.walk(source) for f in names
                   if f.lower().endswith(".jpg"))

    def put(i, path):
        try:
            os.link(paths[i % len(paths)], path)
        except OSError:
            os.symlink(os.path.abspath(paths[i % len(paths)]), path)
    return put


def small_file(i, path):
    """Makes a file with an inode of its own; listing reads no contents."""
    with open(path, "wb") as f:
        f.write(b"%d" % i)


def listing(folder, suffix, figures):
    """Lists a cold folder of 100,000 files: ImageFolder; our names; our names and sizes."""
    theirs, lists, scans = [], [], []
    peer = [VENV, os.path.join(HERE, "peers", "list_folder.py"), folder]
    for _ in range(3):
        cold = harness.drop_caches()
        # The peer's time begins once Python and its modules are loaded.
        answer = subprocess.run(peer, check=True, stdout=subprocess.PIPE, text=True).stdout
        theirs.append(json.loads(answer.splitlines()[-1])["seconds"])
        harness.drop_caches()
        lists.append(c_worker("list", folder)[0]["seconds"])
        harness.drop_caches()
        scans.append(c_worker("scan", folder)[0]["seconds"])
    middle = statistics.median
    figures["list_vs_imagefolder" + suffix] = middle(t / o for o, t in zip(lists, theirs))
    figures["scan_vs_imagefolder" + suffix] = middle(t / o for o, t in zip(scans, theirs))
    figures["listing_cold"] = cold
    log(f"listing    {len(os.listdir(folder)):>5} classes, "
        f"{'cold' if cold else 'WARM (caches cannot be dropped here)'}: ImageFolder "
        f"{middle(theirs):.2f} s, names and classes {middle(lists):.2f} s, with sizes and times "
        f"{middle(scans):.2f} s")


def starting(args, figures):
    """Measures listing, scanning and reopening 100,000 files, and the first batch, compared with
    ImageFolder. In 1,000 classes, as ImageNet has, and in 100, whose directories are large: sizes
    and times cost an inode each, names a directory entry, and ImageFolder a walk of each
    directory, so the ratios depend on the shape."""
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        many, few, linked, cache = (os.path.join(scratch, d)
                                    for d in ("many", "few", "linked", "cache"))
        log("\nmaking 2 x 100,000 files to list, and 100,000 links to samples to load ...")
        make_names(many, 100_000, 1000, small_file)
        make_names(few, 100_000, 100, small_file)
        make_names(linked, 100_000, 1000, links_to(args.data))
        listing(many, "", figures)
        listing(few, "_100_classes", figures)
        os.makedirs(cache)
        env = {"XDG_CACHE_HOME": cache}
        index_settle(linked, env)
        reopen = [c_worker("reopen", linked, env=env)[0] for _ in range(5)]
        first = [c_worker("first", linked, 0, 64, env=env)[0]["seconds"] for _ in range(5)]
        figures["reopen_s"] = statistics.median(r["seconds"] for r in reopen)
        figures["reopen_from_index"] = min(r["from_index"] for r in reopen)
        figures["first_batch_s"] = statistics.median(first)
        figures["index_bytes_per_sample"] = reopen[0]["memory_bytes"] / reopen[0]["samples"]
        log(f"reopen     {figures['reopen_s'] * 1e3:.0f} ms through the index; first batch of 64 "
            f"after {figures['first_batch_s'] * 1e3:.0f} ms; "
            f"{figures['index_bytes_per_sample']:.0f} bytes of memory a sample")


def index_settle(folder, env):
    """Waits until reopening uses the index, a few seconds at most: an index that was made right
    after the folder's last change is not trusted."""
    for _ in range(8):
        if c_worker("index", folder, env=env)[0]["from_index"]:
            return
        time.sleep(1)


def main():
    parser = argparse.ArgumentParser(prog="bench/run loader", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("DATA") or
                        os.path.join(ROOT, "data", "sample"), help="an image folder")
    parser.add_argument("--samples", type=int, default=1280)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--scratch", default=os.path.join(ROOT, "data"),
                        help="where 100,000 links are made")
    parser.add_argument("--only", choices=["torch", "scaling", "memory", "starting"])
    args = parser.parse_args()
    if not os.path.isdir(args.data):
        sys.exit(f"{args.data}: no such folder; make the sample set with `make samples`, or name "
                 "a folder with --data")

    figures = {}
    log(f"machine   {harness.machine()}")
    log(f"          {harness.busy_note()}")
    warm(args.data)
    parts = {"torch": against_torch, "scaling": scaling, "memory": memory, "starting": starting}
    for name, part in parts.items():
        if args.only in (None, name):
            part(args, figures)
    harness.finish("loader", figures)


if __name__ == "__main__":
    main()
