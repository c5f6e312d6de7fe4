"""make bench-stalls: are the measurements of `headrace stalls` right, and do its predictions
come true?

Truth: scripts with known rates (bench/peers/stalls_paced.py) on a throttled disk.
Prediction: the same script runs without a probe under changes that two analyses, one before
and one after, predict (bench/peers/stalls_photos.py, bench/plain_runs.py).
Cost: of the probe and of an analysis. Control groups limit memory and disk
(bench/limits.py, needs root). Options: --data DIR, --minutes N, --only PART, --keep DIR.
"""

import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time

import cache
import harness
import limits
import plain_runs
import reference
from cache import HEADRACE, HERE, MB, VENV, cold
from harness import log
from plain_runs import ENV, Case, Trial, spread

PEERS = os.path.join(HERE, "peers")
SAMPLES = 5000  # photographs in the training folder
TIME = ("--time", "40")  # of an analysis used for predictions
SHORT_TIME = ("--time", "30")  # if errors of 10 % are allowed
ANALYSIS_LIMIT_S = 400
PROBE_PASSES = 7
FIO_S = 5.5  # of fio that count, on a throttled disk
RAMP_S = 1.5  # of fio before that


class Bench(harness.Parts):
    """The shared state of all parts, and their results."""

    def __init__(self, args, scratch):
        super().__init__(args)
        self.scratch = scratch
        self.cores = sorted(os.sched_getaffinity(0))
        self.groups = 0
        self.reserved = 0  # seconds that later parts need
        self.errors = {}  # by figure: (case, error, scaled error) of each prediction
        self.cases = []  # everything predicted and measured
        self.data = os.path.join(scratch, "photos")
        self.all_paths = cache.Files(args.data).paths
        self.files = link_files(self.all_paths, self.data, SAMPLES)
        self.disk_rates = {}  # fio's result by throttle and depth
        self.reference = reference.Reference(self.files.paths, len(self.cores))
        self.analysed = {}  # the machine's speed during an analysis, by its name
        self.mean_bytes = self.files.disk_bytes / len(self.files.paths)

    def reserve(self, name):
        """Called before part `name`: reserves the time of later parts."""
        self.reserved = seconds_after(name, self.args.only)

    def group(self, rate=0):
        """Makes a control group whose disk is throttled to `rate` samples a second (0: not)."""
        self.groups += 1
        group = limits.Group(str(self.groups), self.data)
        self.throttle(group, rate)
        return group

    def throttle(self, group, rate):
        group.limit_reads(int(rate * self.mean_bytes))


