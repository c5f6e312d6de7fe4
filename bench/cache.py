"""make bench-cache: how many bytes caches read from a disk that never evict for one order, and how
fast, compared with torch's DataLoader and the page cache in the same memory.

Processes run under limits on memory and disk (bench/limits.py, needs root) and read a
folder of 4 GiB (tools/make_cache_files.py). The kernel counts the bytes that they read.
D: bytes of all files on the disk, in blocks of the file system; C: how many of them are in
the cache. An epoch must read D - C. Options: --data DIR, --rate MB/S,
--minutes N, --only PART.
"""

import json
import os
import random
import statistics
import subprocess
import tempfile

import harness
import limits
from harness import log

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HERE = os.path.join(ROOT, "bench")
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build"))
HEADRACE = os.path.join(BUILD, "cli", "headrace")
VENV = os.path.join(os.environ.get("VENV", os.path.join(ROOT, ".venv")), "bin", "python")
WORKER = os.path.join(HERE, "peers", "cache_worker.py")
SHARES = (35, 50, 65, 80)
KINDS = {"ours": "Headrace, its cache", "torch": "torch DataLoader, page cache",
         "page_cache": "Headrace, page cache"}
WARMUP = 2
SLACK = 64 << 20  # the kernel's own memory for a group: page tables, directory entries
PROBE_SAMPLES = 4096
PROBE_CACHE = 64 << 20
BLOCK = 4096
SECTOR = 512
MB = 1e6


