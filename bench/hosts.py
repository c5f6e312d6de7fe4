"""make bench-hosts: several hosts' memories as one cache, and a plan that keeps traffic small.

2, 4 and 8 hosts are network namespaces of this machine (bench/namespaces.py). tc limits their
links, control groups their disks. Each has a memcached and a rank (bench/hosts_rank.c). The data
are 40,000 small files (tools/make_host_files.py). Ranks train synchronously; a sample is cropped
to 16 pixels, and nothing is computed. Files are evicted from the page cache before each epoch.
D: bytes of all files; C: a host's budget. Options: --data DIR, --minutes N, --only PART.
"""

import json
import math
import os
import select
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass

import cache
import harness
import limits
import namespaces
from harness import log

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build"))
HOST_FILES = os.environ.get("HOST_FILES") or os.path.join(ROOT, "data", "host-files")
MB = 1e6
SILENCE_S = 200  # if no rank answers for so long, something hangs
FILL = 0.7  # the budget is at most this share of a server's memory (-m)
BESIDE_MB = 32  # of -m besides: a page for each class of sizes
FIXED_BESIDE_MB = 3  # the same for servers that evict; they then hold a tenth more than C

READS = {2: (0.6, 0.8, 1.02), 4: (0.6, 1.02, 1.2), 8: (0.6, 1.02, 2.4)}  # hosts: sum C / D
READS_BATCH = 250
NETWORK_HOSTS, NETWORK_BATCH = 8, 256
ALONE_HOSTS, ALONE_SHARE, ALONE_DISK = 4, 0.3, 5 * MB
EXACT_HOSTS, EXACT_LINK = 4, 60 * MB  # bits per second
SPREAD_HOSTS, SPREAD_BATCH, SPREAD_SHARE = 4, 25, 0.5
SPREAD_DISK, SPREAD_SLOW, SPREAD_LOAD = 8 * MB, 4, 0.7
KNOWING = {"ours": 2, "exact": 1, "fixed": 1}  # epochs that are not measured


@dataclass
class Epoch:
    """One epoch of all ranks."""

    answers: list  # one of each rank
    disk: int  # bytes, counted by the kernel
    sent: int  # bytes between hosts

    @property
    def seconds(self):
        return max(a["seconds"] for a in self.answers)

    def sum(self, key):
        return sum(a.get(key, 0) for a in self.answers)

    @property
    def consumed(self):
        """Returns the bytes of the samples, from all sources."""
        return sum(map(self.sum, ("own_bytes", "peer_bytes", "bytes_read")))

    @property
    def waits(self):
        """Returns the seconds that each rank waited for its batches, except the first."""
        return [a["wait_s"] for a in self.answers]

    @property
    def spread(self):
        return max(self.waits) - min(self.waits)


class Bench(harness.Parts):
    """The shared state of all parts, and their results."""

    def __init__(self, args):
        super().__init__(args)
        self.cores = os.sched_getaffinity(0)
        self.files = {kind: cache.Files(os.path.join(args.data, kind))
                      for kind in ("even", "uneven")}
        self.jobs = 0

    def network(self, count):
        return namespaces.Network(count, self.args.data)