def link_files(paths, target, count):
    """Makes a folder with hard links to `count` of the files, evenly spread."""
    count = min(count, len(paths))
    for path in (paths[i * len(paths) // count] for i in range(count)):
        label = os.path.join(target, os.path.basename(os.path.dirname(path)))
        os.makedirs(label, exist_ok=True)
        os.link(path, os.path.join(label, os.path.basename(path)))
    return cache.Files(target)


def relative(found, true):
    return abs(found / true - 1)


# ---- an analysis, and a plain run -------------------------------------------


def script(name, **options):
    """Builds the command of a training script from options by name; None leaves one out."""
    command = [VENV, "-W", "ignore", os.path.join(PEERS, f"stalls_{name}.py")]
    for key, value in options.items():
        if value is not None:
            command += ["--" + key.replace("_", "-"), str(value)]
    return command


def analyse(bench, name, command, group, *options):
    """Runs `headrace stalls` on a command. Returns (result, wall seconds)."""
    from headrace import stalls

    out = os.path.join(bench.scratch, "analyses", name)
    os.makedirs(os.path.dirname(out), exist_ok=True)
    # The step uses no torch optimizer, so name the loop that trains (--loader).
    full = group.command([HEADRACE, "stalls", "--out", out, "--loader", "1", *options, "--",
                          *command])
    before, begun = bench.reference.read(), time.monotonic()
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
    bench.analysed[name] = reference.mean([before, bench.reference.read()])
    log(f"analysis  {name}, {wall:.0f} s: {result.sentence}")
    log(f"          {bench.analysed[name]}")
    return result, wall


def predict_and_measure(bench, name, command, disk, time_limit, trials):
    """Analyses, measures all trials, analyses again, and compares with the mean of the
    predictions of both analyses. `disk`: samples/s of the disk during the analyses."""
    def analysis(number):
        with bench.group(disk) as group:
            cold(bench.files.paths)
            return analyse(bench, f"{name}-{number}", command, group, *time_limit)[0]

    results = [analysis(1)]
    with plain_runs.Runs(bench, trials) as runs:
        runs.measure()
        results.append(analysis(2))
        analysed = reference.mean([bench.analysed[f"{name}-{n}"] for n in (1, 2)])
        said = [plain_runs.mean_of([r.predict(**one.case.change) for r in results])
                for one in runs.cases]
        computes = all(one.case.step_ms is None for one in runs.cases)
        bound = [plain_runs.bound_by_cores(prediction, computes) for prediction in said]
        off = [one for one, by_cores in zip(runs.cases, bound)
               if by_cores and plain_runs.is_off(one, analysed)]
        again = runs.again(off, bench.left() - bench.reserved)
        if off:
            log(f"          {len(off)} cases ran while the machine was faster or slower than during "
                f"the analyses: {len(again)} once more")
    head(analysed)
    for one, prediction, by_cores in zip(runs.cases, said, bound):
        compare(bench, one, prediction, analysed if by_cores else None)


def head(analysed):
    log(f"\nmachine   {analysed} during the analyses; `machine`: its speed during the runs,\n"
        "          relative to that; `scaled`: the error if it had been the same, if cores "
        "limit the speed; it counts for no figure")
    log(f"{'predicted, and measured':<38} {'predicted':>9} {'low..high':>11} {'paper':>6} "
        f"{'measured':>8} {'spread':>6} {'CPU us':>6} {'others':>6} {'read':>5} {'machine':>7} "
        f"{'error':>6} {'scaled':>6}")


def compare(bench, one, said, analysed):
    """`analysed`: the machine's speed during the analyses, where cores bound the case's."""
    case, epochs = one.case, one.epochs
    rates = [epoch.rate for epoch in epochs]
    rate, others = statistics.median(rates), max(epoch.others for epoch in epochs)
    cpu_us = statistics.median(epoch.cpu_us for epoch in epochs)
    read = statistics.mean(epoch.read for epoch in epochs)
    error = said["rate"] / rate - 1
    found = {"figure": case.figure, "case": case.name, "predicted": said["rate"],
             "low": said["low"], "high": said["high"], "paper": said["reference_rate"],
             "measured": rates, "cpu_us": cpu_us, "others": others, "read": read, "error": error,
             "speed": [[epoch.speed.one, epoch.speed.all] for epoch in epochs],
             "machine": None, "error_scaled": None}
    machine = scaled = ""
    if analysed is not None:
        cores = one.plain.cores
        found["machine"] = one.speed().of(cores) / analysed.of(cores) - 1
        found["error_scaled"] = said["rate"] / plain_runs.scaled_rate(one, analysed) - 1
        machine, scaled = f"{found['machine']:+.1%}", f"{found['error_scaled']:+.1%}"
    bench.errors.setdefault(case.figure, []).append((case.name, error, found["error_scaled"]))
    bench.cases.append(found)
    log(f"  {case.name:<36} {said['rate']:>9.0f} {said['low']:>5.0f}..{said['high']:<4.0f} "
        f"{said['reference_rate']:>6.0f} {rate:>8.0f} {spread(rates):>6.1%} {cpu_us:>6.0f} "
        f"{others:>6.0%} {read:>5.0%} {machine:>7} {error:>+6.1%} {scaled:>6}")


# ---- truth ------------------------------------------------------------------

TRUTH_BATCH = 32  # a segment is three times what the loader has ahead: small ones are short
READ_FILES = 4000  # to learn how long a read takes
# name: (step ms, prepare ms, workers, samples/s of the disk)
TRUTH = {
    "G": (64, 4, 4, 2000),
    "P": (16, 4, 4, 2000),
    "F": (16, 1.6, 4, 300),
    "mixed": (32, 6, 4, 300),
}


def true_disk_rate(bench, rate, depth):
    """Measures the rate of a disk that is throttled to `rate`, in samples a second at `depth`
    reads in flight: fio reads in a similar group, and the kernel's counters of the group are
    used, which smooths the bursts of a throttled disk. The first seconds do not count, since a
    disk that idled may be faster. The files are used for nothing else."""
    if (rate, depth) not in bench.disk_rates:
        count = int(rate * (FIO_S + RAMP_S))
        paths = random.Random(rate).sample(bench.all_paths, min(count, len(bench.all_paths)))
        cold(paths)
        with bench.group(rate) as group, tempfile.TemporaryDirectory() as scratch:
            with limits.Flow(group) as flow:
                cache.fio(paths, depth, scratch, group)
        bench.disk_rates[rate, depth] = flow.rate(FIO_S) / bench.mean_bytes
    return bench.disk_rates[rate, depth]


def true_read_s(bench, disk, workers, prepare_ms):
    """Measures how many seconds a worker waits for reading a whole file, while all workers
    alternately read and sleep as in the case, without a loader and without training. It reads the
    case's own files, which a hypervisor may have in its memory."""
    paths = random.Random(workers).sample(bench.files.paths,
                                          min(READ_FILES, len(bench.files.paths)))
    cold(paths)
    with bench.group(disk) as group, tempfile.NamedTemporaryFile("w") as listing:
        listing.writelines(path + "\n" for path in paths)
        listing.flush()
        command = script("reads", list=listing.name, workers=workers, prepare_ms=prepare_ms)
        done = subprocess.run(group.command(command), check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env={**os.environ, **ENV})
    if done.returncode:
        raise harness.Missing(f"reads: {done.stderr.strip()[-200:]}")
    return json.loads(done.stdout)["wait_s"]


def shares_by_hand(device, prepare, fetch, read_s, workers):
    """Computes the shares of compute, preparation and fetch of an epoch from storage. A worker
    fetches and prepares one sample after the other, so the time of a read, `read_s`, also
    delays preparation."""
    from_memory = min(device, prepare)
    from_storage = min(device, fetch, workers / (workers / prepare + read_s))
    return (from_storage / device, from_storage / from_memory - from_storage / device,
            1 - from_storage / from_memory)


def truth_case(bench, name):
    step_ms, prepare_ms, workers, disk = TRUTH[name]
    true = {"device": TRUTH_BATCH / step_ms * 1e3, "prepare": workers / prepare_ms * 1e3,
            "fetch": true_disk_rate(bench, disk, 4)}
    with bench.group(disk) as group:
        command = script("paced", data=bench.data, batch_size=TRUTH_BATCH, workers=workers,
                         step_ms=step_ms, prepare_ms=prepare_ms)
        result, _ = analyse(bench, f"truth-{name}", command, group, "--time",
                            str(bench.args.truth_seconds))
    # That time matters only if preparation is the bottleneck.
    bound = true["prepare"] < min(true["device"], true["fetch"])
    read_s = true_read_s(bench, disk, workers, prepare_ms) if bound else 0
    found = result.summary()
    errors = []
    for rate, letter in (("device", "G"), ("prepare", "P"), ("fetch", "F")):
        value, low, high = found[rate + "_rate"]
        errors.append(relative(value, true[rate]))
        log(f"  {name:<6} {letter}  set {true[rate]:>8.1f}  found {value:>8.1f} "
            f"({low:.1f}..{high:.1f})  error {value / true[rate] - 1:>+7.2%}")
    compute, prepare, fetch = (found["share"][part][0]
                               for part in ("compute", "preparation", "fetch"))
    by_hand = shares_by_hand(*true.values(), read_s, workers)
    if read_s:
        log(f"  {name:<6} a read is waited for {1e3 * read_s:.2f} ms")
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
DISK = 600  # samples per second of the throttled disk
STEP_MS = 32  # of 64 samples: 2,000 a second
BATCH = 64
WORKERS = 2
SIZE = 64  # pixels, of the stock loader's images and of the network
PAGE_SHARE = 0.5  # of the files, beside the memory that the processes need at most
CPU_DISK = 200  # samples per second, if training computes
CPU_THREADS = 1  # of the network
CPU_SAMPLES = 2400  # of its epochs


def photos(bench, loader, workers=WORKERS, **options):
    return script("photos", data=bench.data, batch_size=BATCH, workers=workers, loader=loader,
                  **options)


def standin_trials(bench):
    """Returns the trials: a process for each cache share, in which storage and the step change;
    and the script with its files in memory, in which the step and the cores change."""

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
            trial(0.5, [cache_case(0.5, 2)]),
            trial(0.75, [cache_case(0.75, 3), both]),
            trial(1, [cache_case(1, 3)]),
            # Short epochs that the cores limit vary most.
            memory([memory_case(0.5, 1), memory_case(2, 5), memory_case(4, 5)]),
            memory([memory_case(1, 4, cores=1), memory_case(4, 4, cores=1)], bench.cores[:1])]


def predict_standin(bench):
    """Headrace's loader with a sleeping step: cache shares, storage, step speed, cores."""
    predict_and_measure(bench, "stand-in", photos(bench, "headrace", step_ms=STEP_MS), DISK, TIME,
                        standin_trials(bench))


def kept_share(bench):
    """Returns the share of the files' bytes that lies in the page cache."""
    from headrace import _core

    found = _core.storage_check(bench.files.paths)
    return found["resident_bytes"] / found["bytes"]


def predict_page_cache(bench):
    """torch's loader, with less memory than files, on the disk of the analysis and on one of half its
    speed, which limits it. The kernel does not say how much of a group's memory files will have: the
    prediction is for the share that they had in the end."""
    command = photos(bench, "torch", size=SIZE, step_ms=STEP_MS)
    with bench.group(DISK) as group:
        cold(bench.files.paths)
        result, _ = analyse(bench, "stock", command, group, *SHORT_TIME)
    head(bench.analysed["stock"])
    cases = [Case(PAGE, f"page cache, storage x{factor}",
                  {"page_cache": True, "storage_factor": factor}, epochs, DISK * factor, STEP_MS)
             for factor, epochs in ((1, 2), (0.5, 1))]
    with plain_runs.Runs(bench, [Trial(command, cases, page_share=PAGE_SHARE)]) as runs:
        runs.measure()
        kept = kept_share(bench)
        log(f"          {kept:.1%} of the files stayed in memory")
        for one in runs.cases:
            said = result.predict(cache_share=kept, **one.case.change)
            compare(bench, one, plain_runs.mean_of([said]), None)


def predict_shared_cores(bench):
    """Training on the CPU: preparation and training share the cores."""
    def command(loader, workers=WORKERS, **options):
        # Set the threads: the harness gives its workers one, an analysis has torch's default.
        return photos(bench, loader, workers, size=SIZE, samples=CPU_SAMPLES,
                      threads=CPU_THREADS, **options)

    ours = {"cache_share": 1, "loader": "headrace", "form": "encoded"}
    half = int(bench.files.bytes * CPU_SAMPLES / len(bench.files.paths) / 2)
    predict_and_measure(bench, "cpu-training", command("torch"), CPU_DISK, SHORT_TIME, [
        Trial(command("headrace", None, cache=half),
              [Case(SHARED, "cache 50 %, Headrace", {**ours, "cache_share": 0.5}, 2, CPU_DISK)],
              fill=True),
        Trial(command("torch"), [Case(SHARED, "in memory", {"cache_share": 1}, 2)],
              storage=False),
        Trial(command("torch"), [Case(SHARED, "in memory, 1 core",
                                      {"cache_share": 1, "cores": 1}, 2)],
              bench.cores[:1], storage=False),
        Trial(command("headrace", None), [Case(SHARED, "in memory, Headrace", ours, 2)],
              storage=False)])


# ---- fewer workers ----------------------------------------------------------

FEWER = "fewer_workers_error_max"
FEWER_TIME = ("--time", "12")
FEWER_BATCH = 16
FEWER_STEP_MS = 20  # 800 samples a second
FEWER_PREPARE_MS = 6
FEWER_DISK = 90  # samples a second
FEWER_SAMPLES = 480  # of an epoch


def fewer_workers(bench):
    """Half of the workers, on a throttled disk: steps and samples sleep. One worker reads and
    prepares in turn, where two kept the disk busy."""
    def command(workers):
        return script("paced", data=bench.data, batch_size=FEWER_BATCH, workers=workers,
                      step_ms=FEWER_STEP_MS, prepare_ms=FEWER_PREPARE_MS, samples=FEWER_SAMPLES)

    with bench.group(FEWER_DISK) as group:
        cold(bench.files.paths)
        result, _ = analyse(bench, "fewer", command(2), group, *FEWER_TIME)
    case = Case(FEWER, "1 of 2 workers", {"cache_share": 0, "workers": 1}, 2, FEWER_DISK,
                FEWER_STEP_MS)
    head(bench.analysed["fewer"])
    with plain_runs.Runs(bench, [Trial(command(1), [case])]) as runs:
        runs.measure()
    compare(bench, runs.cases[0], plain_runs.mean_of([result.predict(**case.change)]), None)


# ---- cost -------------------------------------------------------------------


def analysis_seconds(bench):
    """A full analysis of a run with steps of 100 ms, by the default options."""
    with bench.group() as group:
        _, wall = analyse(bench, "100-ms", photos(bench, "torch", size=SIZE, step_ms=100), group)
    bench.figures["analysis_s"] = wall


def probe_cost(bench):
    """Measures the probe's CPU time per batch while it only observes: a loop over batches that
    are available at once, alternately with the probe and without."""
    from headrace.stalls import script as launched

    folder = os.path.join(bench.scratch, "idle")
    os.mkdir(folder)
    with open(os.path.join(folder, "settings.json"), "w") as f:
        json.dump({"run": "idle", "warm_up": 10**9}, f)  # the probe never replaces the loop
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
    "truth": (truth, ["truth_error_max"], 205),
    "probe": (probe_cost, ["probe_us_per_batch"], 8),
    "standin": (predict_standin, ["predict_cache_error_max", "predict_other_error_max"], 260),
    "cpu": (predict_shared_cores, ["predict_shared_cores_error_max"], 205),
    "analysis": (analysis_seconds, ["analysis_s"], 80),
    "fewer": (fewer_workers, [FEWER], 55),
    "page": (predict_page_cache, ["predict_page_cache_error_max"], 115),
}


