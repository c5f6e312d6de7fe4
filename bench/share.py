"""make bench-share: one preparation for K jobs, compared with K separate loaders.

K jobs only consume, photographs that Headrace prepares or that a dataset of one's own makes; then they have a step paced so that one job needs a third of what the
machine can prepare. Batches are 64 photographs of 224 x 224 as float32, from files in memory.
Headrace's agent with one stream, K independent Headrace loaders, K independent torch
DataLoaders and TensorSocket alternate, in rounds of changing order; each case runs for
seconds, after a warm-up. Then the cost of taking a batch, the agent's shared memory, and how
waiting is spread over the ranks of a host whose samples differ in cost are measured.
Options: --data DIR, --seconds S, --rounds N, --minutes N, --only PART.
"""

import importlib.metadata
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

import harness
import loader
import share_jobs as jobs
import share_ranks
from harness import log

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build"))
VENV = os.path.join(os.environ.get("VENV", os.path.join(ROOT, ".venv")), "bin", "python")
KINDS = {"agent": "Headrace, one agent", "own": "Headrace, each its own",
         "torch": "torch DataLoader, each its own", "tensorsocket": "TensorSocket",
         "user": "own dataset, one agent", "user_tensorsocket": "own dataset, TensorSocket"}
COUNTS = (1, 2, 4, 8)
PEERS = ("own", "torch", "tensorsocket")
WARM_S = 1.5
READY_S = {"tensorsocket": 40, "user_tensorsocket": 40}  # until all jobs of a case have had their first batches
READY_OTHERS_S = 90
TRIES = {"tensorsocket": 2, "user_tensorsocket": 2}  # of a case, see share_jobs.py
SLOW_S = {"torch": 12, "tensorsocket": 9, "user": 9, "user_tensorsocket": 9}  # the least time to measure a case of slow batches
CASE_S = {"agent": 8, "own": 8, "torch": 24, "tensorsocket": 26, "user": 14,
          "user_tensorsocket": 26}  # about, the start included
HANDOVER_BATCHES = 200
DISTURBED = 0.05  # share of the machine, from which other processes make rates differ


@dataclass
class Case:
    kind: str
    jobs: int
    data: str
    seconds: float
    step_s: float = 0
    socket: str = ""
    workers: int = 1
    ports: tuple = ()

    def __post_init__(self):
        cores = len(os.sched_getaffinity(0))
        # TensorSocket's producer has all workers, and the agent lets as many work as one job has.
        at_once = 1 if self.is_tensorsocket or self.kind == "user" else self.jobs
        self.workers = max(1, cores // at_once)
        if self.is_tensorsocket:
            self.ports = jobs.free_ports(4)

    @property
    def is_tensorsocket(self):
        return self.kind in ("tensorsocket", "user_tensorsocket")

    @property
    def has_agent(self):
        return self.kind in ("agent", "user")

    @property
    def burst(self):
        """Returns how many batches arrive at once."""
        return jobs.GROUP if self.is_tensorsocket else 1

    @property
    def first(self):
        """Returns how many batches do not count: until all of the agent's window has been used once,
        its memory is fresh, which costs a fault a page."""
        return jobs.WINDOW if self.has_agent else self.burst


@dataclass
class Result:
    rates: list  # samples per second of each job
    prepared: float  # samples that all processes prepared during the measurement
    cpu_agent: float  # seconds of the process that prepares for all jobs, with its helpers
    cpu_jobs: float
    read_bytes: float
    seconds: float
    waited: float  # share of the jobs' time that they waited
    others: float  # share of the cores' time that other processes, or other machines, took
    memory_bytes: int = 0  # anonymous files of the agent
    notes: list = field(default_factory=list)

    @property
    def rate(self):
        """Returns the median over the jobs of their samples per second."""
        return statistics.median(self.rates)

    @property
    def cpu(self):
        """Returns the CPU seconds of a prepared sample."""
        return (self.cpu_agent + self.cpu_jobs) / self.prepared

    @property
    def read_per_job_sample(self):
        """Returns the bytes read for each sample that every job got."""
        return self.read_bytes / (statistics.mean(self.rates) * self.seconds)


class Agent:
    """A `headrace agent` that uses all cores, on a socket of its own."""

    def __init__(self, folder, threads):
        self.socket = os.path.join(folder, "agent", "socket")
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "cli", "headrace"), "agent", "--socket", self.socket,
             "--threads", str(threads)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"})
        line = self.process.stdout.readline()
        if "serving" not in line:
            self.process.kill()
            self.process.wait()
            raise harness.Missing(f"headrace agent did not start: {line.strip()[:200]}")

    def status(self):
        import headrace

        return headrace.agent_status(self.socket)

    def wait_until_unused(self):
        end = time.monotonic() + 20
        while self.status()["jobs"]:
            if time.monotonic() > end:
                raise harness.Missing("jobs that were ended are still attached")
            time.sleep(0.05)

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Bench(harness.Parts):
    """The shared state of all parts, and their results."""

    def __init__(self, args, scratch):
        super().__init__(args)
        self.scratch = scratch
        self.cores = len(os.sched_getaffinity(0))
        self.results = {}  # by (kind, jobs, is_paced), in the order of rounds
        self.missing = {}  # by kind: why it cannot be measured
        self.step_s = 0
        self._agent = Agent(scratch, self.cores)

    @property
    def agent(self):
        if self._agent.process.poll() is not None:
            raise harness.Missing("the agent has ended")
        return self._agent

    def close(self):
        self._agent.close()



