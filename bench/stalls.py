"""make bench-stalls: does `headrace stalls` find what is there, and does what it predicts
come true?

Truth: scripts whose rates are set (bench/peers/stalls_paced.py) on a throttled disk.
Prediction: an analysis predicts, then the same script runs plainly, without any probe,
under the change that was predicted (bench/peers/stalls_photos.py). Cost: of the probe and
of an analysis. Memory and disk are limited with control groups (bench/limits.py, root).
Options: --data DIR, --minutes N, --only PART, --keep DIR.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import cache
import harness
import limits
from cache import BUILD, HEADRACE, HERE, MB, ROOT, VENV, cold
from harness import log

PEERS = os.path.join(HERE, "peers")
ENV = {"PYTHONDONTWRITEBYTECODE": "1"}
SAMPLES = 5000  # of the folder that is trained on
TIME = ("--time", "45")  # of an analysis from which is predicted
LONG_TIME = ("--time", "75")  # where errors of 2 % are asked
ANALYSIS_LIMIT_S = 400
PROBE_PASSES = 7
FIO_S = 8.0  # about so long, to measure a throttled disk
RAMP_S = 1


class Bench:
    """What all parts need, and what they found."""

    def __init__(self, args, scratch):
        self.args, self.scratch = args, scratch
        self.cores = sorted(os.sched_getaffinity(0))
        self.figures = {}
        self.began = time.monotonic()
        self.groups = 0
        self.errors = {}  # of a figure, (case, error) of each prediction
        self.cases = []  # all that was predicted and measured
        self.data = os.path.join(scratch, "photos")
        self.all_paths = cache.Files(args.data).paths
        self.files = link_files(self.all_paths, self.data, SAMPLES)
        self.disk_rates = {}  # by throttle and depth, what fio found
        self.mean_bytes = self.files.disk_bytes / len(self.files.paths)

    def left(self):
        return self.args.minutes * 60 - (time.monotonic() - self.began)

    def refuse(self, keys, reason):
        for key in keys:
            self.figures[key], self.figures[key + "_reason"] = None, str(reason)
        log(f"left out  {', '.join(keys)}: {reason}")

    def group(self, rate=0):
        """A control group whose disk gives `rate` samples a second (0: as it is)."""
        self.groups += 1
        group = limits.Group(str(self.groups), self.data)
        self.throttle(group, rate)
        return group

    def throttle(self, group, rate):
        group.limit_reads(int(rate * self.mean_bytes))


def link_files(paths, target, count):
    """A folder of `count` of the files, evenly spread, as hard links."""
    for path in (paths[i * len(paths) // count] for i in range(min(count, len(paths)))):
        label = os.path.join(target, os.path.basename(os.path.dirname(path)))
        os.makedirs(label, exist_ok=True)
        os.link(path, os.path.join(label, os.path.basename(path)))
    return cache.Files(target)


def relative(found, true):
    return abs(found / true - 1)


# ---- an analysis, and a plain run -------------------------------------------


def script(name, **options):
    """The command of a training script; options by name, None left out."""
    command = [VENV, "-W", "ignore", os.path.join(PEERS, f"stalls_{name}.py")]
    for key, value in options.items():
        if value is not None:
            command += ["--" + key.replace("_", "-"), str(value)]
    return command


def analyse(bench, name, command, group, *options):
    """`headrace stalls` of a command; (result, wall seconds)."""
    from headrace import stalls

    out = os.path.join(bench.scratch, "analyses", name)
    os.makedirs(os.path.dirname(out), exist_ok=True)
    # The step is none of torch's: which loop trains is said.
    full = group.command([HEADRACE, "stalls", "--out", out, "--loader", "1", *options, "--",
                          *command])
    begun = time.monotonic()
    try:
        done = subprocess.run(full, check=False, env={**os.environ, **ENV}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=ANALYSIS_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise harness.Missing(f"the analysis {name} took over {ANALYSIS_LIMIT_S} s") from None
    wall = time.monotonic() - begun
    if done.returncode:
        raise harness.Missing(f"the analysis {name} ended with status {done.returncode}: "
                              f"{' / '.join(done.stdout.strip().splitlines()[-3:])[-400:]}")
    result = stalls.read(os.path.join(out, "stalls.json"))
    log(f"analysis  {name}, {wall:.0f} s: {result.sentence}")
    return result, wall


@dataclass
class Case:
    """What is predicted, and how it is measured."""

    figure: str  # that its error counts for
    name: str
    change: dict  # of Stalls.predict
    epochs: int
    disk: float = 0  # samples a second, 0: not throttled
    step_ms: float | None = None  # None: as the command says


@dataclass
class Trial:
    """One process of a training script without a probe, that measures some cases."""

    command: list
    cases: list
    cpus: list | None = None  # None: all
    storage: bool = True  # each epoch begins with nothing in the page cache; else with all
    fill: bool = False  # an epoch before them fills the loader's cache
    page_share: float | None = None  # of the files, for which the page cache has room


class Plain:
    """The process of a trial, and its control group."""

    def __init__(self, bench, trial):
        self.bench, self.trial = bench, trial
        self.group = bench.group()
        try:
            self.worker = harness.Worker(trial.command[3],
                                         self.group.command([*trial.command, "--serve"]),
                                         trial.cpus or bench.cores, ENV)
        except BaseException:
            self.group.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.worker.close()
        self.group.close()

    def epoch(self, step_ms=None, disk=0):
        """Samples a second of an epoch's steady state, and the share of all cores that
        others took meanwhile."""
        self.bench.throttle(self.group, disk)
        busy = cache.busy_seconds()
        self.worker.process.stdin.write("pass\n" if step_ms is None else f"pass {step_ms}\n")
        self.worker.process.stdin.flush()
        answer = self.worker.end()
        others = cache.busy_seconds() - busy - answer["cpu_seconds"]
        return (answer["steady_samples"] / answer["steady_seconds"],
                max(0, others) / answer["seconds"] / len(self.bench.cores))

    def prepare(self):
        """What comes before what is measured."""
        files, trial = self.bench.files, self.trial
        if trial.page_share is not None:
            cold(files.paths)
            with limits.Peak(self.group) as peak:
                self.epoch(0)
            self.group.limit_memory(int(peak.bytes + cache.SLACK
                                        + trial.page_share * files.disk_bytes))
            self.epoch(0)
            self.epoch(0)
        elif not trial.storage:
            read_all(files.paths)
            if trial.cases[0].step_ms is not None:
                self.epoch(0)
        elif trial.fill:
            self.epoch(0)
        else:
            cold(files.paths)
            self.epoch(0)

    def measure(self, case):
        found, read = [], self.group.read_bytes()
        for _ in range(case.epochs):
            if self.trial.storage and self.trial.page_share is None:
                cold(self.bench.files.paths)
            found.append(self.epoch(case.step_ms, case.disk))
        read = (self.group.read_bytes() - read) / case.epochs / self.bench.files.disk_bytes
        rates, others = zip(*found)
        return rates, max(others), read


def read_all(paths):
    for path in paths:
        with open(path, "rb", buffering=0) as f:
            f.readall()


def predict_and_measure(bench, result, trials):
    """First all predictions, then all measurements."""
    said = [[result.predict(**case.change) for case in trial.cases] for trial in trials]
    log(f"\n{'predict, then measure':<44} {'predicted':>9} {'low..high':>13} {'paper':>7} "
        f"{'measured':>8} {'spread':>6} {'others':>6} {'read':>5} {'error':>7}")
    for trial, predictions in zip(trials, said):
        with Plain(bench, trial) as plain:
            plain.prepare()
            for case, prediction in zip(trial.cases, predictions):
                compare(bench, case, prediction, *plain.measure(case))


def compare(bench, case, said, rates, others, read):
    rate = statistics.median(rates)
    error = said["rate"] / rate - 1
    bench.errors.setdefault(case.figure, []).append((case.name, error))
    bench.cases.append({"figure": case.figure, "case": case.name, "predicted": said["rate"],
                        "low": said["low"], "high": said["high"],
                        "paper": said["reference_rate"], "measured": list(rates),
                        "others": others, "read": read, "error": error})
    log(f"  {case.name:<42} {said['rate']:>9.0f} {said['low']:>6.0f}..{said['high']:<5.0f} "
        f"{said['reference_rate']:>7.0f} {rate:>8.0f} {spread(rates):>6.1%} {others:>6.0%} "
        f"{read:>5.0%} {error:>+7.1%}")


def spread(values):
    return (max(values) - min(values)) / statistics.median(values)


# ---- truth ------------------------------------------------------------------

TRUTH_BATCH = 64
UNTHROTTLED = 1000  # samples a second, to choose how many are read
# name: (step ms, prepare ms, workers, samples/s of the disk)
TRUTH = {
    "G": (128, 4, 4, 2000),
    "P": (32, 4, 4, 2000),
    "F": (32, 1.6, 4, 300),
    "mixed": (64, 6, 4, 300),
}


def true_disk_rate(bench, rate, depth):
    """Samples a second that the disk really gives at `depth` reads in flight, throttled to
    `rate` or (0) not, by fio in a like group. The first second is left out: a disk that
    idled may give more. Files that are read for nothing else."""
    if (rate, depth) not in bench.disk_rates:
        count = int((rate or UNTHROTTLED) * (FIO_S + RAMP_S))
        paths = random.Random(rate).sample(bench.all_paths, min(count, len(bench.all_paths)))
        cold(paths)
        with bench.group(rate) as group, tempfile.TemporaryDirectory() as scratch:
            speed = cache.fio(paths, depth, scratch, group, RAMP_S) * MB
        bench.disk_rates[rate, depth] = speed / bench.mean_bytes
    return bench.disk_rates[rate, depth]


def shares_by_hand(device, prepare, fetch, latency_s, workers):
    """Shares of compute, preparation and fetch of an epoch from storage. A worker fetches
    and prepares one sample after the other, so that a fetch, if only `latency_s`, also
    keeps it from preparing."""
    from_memory = min(device, prepare)
    from_storage = min(device, fetch, workers / (workers / prepare + latency_s))
    return (from_storage / device, from_storage / from_memory - from_storage / device,
            1 - from_storage / from_memory)


def truth_case(bench, name):
    step_ms, prepare_ms, workers, disk = TRUTH[name]
    true = {"device": TRUTH_BATCH / step_ms * 1e3, "prepare": workers / prepare_ms * 1e3,
            "fetch": true_disk_rate(bench, disk, 4)}
    latency_s = 1 / true_disk_rate(bench, 0, 1)
    with bench.group(disk) as group:
        command = script("paced", data=bench.data, batch_size=TRUTH_BATCH, workers=workers,
                         step_ms=step_ms, prepare_ms=prepare_ms)
        result, _ = analyse(bench, f"truth-{name}", command, group, "--time",
                            str(bench.args.truth_seconds))
    found = result.summary()
    errors = []
    for rate, letter in (("device", "G"), ("prepare", "P"), ("fetch", "F")):
        value, low, high = found[rate + "_rate"]
        errors.append(relative(value, true[rate]))
        log(f"  {name:<6} {letter}  set {true[rate]:>8.1f}  found {value:>8.1f} "
            f"({low:.1f}..{high:.1f})  error {value / true[rate] - 1:>+7.2%}")
    compute, prepare, fetch = (found["share"][part][0]
                               for part in ("compute", "preparation", "fetch"))
    by_hand = shares_by_hand(*true.values(), latency_s, workers)
    points = [100 * (got - want) for got, want in zip((compute, prepare, fetch), by_hand)]
    for what, got, want in zip(("compute", "preparation", "fetch"), (compute, prepare, fetch),
                               by_hand):
        log(f"  {name:<6} {what:<12} {want:>7.1%} by hand, {got:>7.1%} found, "
            f"{100 * (got - want):>+5.1f} points")
    return max(errors), max(abs(p) for p in points)


def truth(bench):
    worst, points = zip(*(truth_case(bench, name) for name in TRUTH))
    bench.figures["truth_error_max"] = max(worst)
    bench.figures["truth_share_points_max"] = max(points)


# ---- prediction -------------------------------------------------------------

CACHE, OTHER = "predict_cache_error_max", "predict_other_error_max"
PAGE, SHARED = "predict_page_cache_error_max", "predict_shared_cores_error_max"
DISK = 600  # samples a second of the throttled disk
STEP_MS = 32  # of 64 samples: 2,000 a second
BATCH = 64
WORKERS = 2
SIZE = 64  # pixels, of the stock loader's images and of the network
PAGE_SHARES = (0.5, 0.65)
CPU_DISK = 200  # samples a second, where training computes
CPU_THREADS = 1  # of the network
CPU_SAMPLES = 2400  # of its epochs


def photos(bench, loader, workers=WORKERS, **options):
    return script("photos", data=bench.data, batch_size=BATCH, workers=workers, loader=loader,
                  **options)


def standin_trials(bench):
    """A process for each cache share, where storage and the step change, and the script as it
    is with its files in memory, where the step and the cores change."""

    def trial(share, cases):
        size = int(bench.files.bytes * share) or None
        return Trial(photos(bench, "headrace", step_ms=STEP_MS, cache=size), cases,
                     fill=bool(size))

    def cache_case(share, epochs):
        return Case(CACHE, f"cache {share:.0%}", {"cache_share": share}, epochs, DISK, STEP_MS)

    def storage_case(factor, epochs):
        return Case(OTHER, f"storage x{factor}", {"cache_share": 0, "storage_factor": factor},
                    epochs, DISK * factor, STEP_MS)

    def memory_case(speed, epochs, **more):
        cores = f", {more['cores']} of {len(bench.cores)} cores" if more else ""
        return Case(OTHER, f"in memory, step x{speed}{cores}",
                    {"cache_share": 1, "page_cache": True, "device_speedup": speed, **more},
                    epochs, 0, STEP_MS / speed)

    def memory(cases, cpus=None):
        return Trial(photos(bench, "headrace", step_ms=STEP_MS), cases, cpus, storage=False)

    both = Case(OTHER, "cache 75%, step x2", {"cache_share": 0.75, "device_speedup": 2}, 3, DISK,
                STEP_MS / 2)
    return [trial(0, [storage_case(0.5, 1), storage_case(2, 2)]),
            trial(0.25, [cache_case(0.25, 2)]),
            trial(0.5, [cache_case(0.5, 3)]),
            trial(0.75, [cache_case(0.75, 3), both]),
            trial(1, [cache_case(1, 3)]),
            memory([memory_case(0.5, 2), memory_case(2, 3), memory_case(4, 3)]),
            memory([memory_case(1, 3, cores=1), memory_case(4, 3, cores=1)], bench.cores[:1])]


def predict_standin(bench):
    """A sleeping step, Headrace's loader: cache shares, storage, step speed, cores."""
    with bench.group(DISK) as group:
        cold(bench.files.paths)
        result, _ = analyse(bench, "stand-in", photos(bench, "headrace", step_ms=STEP_MS), group,
                            *LONG_TIME)
    predict_and_measure(bench, result, standin_trials(bench))