class Ranks:
    """A job with a rank on each of `hosts`. `caches`: the cache= text of each rank. A context
    manager."""

    def __init__(self, bench, network, files, hosts, caches, program="hosts_rank", **options):
        self.network, self.files, self.workers = network, files, []
        self.rates = None
        bench.jobs += 1
        env = {"HEADRACE_JOB": f"bench-{os.getpid()}-{bench.jobs}"}
        self.together = tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="hr-bench-")
        self.together.truncate(4096)
        options = {"data": files.folder, "together": self.together.name, "world": len(hosts),
                   **options}
        try:
            for rank, (host, text) in enumerate(zip(hosts, caches)):
                words = [f"{name}={value}" for name, value in
                         {**options, "rank": rank, "cache": text}.items()]
                command = [os.path.join(BUILD, "bench", program), *words]
                self.workers.append(harness.Worker(f"rank {rank}", host.command(command),
                                                   bench.cores, env))
        except BaseException:
            self.end()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *exception):
        if kind:
            self.end()
        for worker in self.workers:
            worker.close()
        self.together.close()

    def end(self):
        """Kills the ranks, because a rank would wait for peers that have ended."""
        for worker in self.workers:
            worker.process.kill()

    def epoch(self):
        """Runs an epoch. First sends each rank the rates that all ranks measured in the last
        epoch."""
        cache.cold(self.files.paths)
        disk, sent = self.network.read_bytes(), self.network.sent_bytes()
        for worker in self.workers:
            if self.rates:
                worker.process.stdin.write(f"rates {self.rates}\n")
            worker.begin()
        answers = self._answers()
        if all("rates" in a for a in answers):
            self.rates = ";".join(a["rates"] for a in answers)
        return Epoch(answers, self.network.read_bytes() - disk, self.network.sent_bytes() - sent)

    def _answers(self):
        """Returns the answers of all ranks. Raises the error of the first rank that ends
        without one."""
        found, pending = {}, {w.process.stdout: w for w in self.workers}
        while pending:
            ready, _, _ = select.select(list(pending), [], [], SILENCE_S)
            if not ready:
                raise harness.Missing(f"{len(pending)} ranks do not answer in {SILENCE_S} s")
            for stream in ready:
                worker = pending.pop(stream)
                found[worker] = worker.end()
        return [found[worker] for worker in self.workers]


def servers_text(hosts, budget):
    """Returns the cache= text for hosts with a budget of so many bytes each."""
    listed = ",".join(f"{host.address}:{namespaces.PORT}" for host in hosts)
    return f"memcached:{listed}?size={int(budget)}&form=encoded"


def megabytes_for(budget):
    return math.ceil(budget / FILL / (1 << 20)) + BESIDE_MB


def ours(bench, network, files, budget, **options):
    """Starts a job that uses the servers of all hosts."""
    caches = [servers_text(network.hosts, budget)] * len(network.hosts)
    return Ranks(bench, network, files, network.hosts, caches,
                 threads=1 if len(network.hosts) > 4 else 2, **options)


def describe(name, epoch):
    rate = epoch.sum("samples") / epoch.seconds
    tiers = [epoch.sum(key) / MB for key in ("own_bytes", "peer_bytes", "bytes_read")]
    log(f"{name:<44} {epoch.seconds:>6.2f} {rate:>8.0f} {epoch.disk / MB:>8.1f} "
        f"{epoch.sent / MB:>8.2f}  " + " ".join(f"{t:>7.1f}" for t in tiers)
        + f"  {epoch.sum('cpu_seconds'):>6.2f}  " + " ".join(f"{w:.2f}" for w in epoch.waits))


def table(title):
    log(f"\n{title:<44} {'s':>6} {'smpl/s':>8} {'disk MB':>8} {'sent MB':>8}  {'own':>7} "
        f"{'peer':>7} {'read MB':>7}  {'CPU s':>6}  waiting by rank, s")


# ---- parts ------------------------------------------------------------------