# ---- a case -----------------------------------------------------------------


class Watch:
    """The counters of a case at one moment."""

    def __init__(self, bench, case, notes, running, producer):
        self.when = time.monotonic()
        self.cpu_all = harness.busy_seconds()
        self.read_own = sum(map(notes.read, range(case.jobs)))
        self.cpu_agent, pids = 0, []
        if case.has_agent:
            queues = [queue for stream in bench.agent.status()["streams"]
                     for queue in stream["queues"]]
            self.queues = {queue["queue"]: queue["prepared"] for queue in queues}
            self.read = {queue["queue"]: queue["bytes_read"] for queue in queues}
            self.cpu_agent = sum(cpu for _, cpu in jobs.family(bench.agent.process.pid))
        elif producer:
            pids = jobs.family(producer.pid)
            self.cpu_agent = sum(cpu for _, cpu in pids)
        of_jobs = [member for job in running for member in jobs.family(job.pid)]
        self.cpu_jobs = sum(cpu for _, cpu in of_jobs)
        if not case.has_agent:
            self.characters = jobs.read_characters(pid for pid, _ in of_jobs + pids)


def rate_between(times, begin, end, burst):
    """Returns the samples per second between the first batches of the first and the last burst in
    [begin, end]; None if there are fewer than two bursts."""
    marks = [(n, t) for n, t in enumerate(times) if n % burst == 0 and begin <= t <= end]
    if len(marks) < 2:
        return None
    (first, since), (last, until) = marks[0], marks[-1]
    return (last - first) * jobs.BATCH / (until - since)


def wait_for(case, running, notes, wanted):
    """Waits until each job has had as many batches as `wanted` says."""
    seconds = READY_S.get(case.kind, READY_OTHERS_S)
    end = time.monotonic() + seconds
    while any(notes.count(i) < wanted[i] for i in range(case.jobs)):
        for job in running:
            if job.ended() is not None:
                raise harness.Missing(f"a process of {case.kind} ended by itself")
        if time.monotonic() > end:
            starved = sum(notes.count(i) < wanted[i] for i in range(case.jobs))
            raise harness.Missing(f"{starved} of {case.jobs} jobs got no batches in "
                                  f"{seconds:.0f} s")
        time.sleep(0.02)