def predict_page_cache(bench):
    """The stock loader, with less memory than files."""
    command = photos(bench, "torch", size=SIZE, step_ms=STEP_MS)
    with bench.group(DISK) as group:
        cold(bench.files.paths)
        result, _ = analyse(bench, "stock", command, group, *TIME)
    predict_and_measure(bench, result, [
        Trial(command, [Case(PAGE, f"page cache for {share:.0%}",
                             {"cache_share": share, "page_cache": True}, 2, DISK, STEP_MS)],
              page_share=share) for share in PAGE_SHARES])


def predict_shared_cores(bench):
    """Training on the CPU: what prepares and what trains share the cores."""
    def command(loader, workers=WORKERS, **options):
        # Threads are said: the harness gives its workers one, an analysis torch's default.
        return photos(bench, loader, workers, size=SIZE, samples=CPU_SAMPLES,
                      threads=CPU_THREADS, **options)

    with bench.group(CPU_DISK) as group:
        cold(bench.files.paths)
        result, _ = analyse(bench, "cpu-training", command("torch"), group, *TIME)
    ours = {"cache_share": 1, "loader": "headrace", "form": "encoded"}
    half = int(bench.files.bytes * CPU_SAMPLES / len(bench.files.paths) / 2)
    predict_and_measure(bench, result, [
        Trial(command("torch"), [Case(SHARED, "in memory", {"cache_share": 1}, 2)],
              storage=False),
        Trial(command("torch"), [Case(SHARED, "in memory, 1 core",
                                      {"cache_share": 1, "cores": 1}, 2)],
              bench.cores[:1], storage=False),
        Trial(command("headrace", None), [Case(SHARED, "in memory, Headrace", ours, 2)],
              storage=False),
        Trial(command("headrace", None, cache=half),
              [Case(SHARED, "cache 50 %, Headrace", {**ours, "cache_share": 0.5}, 2, CPU_DISK)],
              fill=True)])