class Files:
    """The files of a folder: paths, and bytes in the files and on the disk."""

    def __init__(self, folder):
        self.folder = folder
        found = sorted((e.path, e.stat().st_size) for label in os.scandir(folder)
                       if label.is_dir() for e in os.scandir(label.path)
                       if e.name.endswith(".jpg"))
        self.paths = [path for path, _ in found]
        self.sizes = [size for _, size in found]
        self.blocks = [-(-size // BLOCK) * BLOCK for size in self.sizes]
        self.bytes, self.disk_bytes = sum(self.sizes), sum(self.blocks)

    def minimum(self, share):
        """Returns the bytes that an epoch must read if `share` per cent are cached."""
        return self.disk_bytes * (100 - share) / 100

    def in_file_bytes(self, over):
        """Converts a multiple of the minimum from blocks of the disk to bytes of files."""
        return over * self.disk_bytes / self.bytes


class Bench(harness.Parts):
    """The shared state of all parts, and their results."""

    def __init__(self, args):
        super().__init__(args)
        self.files = Files(args.data)
        self.cores = os.sched_getaffinity(0)
        self.memory = {}  # by kind: what a process needs besides its cache; see measure_memory
        self.groups = 0

    def group(self):
        self.groups += 1
        return limits.Group(str(self.groups), self.args.data)

    def worker(self, group, kind, cache=None, seed=0, samples=None, more=()):
        """Starts a process of a kind inside a group."""
        command = [VENV, WORKER, "--kind", "torch" if kind == "torch" else "headrace",
                   "--data", self.args.data, "--workers", str(len(self.cores)),
                   "--seed", str(seed)]
        command += ["--cache", str(cache)] if cache else []
        command += ["--samples", str(samples)] if samples else []
        command += more
        env = {"PYTHONDONTWRITEBYTECODE": "1"}
        return harness.Worker(kind, group.command(command), self.cores, env)


def cold(paths):
    """Evicts these files from the page cache, and nothing else: inodes are small, and groups
    short of memory would read the code of the programs again and again."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def busy_seconds():
    """Returns the CPU seconds of the whole machine since boot that were not idle."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, softirq, steal = map(int, f.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def epoch(group, workers):
    """Runs an epoch of all workers at once. Also returns what the group read meanwhile."""
    before, again, busy = group.read_bytes(), group.processes_read_bytes(), busy_seconds()
    for worker in workers:
        worker.begin()
    answers = [worker.end() for worker in workers]
    cpu = sum(a["cpu_seconds"] for a in answers)
    return {"read": group.read_bytes() - before,
            "process_read": group.processes_read_bytes() - again,
            "seconds": max(a["seconds"] for a in answers),
            "samples": sum(a["samples"] for a in answers),
            "cpu_seconds": cpu, "others_seconds": max(0.0, busy_seconds() - busy - cpu)}


def measure_memory(bench, kind):
    """Measures the memory that one kind of process needs, with its helpers, without what it
    caches. The kind's limit is raised by that. This also loads the code of the process into the
    page cache, outside of the measured groups."""
    if kind not in bench.memory:
        os.sync()
        cache = PROBE_CACHE if kind == "ours" else None
        with bench.group() as group:
            worker = bench.worker(group, kind, cache, samples=PROBE_SAMPLES)
            try:
                with limits.Peak(group) as peak:
                    answer = worker.run()
            finally:
                worker.close()
        bench.memory[kind] = peak.bytes - answer.get("cache_bytes", 0)
        log(f"memory    {KINDS[kind]}: {bench.memory[kind] / MB:.0f} MB of its own")
    return bench.memory[kind]


def run_share(bench, kind, share, measured=1, rate=0):
    """Runs one kind of process with memory for `share` per cent of the files: a warm-up, then
    `measured` epochs with the disk throttled to `rate` bytes a second (0: not throttled)."""
    budget = bench.files.bytes * share // 100
    own = measure_memory(bench, kind)
    cold(bench.files.paths)
    with bench.group() as group:
        group.limit_memory(budget + own + SLACK)
        worker = bench.worker(group, kind, budget if kind == "ours" else None)
        try:
            warm = [epoch(group, [worker]) for _ in range(WARMUP)]
            group.limit_reads(rate)
            result = [epoch(group, [worker]) for _ in range(measured)]
        finally:
            worker.close()
        kills = group.out_of_memory_kills()
    minimum = bench.files.minimum(share)
    read = statistics.median(e["read"] for e in result)
    seconds = statistics.median(e["seconds"] for e in result)
    cpu, others = (statistics.median(e[k] for e in result) / seconds / len(bench.cores)
                   for k in ("cpu_seconds", "others_seconds"))
    log(f"{share:>4} %  {KINDS[kind]:<30} {warm[0]['read'] / MB:>7.0f} {warm[1]['read'] / MB:>7.0f} "
        f"{read / MB:>8.0f} {read / minimum:>8.3f} {result[0]['samples'] / seconds:>10.0f} "
        f"{cpu:>6.0%} {others:>7.0%} {read / max(1, result[0]['process_read']):>7.3f}"
        + (f"  throttled to {rate / MB:.0f} MB/s" if rate else "")
        + (f"  {kills} killed for memory" if kills else "")
        + ("  others keep files in memory" if warm[0]["read"] < 0.995 * bench.files.disk_bytes
           else ""))
    return {"read": read, "over": read / minimum, "epochs": result, "seconds": seconds}


def share_table():
    log(f"\ncache  {'':<30} {'warm-up MB read':>15} {'measured':>8} {'/(D-C)':>8} "
        f"{'samples/s':>10} {'CPU':>6} {'others':>7} {'/proc':>7}")


def note_share(bench, kind, share, over):
    prefix = {"ours": "reads", "torch": "torch_reads", "page_cache": "page_cache_reads"}[kind]
    bench.figures[f"{prefix}_over_minimum_{share}"] = over


def at_65(bench):
    """Times throttled epochs of Headrace and torch, in turn, and of Headrace on the page cache."""
    rate = int(bench.args.rate * MB)
    share_table()
    rounds = [{kind: run_share(bench, kind, 65, measured, rate) for kind in order}
              for measured, order in ((2, ("ours", "torch")), (1, ("torch", "ours")))]
    page = run_share(bench, "page_cache", 65)
    for kind in ("ours", "torch"):
        note_share(bench, kind, 65, statistics.median(r[kind]["over"] for r in rounds))
    note_share(bench, "page_cache", 65, page["over"])
    ratios = [t["seconds"] / o["seconds"] for r in rounds
              for o, t in zip(r["ours"]["epochs"], r["torch"]["epochs"])]
    bench.figures["page_cache_over_minimum"] = bench.figures["torch_reads_over_minimum_65"]
    bench.figures["epoch_vs_torch_65"] = statistics.median(ratios)
    bench.figures["epoch_vs_torch_65_spread"] = \
        (max(ratios) - min(ratios)) / statistics.median(ratios)
    for kind in ("ours", "torch"):
        bench.figures[f"epoch_65_{kind}_s"] = statistics.median(
            r[kind]["seconds"] for r in rounds)
    log(f"          an epoch at 65 %: {bench.figures['epoch_65_ours_s']:.1f} s, torch "
        f"{bench.figures['epoch_65_torch_s']:.1f} s: {bench.figures['epoch_vs_torch_65']:.2f} x")


def throttled_rate(bench):
    """Measures with fio, in a group of its own, the speed of the disk with and without
    throttle."""
    for key, rate, count in (("throttled_mb_s", int(bench.args.rate * MB), 2000),
                             ("disk_mb_s", 0, 8000)):
        cold(bench.files.paths[:count])
        with bench.group() as group, tempfile.TemporaryDirectory() as scratch:
            group.limit_reads(rate)
            before = group.read_bytes()
            speed = fio(bench.files.paths[:count], 32, scratch, group)
            read = group.read_bytes() - before
        bench.figures[key] = speed
        log(f"disk      {speed:.0f} MB/s by fio" + (f", throttled to {rate / MB:.0f}" if rate else "")
            + f"; the group's counter says {read / MB:.0f} MB")


def reads_at_shares(bench):
    share_table()
    for share in SHARES:
        if share != 65:
            note_share(bench, "ours", share, run_share(bench, "ours", share)["over"])


def page_cache_at_shares(bench):
    """Measures both loaders on the page cache at the other shares, as time permits."""
    share_table()
    for kind in ("torch", "page_cache"):
        for share in (80, 50, 35):
            if bench.left() < PARTS["peers"][2]:
                log(f"{share:>4} %  {KINDS[kind]:<30} left out: {bench.left():.0f} s are left")
                continue
            note_share(bench, kind, share, run_share(bench, kind, share)["over"])


# ---- several jobs on one named cache ----------------------------------------


class Named:
    """A named cache that jobs in one group share; it is dropped at the end."""

    BESIDE = 72 << 20  # of a segment, besides its items: staging and index

    def __init__(self, bench, name, size, jobs):
        self.bench, self.size, self.jobs = bench, size, jobs
        self.name = f"bench-{os.getpid()}-{name}"
        self.spec = f"shm:{self.name}?size={size}&form=encoded"

    @staticmethod
    def command(*arguments):
        done = subprocess.run([HEADRACE, "cache", *arguments], check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise harness.Missing(f"headrace cache {arguments[0]}: {done.stderr.strip()[-200:]}")

    def __enter__(self):
        self.command("list")  # raises if the command cannot drop caches
        own = measure_memory(self.bench, "ours")
        cold(self.bench.files.paths)
        self.group = self.bench.group()
        # Each job maps the segment, and the memory that caches leave to a group has to be free.
        self.group.limit_memory(self.size + self.BESIDE + (own + SLACK) * self.jobs + SLACK)
        return self

    def __exit__(self, kind, *exception):
        try:
            self.command("drop", self.name)
        except harness.Missing:
            if kind is None:  # otherwise the cache may not exist, and an exception is being raised
                raise
        finally:
            self.group.close()

    def run(self, seeds, epochs, rate=0, more=()):
        """Runs a job for each seed at the same time. With a rate, the disk is throttled to so many
        bytes a second after the warm-up."""
        workers = []
        try:
            for seed in seeds:
                workers.append(self.bench.worker(self.group, "ours", self.spec, seed, more=more))
            done = [epoch(self.group, workers) for _ in range(WARMUP if rate else 0)]
            if rate:
                self.group.limit_reads(rate)
            return done + [epoch(self.group, workers) for _ in range(epochs - len(done))]
        finally:
            for worker in workers:
                worker.close()


def describe(name, epochs):
    reads = ", ".join(f"{e['read'] / MB:.0f}" for e in epochs)
    log(f"{name:<48} {reads} MB read by epoch")
    return [e["read"] for e in epochs]


def same_stream(bench):
    """Two jobs with the same order, half of the bytes cached: compares their reads with those
    of one job. The jobs do not start at exactly the same time, so the first epoch is reported
    separately."""
    with Named(bench, "same", bench.files.bytes // 2, 2) as cache:
        one = describe("one job, cache 50 %", cache.run([0], WARMUP + 1))
        two = describe("two jobs, same order, the same cache", cache.run([0, 0], 3))
    bench.figures["kept_reads_over_minimum_50"] = one[-1] / bench.files.minimum(50)
    bench.figures["two_jobs_first_epoch_reads"] = two[0] / one[-1]
    bench.figures["two_jobs_same_stream_reads"] = max(two[1:]) / one[-1]


def two_orders_full(bench):
    """Two jobs with different orders, everything fits: their reads, beginning with an empty
    cache."""
    size = bench.files.bytes + (256 << 20)
    with Named(bench, "full", size, 2) as cache:
        one = describe("one job, cache 100 %", cache.run([1], 2))
    with Named(bench, "full", size, 2) as cache:
        two = describe("two jobs, two orders, cache 100 %", cache.run([1, 2], 2))
    bench.figures["two_orders_reads_full"] = sum(two) / sum(one)


def orders_half(bench, jobs, key, part=1):
    """Jobs with different orders, half fits: compares their reads with Belady's. The figures are
    means of two epochs, because the optimum alternates between more and fewer reads. `part`: they
    use only every so many-th file, so that four jobs take minutes."""
    count = len(bench.files.paths) // part
    sizes, blocks = ([all_of[i * part] for i in range(count)]
                     for all_of in (bench.files.sizes, bench.files.blocks))
    with Named(bench, key, sum(sizes) // 2, jobs) as cache:
        reads = describe(f"{key} jobs, as many orders, {count:,} files, cache 50 %",
                         cache.run(range(1, jobs + 1), WARMUP + 2,
                                   more=("--samples", str(count)) if part > 1 else ()))
    minimum = sum(blocks) / 2
    ours = statistics.mean(reads[WARMUP:]) / minimum
    best = simulate(bench, f"jobs={jobs}", f"epochs={WARMUP + 3}", blocks=blocks)
    best = best["belady"]["alone"] * 2
    bench.figures[f"{key}_orders_over_belady_50"] = ours / best
    bench.figures[f"{key}_orders_over_minimum_50"] = ours
    bench.figures[f"{key}_orders_belady_over_minimum_50"] = best
    log(f"          over (D - C): {ours:.3f}, simulated Belady {best:.3f}")


def two_orders_half(bench):
    orders_half(bench, 2, "two")


def four_orders_half(bench):
    orders_half(bench, 4, "four", part=4)


def two_orders_throttled(bench):
    """Two jobs with different orders, half fits, on a throttled disk: compares an epoch with one
    for which nothing is evicted, because the jobs' samplers are not known to each other."""
    seconds = {}
    for kind, more in (("known", ()), ("unknown", ("--unknown",))):
        with Named(bench, kind, bench.files.bytes // 2, 2) as cache:
            done = cache.run([1, 2], WARMUP + 1, int(bench.args.rate * MB), more)
        describe(f"two jobs, orders {kind}, cache 50 %, throttled", done)
        seconds[kind] = done[-1]["seconds"]
    bench.figures["two_orders_epoch_vs_never_evict"] = seconds["unknown"] / seconds["known"]
    log(f"          an epoch: {seconds['known']:.1f} s, never evicting {seconds['unknown']:.1f} s")


def next_use(bench, key, what, epochs, more, simulation):
    """Runs one process whose cache of half of the bytes keeps what is used next, and compares its
    reads with Belady's: means of the epochs after the warm-up."""
    own = measure_memory(bench, "ours")
    cold(bench.files.paths)
    with bench.group() as group:
        group.limit_memory(bench.files.bytes // 2 + own + SLACK)
        worker = bench.worker(group, "ours", bench.files.bytes // 2, more=more)
        try:
            reads = describe(what, [epoch(group, [worker]) for _ in range(epochs)])
        finally:
            worker.close()
    policies = simulate(bench, f"epochs={epochs + 1}", *simulation)
    ours = statistics.mean(reads[WARMUP:]) / bench.files.disk_bytes
    best = policies["belady"]["alone"]
    bench.figures[f"{key}_over_belady"] = ours / best
    bench.figures[f"{key}_over_never_evict"] = ours / policies["never evict"]["alone"]
    log(f"          over all files: {ours:.3f}; simulated: Belady {best:.3f}, ours "
        f"{policies['ours']['alone']:.3f}, never evicting {policies['never evict']['alone']:.3f}")


def weighted(bench):
    """A sampler that draws with replacement: compares its reads with Belady's for the same draws."""
    with tempfile.NamedTemporaryFile(suffix=".draws") as draws:
        next_use(bench, "weighted_sampler", "weighted sampler, cache 50 %", WARMUP + 2,
                 ["--draws", draws.name], [f"draws={draws.name}", "known=3"])


def validation(bench):
    """Training, and validation after every second epoch, in one budget."""
    ones = len(bench.files.paths) // 10
    next_use(bench, "train_and_validation", "training and validation, cache 50 %", WARMUP + 4,
             ["--validation", str(ones)],
             [f"samples={len(bench.files.paths) - ones}", f"validation={ones}", "every=2"])


def simulate(bench, *arguments, blocks=None):
    """Simulates policies on files of these sizes, half of whose bytes fit: by policy, what an
    epoch reads over all bytes (bench/policies.c)."""
    with tempfile.NamedTemporaryFile("w", suffix=".sizes") as sizes:
        blocks = blocks or bench.files.blocks
        sizes.writelines(f"{size}\n" for size in blocks)
        sizes.flush()
        done = subprocess.run([os.path.join(BUILD, "bench", "bench_policies"),
                               f"samples={len(blocks)}", "share=50",
                               f"sizes={sizes.name}", *arguments], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise harness.Missing(done.stderr.strip()[-200:])
    return json.loads(done.stdout.strip().splitlines()[-1])["policies"]


# ---- the reader and the hit -------------------------------------------------


def fio(paths, depth, scratch, group=None, ramp_s=0):
    """Returns the MB/s of fio: it opens, reads and closes whole files with O_DIRECT and
    io_uring. The first `ramp_s` seconds do not count. A last sector that is not full is left
    out, because fio reads whole sectors only."""
    replay = os.path.join(scratch, "replay")
    with open(replay, "w") as f:
        f.write("fio version 2 iolog\n")
        for path in paths:
            length = os.path.getsize(path) // SECTOR * SECTOR
            f.write(f"{path} add\n{path} open\n{path} read 0 {length}\n{path} close\n")
    command = ["fio", "--name=read", "--ioengine=io_uring", "--direct=1", f"--iodepth={depth}",
               f"--read_iolog={replay}", "--replay_no_stall=1", "--output-format=json",
               f"--ramp_time={ramp_s}"]
    done = subprocess.run(group.command(command) if group else command, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=scratch)
    if done.returncode:
        raise harness.Missing(f"fio: {(done.stderr.strip() or done.stdout.strip())[-200:]}")
    answer = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["read"]
    return answer["io_bytes"] / answer["runtime"] / 1e3


def reader(paths, depth, scratch):
    """Returns the MB/s of our reader over the same files."""
    listing = os.path.join(scratch, "list")
    with open(listing, "w") as f:
        f.writelines(path + "\n" for path in paths)
    done = subprocess.run([os.path.join(BUILD, "bench", "bench_reader"), "--list", listing,
                           str(depth), "direct"], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode or not done.stdout.strip():
        raise harness.Missing(f"bench_reader: {done.stderr.strip()[-200:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])["reader_mb_s"]


def fetch(bench):
    """Compares our reader with fio, in turn. Each reads files that were not read before,
    because a hypervisor may cache what the guest does not."""
    depth, pairs = 32, 12
    each = min(2000, len(bench.files.paths) // (2 * pairs))
    paths = iter(random.Random(1).sample(bench.files.paths, 2 * pairs * each))
    ratios, ours, theirs = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        for n in range(pairs):
            speeds = {}
            for method in (reader, fio)[::1 if n % 2 else -1]:
                part = [next(paths) for _ in range(each)]
                cold(part)
                speeds[method] = method(part, depth, scratch)
            ours.append(speeds[reader])
            theirs.append(speeds[fio])
            ratios.append(speeds[reader] / speeds[fio])
    bench.figures["fetch_vs_fio"] = statistics.median(ratios)
    bench.figures["fetch_mb_s"] = statistics.median(ours)
    bench.figures["fio_mb_s"] = statistics.median(theirs)
    log(f"\nfetch     {each} files at a time, O_DIRECT, depth {depth}: "
        f"{bench.figures['fetch_mb_s']:.0f} MB/s, fio {bench.figures['fio_mb_s']:.0f} MB/s: "
        f"{bench.figures['fetch_vs_fio']:.2f} (from {min(ratios):.2f} to {max(ratios):.2f})")


def hit(bench):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        done = subprocess.run([os.path.join(BUILD, "bench", "cache_hit"), scratch], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise harness.Missing(done.stderr.strip()[-200:])
    answer = json.loads(done.stdout)
    bench.figures["hit_us"] = answer["hit_us"]
    bench.figures["hit_with_checksum_us"] = answer["hit_with_checksum_us"]
    bench.figures["hit_checksum_us"] = answer["checksum_us"]
    bench.figures["hit_copies"] = answer["copied"]
    bench.figures["decision_us"] = answer["decision_us"]
    bench.figures["index_bytes_per_item"] = answer["index_bytes_per_item"]
    log(f"\nhit       {answer['hit_us']:.2f} us of CPU to look up and pin one of "
        f"{answer['items']:,} small items; with {answer['item_bytes']:,} bytes "
        f"{answer['hit_with_checksum_us']:.1f} us, of which the checksum is "
        f"{answer['checksum_us']:.1f} us; {answer['copied']} copies; index of "
        f"{answer['index_bytes_per_item']:.0f} bytes an item at {answer['indexed']:,} items; "
        f"{answer['decision_us']:.2f} us to find one of 500,000 items to evict")


def soak(bench):
    """Reads the results of the last `make soak-cache`."""
    bench.take_soak("cache", "kills")


# name: (function, figures that it owes, seconds that it takes on two quiet cores)
PARTS = {
    "soak": (soak, ["soak_kills_survived"], 0),
    "hit": (hit, ["hit_us", "decision_us"], 15),
    "fetch": (fetch, ["fetch_vs_fio"], 15),
    "rate": (throttled_rate, ["throttled_mb_s"], 10),
    "65": (at_65, ["page_cache_over_minimum", "epoch_vs_torch_65", "reads_over_minimum_65"], 260),
    "shares": (reads_at_shares, [f"reads_over_minimum_{s}" for s in SHARES if s != 65], 100),
    "same": (same_stream, ["two_jobs_same_stream_reads"], 90),
    "full": (two_orders_full, ["two_orders_reads_full"], 60),
    "half": (two_orders_half, ["two_orders_over_belady_50"], 80),
    "four": (four_orders_half, ["four_orders_over_belady_50"], 110),
    "throttled": (two_orders_throttled, ["two_orders_epoch_vs_never_evict"], 150),
    "weighted": (weighted, ["weighted_sampler_over_belady"], 45),
    "validation": (validation, ["train_and_validation_over_belady"], 60),
    "peers": (page_cache_at_shares, [], 50),
}


def largest_share(bench):
    """Computes a figure over all shares; None if one of them is missing."""
    values = [bench.figures.get(f"reads_over_minimum_{share}") for share in SHARES]
    if None in values:
        bench.refuse(["reads_over_minimum"], "a share was not measured")
    else:
        bench.figures["reads_over_minimum"] = max(values)
        bench.figures["reads_over_minimum_file_bytes"] = bench.files.in_file_bytes(max(values))


def parse_arguments():
    parser = harness.parser("cache", __doc__, PARTS, minutes=15)
    parser.add_argument("--rate", type=float, default=80,
                        help="MB/s of the throttled disk (%(default)s)")
    return parser.parse_args()


def main():
    args = parse_arguments()
    harness.need_cache_files(args)
    log(f"machine   {harness.machine()}")
    log(f"          {harness.busy_note()}")
    log("          not controlled: what a hypervisor and the disk itself cache; what "
        "others read meanwhile")
    bench = Bench(args)
    files = bench.files
    log(f"files     {len(files.paths)}, {files.bytes / 2**30:.2f} GiB, "
        f"{files.disk_bytes / 2**30:.2f} GiB in blocks of {BLOCK} bytes; limit: share x "
        f"{files.bytes / 2**30:.2f} GiB + a process's own memory + {SLACK >> 20} MiB")
    bench.run(PARTS, (limits.Unavailable, OSError))
    if not args.only:
        largest_share(bench)
    bench.figures["files"], bench.figures["files_bytes"] = len(files.paths), files.bytes
    bench.finish("cache")


if __name__ == "__main__":
    main()