def plan(bench):
    """Measures the time of planning, and simulates the traffic for up to 1,024 hosts."""
    try:
        done = subprocess.run([os.path.join(BUILD, "bench", "bench_plan")], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError as error:
        raise harness.Missing(str(error)) from None
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise harness.Missing(f"bench_plan: {done.stderr.strip()[-200:]}")
    log("\n".join(lines[:-1]))
    answer = json.loads(lines[-1])
    bench.figures["plan_ms_per_million"] = answer["plan_ms_per_million"]
    for case in answer["shares"]:
        if case["per_host"] == NETWORK_BATCH and case["cached"] > 1:
            bench.figures[f"network_share_256_simulated_{case['hosts']}"] = case["share"]


def reads(bench):
    """Compares what the hosts read from their disks with D - sum C."""
    files = bench.files["even"]
    table("reads")
    excess, exact, first = [], [], []
    for count, shares in READS.items():
        with bench.network(count) as network:
            for share in shares:
                case = reads_case(bench, network, files, share)
                excess.append(case[0])
                exact.append(case[1])
                first.append(case[2])
                bench.figures[f"reads_excess_{count}_{share:g}"] = case[0]
                if share >= 1.02:
                    key = "reads_bytes_where_all_fits"
                    bench.figures[key] = max(bench.figures.get(key, 0), case[3])
    bench.figures["reads_excess"] = max(excess)
    bench.figures["reads_excess_file_bytes"] = max(exact)
    bench.figures["first_epoch_reads"] = max(first)
    log(f"          most beyond D - sum C: {max(excess):.4f} of D in blocks, {max(exact):.4f} in "
        f"bytes of files; a first epoch reads {max(first):.4f} of D")


def reads_case(bench, network, files, share):
    """Returns (reads beyond D - sum C in blocks, in bytes of files, both relative to D; blocks
    read in the first epoch relative to D; the most bytes that a later epoch read)."""
    count = len(network.hosts)
    budget = share * files.bytes / count
    network.start_servers(megabytes_for(budget))
    missing = max(0.0, 1 - share)
    with ours(bench, network, files, budget, batch=READS_BATCH) as ranks:
        begin = ranks.epoch()
        describe(f"{count} hosts, sum C = {share:g} D, first epoch", begin)
        later = [ranks.epoch() for _ in range(2)]
    for epoch in later:
        describe(f"{count} hosts, sum C = {share:g} D", epoch)
    if any(e.sum("samples") != len(files.paths) for e in [begin, *later]):
        raise harness.Missing("an epoch had a wrong number of samples")
    return (max(e.disk / files.disk_bytes for e in later) - missing,
            max(e.sum("bytes_read") / files.bytes for e in later) - missing,
            begin.disk / files.disk_bytes, max(e.disk for e in later))


def network_share(bench):
    """Measures the bytes sent between hosts for each byte consumed, with everything cached."""
    files, count = bench.files["even"], NETWORK_HOSTS
    budget = 1.1 * files.bytes / count
    table("network")
    with bench.network(count) as network:
        network.start_servers(megabytes_for(budget))
        # The first epoch drops some items, which the second one reads again.
        for assignment, before in (("local", 2), ("exact", 1)):
            with ours(bench, network, files, budget, batch=NETWORK_BATCH,
                      assignment=assignment) as ranks:
                found = [ranks.epoch() for _ in range(before + 3)][before:]
            for epoch in found:
                describe(f"{count} hosts x {NETWORK_BATCH} samples, {assignment}", epoch)
            share = sum(e.sent for e in found) / sum(e.consumed for e in found)
            key = "network_share_256" if assignment == "local" else "network_share_exact_256"
            bench.figures[key] = share
    bench.figures["network_share_partitioned"] = (count - 1) / count
    log(f"          sent per byte consumed: {bench.figures['network_share_256']:.4f}, "
        f"assignment=exact {bench.figures['network_share_exact_256']:.4f}; simple partitioned "
        f"caching's {(count - 1) / count:.3f} has no headers")


def alone(bench):
    """Compares with the same job if each host uses its memory only for itself, on slow disks."""
    files, count = bench.files["even"], ALONE_HOSTS
    budget = int(ALONE_SHARE * files.bytes)
    table(f"alone, disks of {ALONE_DISK / MB:g} MB/s")
    with bench.network(count) as network, Own(files, budget, count) as own:
        network.start_servers(megabytes_for(budget))
        with ours(bench, network, files, budget, batch=READS_BATCH) as together, \
                Ranks(bench, network, files, network.hosts, own.texts, threads=2,
                      batch=READS_BATCH) as each:
            together.epoch()
            for _ in range(2):  # until a host has had as many samples as it has room for
                each.epoch()
            network.limit_reads(ALONE_DISK)
            found = turns({"together": together, "alone": each}, 2)
    bench.figures["epoch_vs_alone"] = ratio(found, "alone", "together")
    for name in found:
        bench.figures[f"epoch_{name}_s"] = statistics.median(e.seconds for e in found[name])
    log(f"          an epoch is {bench.figures['epoch_vs_alone']:.2f} times as fast as when each "
        "rank's host caches for itself alone")


def one(bench):
    """Measures one host that trains on all samples with its own memory and disk."""
    files = bench.files["even"]
    budget = int(ALONE_SHARE * files.bytes)
    if "epoch_together_s" not in bench.figures:
        raise harness.Missing("nothing to compare with")
    table(f"one host, a disk of {ALONE_DISK / MB:g} MB/s")
    with bench.network(1) as network, Own(files, budget, 1) as own, \
            Ranks(bench, network, files, network.hosts, own.texts, threads=2,
                  batch=READS_BATCH) as ranks:
        ranks.epoch()
        network.limit_reads(ALONE_DISK)
        epoch = ranks.epoch()
    describe("one host alone, all samples", epoch)
    bench.figures["epoch_vs_one_host"] = epoch.seconds / bench.figures["epoch_together_s"]


class Own:
    """A cache in shared memory for each host, which no other host uses; removed at the end."""

    def __init__(self, files, budget, count):
        self.names = [f"bench-hosts-{os.getpid()}-{n}" for n in range(count)]
        self.texts = [f"shm:{name}?size={budget}&form=encoded" for name in self.names]
        self.folder = files.folder

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for name in self.names:
            subprocess.run([cache.HEADRACE, "cache", "drop", name], check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def turns(jobs, rounds):
    """Runs epochs of jobs in turn, in alternating order. Returns {name: epochs}."""
    found = {name: [] for name in jobs}
    for n in range(rounds):
        for name in list(jobs)[::-1 if n % 2 else 1]:
            found[name].append(jobs[name].epoch())
            describe(name, found[name][-1])
    return found


def ratio(found, over, under):
    """Returns the median over rounds of one job's seconds per epoch relative to the other's."""
    return statistics.median(a.seconds / b.seconds for a, b in zip(found[over], found[under]))


def exact(bench):
    """Compares the plan's assignment with the framework's order of ranks, on slow links."""
    files, count = bench.files["even"], EXACT_HOSTS
    budget = 1.1 * files.bytes / count
    table(f"exact, links of {EXACT_LINK / MB:g} Mbit/s")
    with bench.network(count) as network:
        network.start_servers(megabytes_for(budget))
        with ours(bench, network, files, budget, batch=READS_BATCH,
                  assignment="local") as local, \
                ours(bench, network, files, budget, batch=READS_BATCH,
                     assignment="exact") as other:
            local.epoch()
            other.epoch()
            network.limit_links(EXACT_LINK)
            found = turns({"local": local, "exact": other}, 2)
    bench.figures["epoch_vs_exact"] = ratio(found, "exact", "local")
    used = statistics.median(8 * e.sent / e.seconds / count / EXACT_LINK for e in found["exact"])
    bench.figures["exact_link_use"] = used
    bench.figures["epoch_vs_exact_at_line_rate"] = used * bench.figures["epoch_vs_exact"]
    log(f"          local is {bench.figures['epoch_vs_exact']:.2f} times as fast; exact uses "
        f"{used:.0%} of what the links can carry, and if it used all of it local would be "
        f"{used * bench.figures['epoch_vs_exact']:.2f} times as fast")


def spread(bench):
    """Compares how unevenly ranks wait, with samples of uneven cost and a slow disk, with fixed
    threads and an LRU cache in the same memory."""
    files, count = bench.files["uneven"], SPREAD_HOSTS
    budget = SPREAD_SHARE * files.bytes / count
    disks = [SPREAD_DISK] * (count - 1) + [SPREAD_DISK / SPREAD_SLOW]
    steps = len(files.paths) // (count * SPREAD_BATCH)
    epoch_s = (1 - SPREAD_SHARE) * files.disk_bytes / sum(disks) / SPREAD_LOAD
    options = {"batch": SPREAD_BATCH, "step_us": int(1e6 * epoch_s / steps)}
    table(f"spread, disks of {' '.join(f'{d / MB:g}' for d in disks)} MB/s")
    found = {}
    for assignment in ("local", "exact"):
        with bench.network(count) as network:
            network.start_servers(megabytes_for(budget))
            with ours(bench, network, files, budget, assignment=assignment, **options) as ranks:
                kind = "ours" if assignment == "local" else "exact"
                found[kind] = spread_epochs(network, ranks, kind, disks)
    with bench.network(count) as network:
        network.start_servers(math.ceil(budget / FILL / (1 << 20)) + FIXED_BESIDE_MB, evicts=True)
        with fixed(bench, network, files, **options) as ranks:
            found["fixed"] = spread_epochs(network, ranks, "fixed", disks)
        held = sum(int(host.server.stats()["bytes"]) for host in network.hosts)
    bench.figures["fixed_held_over_ours"] = held / budget / count
    conclude_spread(bench, found, options["step_us"])


def fixed(bench, network, files, **options):
    listed = ",".join(f"{host.address}:{namespaces.PORT}" for host in network.hosts)
    return Ranks(bench, network, files, network.hosts, [listed] * len(network.hosts),
                 "hosts_fixed", threads=4, **options)


def spread_epochs(network, ranks, kind, disks):
    """Runs two epochs that fill the cache, some in which the ranks learn the speeds of the disks,
    then those that are measured, which it returns."""
    for _ in range(2):
        ranks.epoch()
    for host, rate in zip(network.hosts, disks):
        host.group.limit_reads(int(rate))
    for _ in range(KNOWING[kind]):
        describe(f"{kind}, learning the disks", ranks.epoch())
    found = [ranks.epoch() for _ in range(1 + KNOWING[kind])]
    for epoch in found:
        describe(f"{kind}", epoch)
    return found


def conclude_spread(bench, found, step_us):
    spreads = {kind: statistics.median(e.spread for e in epochs)
               for kind, epochs in found.items()}
    seconds = {kind: statistics.median(e.seconds for e in epochs)
               for kind, epochs in found.items()}
    bench.figures.update(
        wait_spread_vs_fixed=spreads["fixed"] / max(spreads["ours"], 1e-3),
        wait_spread_ours_s=spreads["ours"], wait_spread_fixed_s=spreads["fixed"],
        wait_spread_exact_s=spreads["exact"],
        epoch_vs_fixed=seconds["fixed"] / seconds["ours"],
        reads_fixed_over_ours=statistics.median(e.disk for e in found["fixed"])
        / max(1, statistics.median(e.disk for e in found["ours"])))
    ready = [statistics.median(e.answers[n]["ready_s"] for e in found["ours"])
             for n in range(len(found["ours"][0].answers))]
    bench.figures["ready_spread_ours_s"] = max(ready) - min(ready)
    log(f"          the evicting servers hold {bench.figures['fixed_held_over_ours']:.2f} times the "
        "bytes that ours were allowed")
    log(f"          steps of {step_us / 1e3:.0f} ms; waiting spreads by {spreads['fixed']:.2f} s "
        f"an epoch with fixed threads, by {spreads['exact']:.2f} s with ours in rank order, by "
        f"{spreads['ours']:.2f} s with ours: {bench.figures['wait_spread_vs_fixed']:.1f}")
    log(f"          epochs are {bench.figures['epoch_vs_fixed']:.2f} times as fast (Lobster's paper: "
        "up to 1.5, on other machines and peers: a trend only); "
        f"a batch is ready {min(ready) * 1e3:.0f} to {max(ready) * 1e3:.0f} ms after it was wanted")


def soak(bench):
    """Reads the results of the last `make soak-hosts`."""
    bench.take_soak("hosts", "faults")


# name: (function, figures that it owes, seconds that it takes on two quiet cores)
PARTS = {
    "soak": (soak, ["soak_faults_survived"], 0),
    "plan": (plan, ["plan_ms_per_million"], 80),
    "reads": (reads, ["reads_excess"], 150),
    "network": (network_share, ["network_share_256"], 50),
    "exact": (exact, ["epoch_vs_exact"], 60),
    "alone": (alone, ["epoch_vs_alone"], 90),
    "spread": (spread, ["wait_spread_vs_fixed"], 130),
    "one": (one, [], 100),
}


def main():
    args = harness.parser("hosts", __doc__, PARTS, 15, HOST_FILES,
                          "a folder of tools/make_host_files.py").parse_args()
    if not os.path.isdir(os.path.join(args.data, "even")):
        sys.exit(f"{args.data}: no such folder; make it with tools/make_host_files.py, or name "
                 "one with --data")
    namespaces.end_on_signals()
    log(f"machine   {harness.machine()}")
    log(f"          {harness.busy_note()}")
    log("          not controlled: all hosts share this machine's cores and its disk's own cache")
    bench = Bench(args)
    os.sync()
    for kind, files in bench.files.items():
        log(f"files     {kind}: {len(files.paths)}, {files.bytes / MB:.0f} MB, "
            f"{files.disk_bytes / MB:.0f} MB in blocks of {cache.BLOCK} bytes")
    bench.run(PARTS, (limits.Unavailable, OSError))
    bench.figures["files"], bench.figures["files_bytes"] = \
        len(bench.files["even"].paths), bench.files["even"].bytes
    bench.finish("hosts")


if __name__ == "__main__":
    main()