def run_case(bench, case):
    """Runs the jobs of a case and measures them for a while."""
    notes, running, producer = jobs.Notes(case.jobs), [], None
    try:
        running = [jobs.Forked(jobs.consume, case, notes, i) for i in range(case.jobs)]
        if case.is_tensorsocket:
            time.sleep(1)  # so that all of them get its first batch
            producer = jobs.Forked(jobs.tensorsocket_produce, case)
        all_of_them = running + [producer] * bool(producer)
        wait_for(case, all_of_them, notes, [case.first + 1] * case.jobs)
        time.sleep(WARM_S)
        waited = sum(map(notes.waited, range(case.jobs)))
        before = Watch(bench, case, notes, running, producer)
        counts = [notes.count(i) for i in range(case.jobs)]
        time.sleep(max(case.seconds, SLOW_S.get(case.kind, 0)))
        wait_for(case, all_of_them, notes, [n + 2 * case.burst for n in counts])
        after = Watch(bench, case, notes, running, producer)
        waited = sum(map(notes.waited, range(case.jobs))) - waited
        memory = jobs.memory_files(bench.agent.process.pid) if case.has_agent else 0
    finally:
        for process in running + [producer] * bool(producer):
            process.end()
    if case.has_agent:
        bench.agent.wait_until_unused()
    return conclude(case, notes, before, after, waited, memory)


def conclude(case, notes, before, after, waited, memory):
    seconds = after.when - before.when
    rates = [rate_between(notes.times(i), before.when, after.when, case.burst)
             for i in range(case.jobs)]
    if None in rates:
        raise harness.Missing(f"{case.kind} x {case.jobs}: too few batches for a rate")
    if case.has_agent:
        prepared, read = (sum(now[queue] - then.get(queue, 0) for queue in now)
                          for now, then in ((after.queues, before.queues),
                                            (after.read, before.read)))
    else:
        prepared = seconds * (rates[0] if case.is_tensorsocket else sum(rates))
        read = (after.read_own - before.read_own if case.kind == "own"
                else after.characters - before.characters)
    agent, own = after.cpu_agent - before.cpu_agent, after.cpu_jobs - before.cpu_jobs
    others = (after.cpu_all - before.cpu_all - agent - own) / seconds / len(os.sched_getaffinity(0))
    return Result(rates, prepared, agent, own, read, seconds,
                  min(1, waited / seconds / case.jobs), max(0, others), memory)


def table():
    log(f"\n{'':<32} {'jobs':>4} {'samples/s a job':>15} {'least':>7} {'all jobs':>8} "
        f"{'CPU us/sample':>13} {'agent':>6} {'jobs':>6} {'kB read*':>8} {'waiting':>7} {'others':>7}")


def measure(bench, kind, count, is_paced):
    """Measures a case, stores and logs the result. Returns None if its kind cannot be measured."""
    if kind in bench.missing:
        return None
    step_s = bench.step_s if is_paced else 0
    for is_last in [False] * (TRIES.get(kind, 1) - 1) + [True]:
        case = Case(kind, count, bench.args.data, bench.args.seconds, step_s, bench.agent.socket)
        try:
            result = run_case(bench, case)
            break
        except harness.Missing as reason:
            if not is_last:
                log(f"{KINDS[kind]:<32} {count:>4} once more: {reason}")
                bench.figures[f"{kind}_restarts"] = bench.figures.get(f"{kind}_restarts", 0) + 1
                continue
            bench.missing[kind] = str(reason)
            log(f"{KINDS[kind]:<32} {count:>4} left out: {reason}")
            return None
    bench.results.setdefault((kind, count, is_paced), []).append(result)
    each = 1e6 / result.prepared
    log(f"{KINDS[kind]:<32} {count:>4} {result.rate:>15.0f} {min(result.rates):>7.0f} "
        f"{sum(result.rates):>8.0f} {result.cpu * 1e6:>13.0f} {result.cpu_agent * each:>6.0f} "
        f"{result.cpu_jobs * each:>6.0f} {result.read_per_job_sample / 1e3:>8.1f} "
        f"{result.waited:>7.0%} {result.others:>7.0%}")
    return result


# ---- parts ------------------------------------------------------------------