def seconds_after(name, only):
    """Returns the seconds that the parts after this one need."""
    names = list(PARTS)
    return sum(PARTS[other][2] for other in names[names.index(name) + 1:]
               if not only or other in only)


def conclude(bench):
    """The largest error of each kind of prediction, and where it was."""
    for key, errors in bench.errors.items():
        case, worst, _ = max(errors, key=lambda e: abs(e[1]))
        bench.figures[key] = abs(worst)
        scaled = max(abs(error if other is None else other) for _, error, other in errors)
        log(f"{key}: {abs(worst):.1%} ({case}); with the machine's speed scaled to that of the "
            f"analyses {scaled:.1%}")


def parse_arguments():
    parser = harness.parser("stalls", __doc__, PARTS, minutes=14.9)
    parser.add_argument("--truth-seconds", type=float, default=18,
                        help="--time of an analysis of the truth cases (%(default)s)")
    parser.add_argument("--keep", help="keep the analyses in this folder")
    return parser.parse_args()


def main():
    args = parse_arguments()
    harness.need_cache_files(args)
    log(f"machine   {harness.machine()}")
    log(f"          {harness.busy_note()}")
    # Beside the files, on their file system, so that they can be linked.
    with tempfile.TemporaryDirectory(prefix=".headrace-stalls-",
                                     dir=os.path.dirname(os.path.abspath(args.data))) as scratch:
        bench = Bench(args, scratch)
        log(f"files     {len(bench.files.paths)}, {bench.files.bytes / MB:.0f} MB, a sample "
            f"{bench.mean_bytes / 1e3:.1f} kB in blocks")
        bench.run(PARTS, (limits.Unavailable, ImportError, OSError), bench.reserve)
        conclude(bench)
        bench.figures["cases"] = bench.cases
        if args.keep:
            shutil.copytree(os.path.join(scratch, "analyses"), args.keep, dirs_exist_ok=True)
    bench.finish("stalls")


if __name__ == "__main__":
    main()