# ---- cost -------------------------------------------------------------------


def analysis_seconds(bench):
    """A full analysis of a run with steps of 100 ms, by the default options."""
    with bench.group() as group:
        _, wall = analyse(bench, "100-ms", photos(bench, "torch", size=SIZE, step_ms=100), group)
    bench.figures["analysis_s"] = wall


def probe_cost(bench):
    """CPU time that the probe takes of a batch while it only watches: a loop over batches
    that are there at once, with it and without, in turn."""
    from headrace.stalls import script as launched

    folder = os.path.join(bench.scratch, "idle")
    os.mkdir(folder)
    with open(os.path.join(folder, "settings.json"), "w") as f:
        json.dump({"run": "idle", "warm_up": 10**9}, f)  # it never takes the loop
    probed = launched.prepare(script("idle"), folder, None).environment
    cpus, workers = bench.cores[-1:], []
    try:
        for name, env in (("without", {}), ("with", probed)):
            workers.append(harness.Worker(name, script("idle"), cpus, {**env, **ENV}))
        without, watched = workers
        if watched.info["iterator"] == without.info["iterator"]:
            raise harness.Missing("the probe did not find the loader")
        harness.interleave(workers, PROBE_PASSES)
    finally:
        for worker in workers:
            worker.close()
    costs = [1e6 * (w["cpu_seconds"] / w["samples"] - o["cpu_seconds"] / o["samples"])
             for w, o in zip(watched.passes, without.passes)]
    bench.figures["probe_us_per_batch"] = statistics.median(costs)
    log(f"probe     {statistics.median(costs):.2f} us of CPU a batch ({min(costs):.2f} to "
        f"{max(costs):.2f})")