def rounds(bench, is_paced, count):
    """Runs rounds of all cases of the agent, and of all peers with 8 jobs, in changing order."""
    cases = [("agent", k) for k in COUNTS] + [(kind, COUNTS[-1]) for kind in PEERS]
    needs = sum(CASE_S[kind] for kind, _ in cases)
    table()
    for n in range(count):
        if n and bench.left() < needs:
            log(f"of {bench.args.minutes:.0f} minutes {bench.left():.0f} s are left: {n} rounds")
            break
        for kind, k in cases if n % 2 == 0 else cases[::-1]:
            measure(bench, kind, k, is_paced)


def only_consuming(bench):
    rounds(bench, False, bench.args.rounds)
    log("* bytes of files read, from memory or disk, for each sample that every job got")
    compare(bench, "k8_vs_k1", lambda a, b: a.rate / b.rate, ("agent", 8), ("agent", 1))
    for kind, key in (("torch", "k8_vs_torch"), ("own", "k8_vs_own_independent"),
                      ("tensorsocket", "k8_vs_tensorsocket")):
        compare(bench, key, lambda a, b: a.rate / b.rate, ("agent", 8), (kind, 8))
    compare(bench, "cpu_per_sample_k8_vs_k1", lambda a, b: a.cpu / b.cpu, ("agent", 8),
            ("agent", 1))
    compare(bench, "read_k8_vs_k1", lambda a, b: a.read_per_job_sample / b.read_per_job_sample,
            ("agent", 8), ("agent", 1))
    tell_agent(bench, False)


def user_dataset(bench):
    """Measures a dataset with its own __getitem__, shared by 8 jobs: against one, and TensorSocket."""
    cases = [("user", 1), ("user", 8), ("user_tensorsocket", 8)]
    table()
    for n in range(bench.args.rounds):
        if n and bench.left() < sum(CASE_S[kind] for kind, _ in cases):
            log(f"{bench.left():.0f} s are left: {n} rounds")
            break
        for kind, k in cases if n % 2 == 0 else cases[::-1]:
            measure(bench, kind, k, False)
    compare(bench, "user_dataset_k8_vs_k1", lambda a, b: a.rate / b.rate, ("user", 8), ("user", 1))
    compare(bench, "user_dataset_vs_tensorsocket", lambda a, b: a.rate / b.rate, ("user", 8),
            ("user_tensorsocket", 8))
    compare(bench, "user_dataset_cpu_k8_vs_k1", lambda a, b: a.cpu / b.cpu, ("user", 8), ("user", 1))
    compare(bench, "user_dataset_cpu_vs_tensorsocket", lambda a, b: b.cpu / a.cpu, ("user", 8),
            ("user_tensorsocket", 8))
    tell_others(bench, cases)


def tell_others(bench, cases):
    """Tells how much of the machine other processes had in the case that they disturbed most."""
    most = max((result.others for case in cases for result in bench.results.get((*case, False), [])),
               default=0)
    bench.figures["user_dataset_others_most"] = most
    if most > DISTURBED:
        log(f"other processes had up to {most:.0%} of the machine during a case, and the cases of a "
            "round run one after the other: take the rates again on a quiet machine")


def paced(bench):
    """Measures with a step such that one job needs a third of what the machine can prepare."""
    alone = bench.results.get(("agent", 1, False))
    rate = (statistics.median(r.rate for r in alone) if alone
            else run_case(bench, Case("agent", 1, bench.args.data, 3, 0,
                                      bench.agent.socket)).rate)
    bench.step_s = 3 * jobs.BATCH / rate
    log(f"\npaced     a step of {bench.step_s * 1e3:.1f} ms: {rate / 3:.0f} samples/s a job")
    rounds(bench, True, max(1, bench.args.rounds - 1))
    bench.figures["paced_step_ms"] = bench.step_s * 1e3
    compare(bench, "paced_k8_vs_k1", lambda a, b: a.rate / b.rate, ("agent", 8), ("agent", 1),
            True)
    for kind, key in (("torch", "paced_k8_vs_torch"), ("own", "paced_k8_vs_own_independent"),
                      ("tensorsocket", "paced_k8_vs_tensorsocket")):
        compare(bench, key, lambda a, b: a.rate / b.rate, ("agent", 8), (kind, 8), True)
    tell_agent(bench, True)
    staging(bench)


