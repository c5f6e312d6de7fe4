"""Measures training scripts without a probe, to compare them with predictions.

A trial is one process; a case is one or more of its epochs under a change. The processes of
all trials take turns. Each round runs every case once (more often if its epochs are short),
first forwards, then backwards, so that a machine that gets slower affects all cases equally.
The machine's speed is measured before and after every epoch (bench/reference.py).
"""

import contextlib
import math
import statistics
import time
from dataclasses import dataclass, field

import cache
import harness
import limits
import reference
from cache import cold
from harness import log

ENV = {"PYTHONDONTWRITEBYTECODE": "1"}
ROUNDS = 3  # at most
OFF = 0.02  # a case is measured again if the machine's speed differs by more


@dataclass
class Case:
    """A prediction, and how it is measured."""

    figure: str  # that gets its error
    name: str
    change: dict  # arguments of Stalls.predict
    epochs: int
    disk: float = 0  # samples per second; 0: not throttled
    step_ms: float | None = None  # None: that of the command


@dataclass
class Trial:
    """A process of a training script without a probe, which measures some cases."""

    command: list
    cases: list
    cpus: list | None = None  # None: all
    storage: bool = True  # each epoch begins with no file in the page cache; else with all files
    fill: bool = False  # an epoch before the cases fills the loader's cache
    page_share: float | None = None  # share of the files that fit into the page cache


@dataclass
class Epoch:
    """One measured epoch."""

    rate: float  # samples per second of its steady part
    cpu_us: float  # CPU time of a sample, in the process and its workers
    others: float  # share of all cores that other processes used meanwhile
    read: float  # bytes read from the disk, relative to those of all files
    seconds: float
    speed: reference.Speed  # of the machine, before and after it


@dataclass
class Measured:
    """A case, its trial's process, and its epochs."""

    plain: object
    case: Case
    epochs: list = field(default_factory=list)

    def speed(self):
        return reference.mean([epoch.speed for epoch in self.epochs])


class Plain:
    """The process of a trial, and its control group."""

    def __init__(self, bench, trial):
        self.bench, self.trial = bench, trial
        self.cores = len(trial.cpus or bench.cores)
        self.group = bench.group()
        try:
            self.worker = harness.Worker(trial.command[3],
                                         self.group.command([*trial.command, "--serve"]),
                                         trial.cpus or bench.cores, ENV)
        except BaseException:
            self.group.close()
            raise

    def close(self):
        self.worker.close()
        self.group.close()

    def epoch(self, step_ms=None, disk=0):
        """Runs an epoch. Returns the process' answer, and the CPU seconds of other processes."""
        self.bench.throttle(self.group, disk)
        busy = cache.busy_seconds()
        self.worker.process.stdin.write("pass\n" if step_ms is None else f"pass {step_ms}\n")
        self.worker.process.stdin.flush()
        answer = self.worker.end()
        return answer, max(0, cache.busy_seconds() - busy - answer["cpu_seconds"])

    def prepare(self):
        """Prepares the trial's measurement. A step that computes is not changed."""
        files, trial = self.bench.files, self.trial
        no_step = None if trial.cases[0].step_ms is None else 0
        if trial.page_share is not None:
            cold(files.paths)
            with limits.Peak(self.group) as peak:
                self.epoch(no_step)
            self.group.limit_memory(int(peak.bytes + cache.SLACK
                                        + trial.page_share * files.disk_bytes))
            self.epoch(no_step)
            self.epoch(no_step)
        elif not trial.storage:
            read_all(files.paths)
            if no_step is not None:
                self.epoch(no_step)
        else:
            if not trial.fill:
                cold(files.paths)
            self.epoch(no_step)

    def measure(self, case, before):
        """Runs an epoch, then measures the machine's speed."""
        bench, read = self.bench, self.group.read_bytes()
        answer, others = self.epoch(case.step_ms, case.disk)
        read = self.group.read_bytes() - read
        after = bench.reference.read()
        return Epoch(answer["steady_samples"] / answer["steady_seconds"],
                     1e6 * answer["cpu_seconds"] / answer["samples"],
                     others / answer["seconds"] / len(bench.cores),
                     read / bench.files.disk_bytes, answer["seconds"],
                     reference.mean([before, after])), after