# name: (function, figures that it owes, seconds that it takes on two quiet cores)
PARTS = {
    "truth": (truth, ["truth_error_max"], 150),
    "probe": (probe_cost, ["probe_us_per_batch"], 15),
    "standin": (predict_standin, ["predict_cache_error_max", "predict_other_error_max"], 200),
    "cpu": (predict_shared_cores, ["predict_shared_cores_error_max"], 150),
    "analysis": (analysis_seconds, ["analysis_s"], 60),
    "page": (predict_page_cache, ["predict_page_cache_error_max"], 120),
}


def conclude(bench):
    """The largest error of each kind of prediction, and where it was."""
    for key, errors in bench.errors.items():
        case, worst = max(errors, key=lambda e: abs(e[1]))
        bench.figures[key] = abs(worst)
        log(f"{key}: {abs(worst):.1%} ({case})")


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench/run stalls", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("CACHE_FILES") or
                        os.path.join(ROOT, "data", "cache-files"),
                        help="a folder of tools/make_cache_files.py")
    parser.add_argument("--minutes", type=float, default=14.5,
                        help="leave out what would take longer (%(default)s)")
    parser.add_argument("--truth-seconds", type=float, default=30,
                        help="--time of an analysis of the truth cases (%(default)s)")
    parser.add_argument("--keep", help="keep the analyses in this folder")
    parser.add_argument("--only", choices=list(PARTS), nargs="+")
    return parser.parse_args()