def staging(bench):
    """Measures the agent's shared memory while its window is full."""
    found = [r.memory_bytes for (kind, _, is_paced), results in bench.results.items()
             if kind == "agent" and is_paced for r in results]
    if not found:
        raise harness.Missing("the agent was not measured")
    batch = jobs.BATCH * 3 * jobs.SIDE * jobs.SIDE * 4
    bound = jobs.WINDOW * batch
    bench.figures["staging_bytes"], bench.figures["staging_bound_bytes"] = max(found), bound
    log(f"staging   {max(found) / 1e6:.1f} MB in shared memory, headers and control blocks included; window "
        f"x batch bytes: {jobs.WINDOW} x {batch / 1e6:.1f} = {bound / 1e6:.1f} MB: "
        f"{max(found) / bound:.3f} of it")


def fewer_jobs(bench):
    """Measures the peers with 1, 2 and 4 jobs."""
    table()
    for k in COUNTS[:-1]:
        for kind in PEERS:
            if bench.left() < CASE_S[kind] + 60:
                log(f"{KINDS[kind]:<32} {k:>4} left out: no time")
                continue
            result = measure(bench, kind, k, False)
            if result:
                bench.figures[f"{kind}_{k}_samples_per_s"] = result.rate


def compare(bench, key, ratio, over, under, is_paced=False):
    """Stores a figure, the median of a ratio over the rounds, and logs its range."""
    pairs = list(zip(bench.results.get((*over, is_paced), []),
                     bench.results.get((*under, is_paced), [])))
    if not pairs:
        reason = bench.missing.get(under[0]) or bench.missing.get(over[0]) or "not measured"
        bench.refuse([key], reason)
        return
    values = [ratio(a, b) for a, b in pairs]
    bench.figures[key] = statistics.median(values)
    bench.figures[key + "_spread"] = (max(values) - min(values)) / statistics.median(values)
    log(f"{key:<32} {bench.figures[key]:>8.3f}  ({min(values):.3f} .. {max(values):.3f}, "
        f"{len(values)} rounds)")


def tell_agent(bench, is_paced):
    prefix = "paced_" if is_paced else ""
    for kind, k, was_paced in bench.results:
        if was_paced == is_paced and (kind == "agent" or k == 8):
            results = bench.results[kind, k, is_paced]
            name = f"{prefix}{kind}_{k}"
            bench.figures[name + "_samples_per_s"] = statistics.median(r.rate for r in results)
            bench.figures[name + "_cpu_us_per_sample"] = 1e6 * statistics.median(
                r.cpu for r in results)
            bench.figures[name + "_read_bytes_per_job_sample"] = statistics.median(
                r.read_per_job_sample for r in results)