def read_all(paths):
    for path in paths:
        with open(path, "rb", buffering=0) as f:
            f.readall()


def held(paths):
    """Reads files into memory and locks them there until the context ends: otherwise the kernel
    would evict some within seconds."""
    from headrace import _core

    return _core.StorageHold(paths, most_bytes=_core.machine()["page_cache_bytes"] // 4)


def turns(cases, number, rounds):
    """Returns the cases of a round, forwards and backwards. A case with more epochs than there
    are rounds runs more than once per round; one with fewer runs only in the first rounds."""
    def of(one):
        return -(-one.case.epochs * (number + 1) // rounds) - -(-one.case.epochs * number // rounds)

    order, again = [], 0
    while due := [one for one in cases if of(one) > again]:
        order += due[::-1] if again % 2 else due
        again += 1
    return order if number % 2 == 0 else order[::-1]


def run_round(bench, due):
    """Runs an epoch of each case. Files stay locked in memory until a case does not need that."""
    before, in_memory = bench.reference.read(), False
    with contextlib.ExitStack() as holding:
        for one in due:
            trial = one.plain.trial
            if trial.page_share is None and trial.storage:
                holding.close()
                cold(bench.files.paths)
                in_memory = False
            elif trial.page_share is None and not in_memory:
                holding.enter_context(held(bench.files.paths))
                in_memory = True
            epoch, before = one.plain.measure(one.case, before)
            one.epochs.append(epoch)


class Runs:
    """The processes of some trials; a context manager."""

    def __init__(self, bench, trials):
        self.bench, self.cases, self.plains = bench, [], []
        try:
            for trial in trials:
                plain = Plain(bench, trial)
                self.plains.append(plain)
                plain.prepare()
                self.cases += [Measured(plain, case) for case in trial.cases]
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        for plain in self.plains:
            plain.close()

    def measure(self):
        begun = time.monotonic()
        rounds = min(ROUNDS, max(one.case.epochs for one in self.cases))
        for number in range(rounds):
            run_round(self.bench, turns(self.cases, number, rounds))
        log(f"          plain runs: {time.monotonic() - begun:.0f} s; "
            f"{reference.mean([one.speed() for one in self.cases])}")

    def again(self, cases, seconds):
        """Runs another epoch of each case, as time permits."""
        due = []
        for one in cases:
            seconds -= 1.5 * one.epochs[-1].seconds
            if seconds > 0:
                due.append(one)
        if due:
            run_round(self.bench, due)
        return due


def bound_by_cores(said, computes):
    """Returns whether the prediction says that the cores limit the speed, not a sleeping step
    or the disk. `computes`: the step computes on these cores."""
    rates = {"prepare": said["prepare_rate"], "fetch": said["fetch_rate"]}
    if not computes:
        rates["device"] = said["device_rate"]
    return min(rates, key=rates.get) == "prepare" or \
        (computes and said["device_rate"] < rates["fetch"])


def mean_of(predictions):
    """Returns the mean of each figure over the analyses before and after."""
    keys = ("rate", "low", "high", "reference_rate", "prepare_rate", "fetch_rate", "device_rate")
    found = {key: [said[key] for said in predictions if said[key] is not None] for key in keys}
    return {key: statistics.mean(values) if values else math.nan
            for key, values in found.items()}


def is_off(one, analysed):
    """Returns whether the machine was faster or slower than during the analyses."""
    cores = one.plain.cores
    return abs(one.speed().of(cores) / analysed.of(cores) - 1) > OFF


def scaled_rate(one, analysed):
    """Returns the median rate, scaled to the machine's speed during the analyses if the cores
    limit it."""
    cores = one.plain.cores
    return statistics.median(epoch.rate * analysed.of(cores) / epoch.speed.of(cores)
                             for epoch in one.epochs)


def spread(values):
    return (max(values) - min(values)) / statistics.median(values)