def main():
    args = parse_arguments()
    if not os.path.isdir(args.data):
        sys.exit(f"{args.data}: no such folder; make it with tools/make_cache_files.py, or name "
                 "one with --data")
    log(f"machine   {harness.machine()}")
    log(f"          {harness.busy_note()}")
    # Beside the files, on their file system, so that they can be linked.
    with tempfile.TemporaryDirectory(prefix=".headrace-stalls-",
                                     dir=os.path.dirname(os.path.abspath(args.data))) as scratch:
        bench = Bench(args, scratch)
        log(f"files     {len(bench.files.paths)}, {bench.files.bytes / MB:.0f} MB, a sample "
            f"{bench.mean_bytes / 1e3:.1f} kB in blocks")
        for name, (part, owed, needs) in PARTS.items():
            if args.only and name not in args.only:
                continue
            try:
                if bench.left() < needs:
                    raise harness.Missing(f"of {args.minutes:.0f} minutes {bench.left():.0f} s "
                                          "are left")
                begun = time.monotonic()
                part(bench)
                log(f"          {name}: {time.monotonic() - begun:.0f} s")
            except (harness.Missing, limits.Unavailable, ImportError, OSError) as reason:
                bench.refuse([key for key in owed if key not in bench.figures], reason)
        conclude(bench)
        bench.figures["cases"] = bench.cases
        if args.keep:
            shutil.copytree(os.path.join(scratch, "analyses"), args.keep, dirs_exist_ok=True)
    bench.figures["minutes"] = (time.monotonic() - bench.began) / 60
    harness.finish("stalls", bench.figures)


if __name__ == "__main__":
    main()