def ask(command):
    """Runs a program. Returns its last line, which is JSON."""
    done = subprocess.run([str(c) for c in command], check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode or not done.stdout.strip():
        raise harness.Missing(f"{os.path.basename(str(command[0]))}: "
                              f"{(done.stderr.strip() or 'no answer')[-300:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def handover(bench):
    """Measures the CPU time that a job needs to take a batch that is ready, in C and in Python."""
    rate = max((r.rate for r in bench.results.get(("agent", 1, False), [])), default=600)
    pause_ms = min(150, 1.6 * 1e3 * jobs.BATCH / rate)
    arguments = [bench.agent.socket, bench.args.data, HANDOVER_BATCHES, f"{pause_ms:.1f}"]
    program = [os.path.join(BUILD, "bench", "handover"), *arguments]
    peer = [VENV, "-W", "ignore", os.path.join(ROOT, "bench", "peers", "share_handover.py"),
            *arguments]
    c, touched, python = (ask(command) for command in (program, [*program, "touch"], peer))
    bench.figures.update(
        handover_us=c["median_us"], handover_p99_us=c["p99_us"],
        handover_first_us=c["first_us"], handover_clock_us=c["clock_us"],
        handover_touched_us=touched["median_us"], handover_touched_p99_us=touched["p99_us"],
        handover_waited=c["waited"] + touched["waited"] + python["waited"],
        handover_python_us=python["median_us"], handover_python_p99_us=python["p99_us"],
        handover_python_first_us=python["first_us"],
        handover_python_native_us=python["native_us"],
        handover_python_wrapping_us=python["wrapping_us"])
    log(f"\nhandover  C: {c['median_us']:.2f} us of CPU a batch, 99th percentile "
        f"{c['p99_us']:.2f}, the first after a pause {c['first_us']:.2f} (of each "
        f"{c['clock_us']:.2f} for the clock); with a byte of every page read "
        f"{touched['median_us']:.0f}, {touched['p99_us']:.0f}\n"
        f"          Python, to torch tensors: {python['median_us']:.2f} us, 99th percentile "
        f"{python['p99_us']:.2f}, the first {python['first_us']:.2f}; the native loader's "
        f"batch {python['native_us']:.2f}, wrapping it {python['wrapping_us']:.2f}\n"
        f"          {HANDOVER_BATCHES} batches each, every {pause_ms:.0f} ms; "
        f"{bench.figures['handover_waited']} that were not ready are left out")


def ranks(bench):
    share_ranks.spread(bench)


def soak(bench):
    """Reads the results of the last `make soak-share`."""
    bench.take_soak("share", "faults")


# name: (function, figures that it owes, seconds that it takes on two quiet cores)
PARTS = {
    "soak": (soak, ["soak_faults_survived"], 0),
    "consume": (only_consuming, ["k8_vs_k1", "k8_vs_torch", "k8_vs_own_independent",
                                 "k8_vs_tensorsocket", "cpu_per_sample_k8_vs_k1"], 90),
    "user": (user_dataset, ["user_dataset_k8_vs_k1", "user_dataset_vs_tensorsocket"], 60),
    "handover": (handover, ["handover_us", "handover_python_us"], 45),
    "ranks": (ranks, ["rank_wait_spread_vs_separate"], 100),
    "paced": (paced, ["paced_k8_vs_k1", "staging_bytes"], 90),
    "fewer": (fewer_jobs, [], 30),
}


def versions(bench):
    """Imports the modules that jobs need before they are forked. Returns their versions."""
    import headrace
    import headrace.torch  # noqa: F401
    import torch
    import torchvision_shim

    torchvision_shim.prepare()
    import torchvision

    try:
        import tensorsocket  # noqa: F401

        peer = f"TensorSocket {importlib.metadata.version('tensorsocket')}"
    except ImportError as error:
        bench.missing["tensorsocket"] = f"TensorSocket is not installed ({error})"
        peer = bench.missing["tensorsocket"]
    bench.figures["tensorsocket_version"] = peer.split()[-1]
    log(f"versions  Headrace {headrace.__version__}, torch {torch.__version__}, torchvision "
        f"{torchvision.__version__}, {peer}")


def parse_arguments():
    parser = harness.parser("share", __doc__, PARTS, minutes=14.5,
                            data=os.environ.get("DATA") or os.path.join(ROOT, "data", "sample"),
                            data_help="an image folder")
    parser.add_argument("--seconds", type=float, default=5,
                        help="of measuring a case (%(default)s; slow ones take longer)")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def main():
    args = parse_arguments()
    if not os.path.isdir(args.data):
        sys.exit(f"{args.data}: no such folder; make the sample set with `make samples`, or name "
                 "a folder with --data")
    log(f"machine   {harness.machine()}")
    log(f"          {harness.busy_note()}")
    log("          not controlled: other processes, the frequency of the cores, which core a "
        "thread runs on")
    loader.warm(args.data)
    with tempfile.TemporaryDirectory(prefix="headrace-share-") as scratch:
        bench = Bench(args, scratch)
        try:
            versions(bench)
            bench.run(PARTS, (OSError, subprocess.TimeoutExpired))
        finally:
            bench.close()
    bench.finish("share")


if __name__ == "__main__":
    main()
