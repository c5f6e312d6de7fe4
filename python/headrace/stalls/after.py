"""Measurements after the segments, while the script's loop waits: the loader alone at several core
counts (P), storage at several depths (F), and the cost of Headrace's own preparation of these
files."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import _core
from . import counters
from .measurement import Measurement
from .paused import paused_rate
from .sources import IndexSet, Source

USUAL_S = 150.0  # of a run, for which these times are; less in shorter ones
DRAIN_S = 1.5
COLD_PART_S = 0.75
LONGEST_DRAIN_S = 12.0
EPOCH_STARTS = 3  # that are measured
LONG_START_S = 1.0  # one is enough
PARTS = 4  # of a drain on all cores, for an interval
MOST_COLD_PARTS = 8
LEAST_TURNS = 4  # of a warm drain, in parts or not
DEPTHS = (1, 4, 16, 32)
DEPTH_S = 1.5
LEAD_IN_S = 0.5  # a disk that idled may first give more than it can keep up
PAUSED_S = 1.5
MEMORY_S = 0.5


def _share(m: Measurement, seconds: float) -> float:
    return seconds * min(1.0, max(0.6, m.settings.time_s / USUAL_S))


def core_counts(cores: int) -> list[int]:
    """1, 2, 4, ... and all."""
    counts = [1 << k for k in range(cores.bit_length()) if 1 << k < cores]
    return [*counts, cores]


@contextmanager
def confined(source: Source, cores: int) -> Iterator[None]:
    """This process, all its threads and the loader's workers on ``cores`` of its cores."""
    tasks = counters.tasks_of([os.getpid(), *source.pids()])
    before: dict[int, set[int]] = {}
    allowed = sorted(os.sched_getaffinity(0))
    try:
        for task in tasks:
            try:
                before[task] = os.sched_getaffinity(task)
                os.sched_setaffinity(task, allowed[:cores])
            except OSError:
                before.pop(task, None)
        yield
    finally:
        for task, cpus in before.items():
            try:
                os.sched_setaffinity(task, cpus)
            except OSError:
                continue


def drains(measurement: Measurement, cold: bool) -> None:
    """The loader without training, its files in memory and on storage; in memory twice, on all
    cores first and last, so that what the machine does meanwhile shows."""
    m, source = measurement, measurement.source
    if not source.drains:
        return
    allowed = len(os.sched_getaffinity(0))
    counts = core_counts(allowed)
    chosen = m.new_set()
    with m.hold(chosen.files or []):
        if not source.same_samples:
            # Which files the first batches of a stream read is known only in part.
            m.progress.say("the loader alone", None)
            _drain(m, chosen, "warm", allowed)
        _warm(m, chosen, counts[::-1])
    if cold and source.same_samples:
        _cold(m, allowed)
    with m.hold(chosen.files or []):
        _warm(m, chosen, counts)
    if cold and not source.same_samples:
        _cold(m, allowed)


def epoch_start(m: Measurement) -> None:
    """What beginning and ending an epoch takes besides its batches."""
    source = m.source
    m.progress.say("the start of an epoch", None)
    epoch = source.epoch()
    found: dict[str, Any] = {"batches": None if epoch is None else epoch + 1}
    times: list[float] = []
    try:
        for _ in range(EPOCH_STARTS):
            seconds = source.epoch_start()
            if seconds is None:
                break
            times.append(seconds)
            if seconds > LONG_START_S:
                break
    except Exception as error:  # of a sample that training did not come to
        m.findings.note(f"the start of an epoch was not measured: {type(error).__name__}: {error}")
    if times:
        found["start_s"] = sorted(times)[len(times) // 2]
        found["each"] = not source.loader.persistent_workers
    m.findings.epoch = found


def _warm(m: Measurement, chosen: IndexSet, counts: list[int]) -> None:
    for count in counts:
        m.progress.say(f"the loader alone, {count} cores", None)
        m.channel.gather(0)
        m.findings.drains += _drain(m, chosen, "warm", count)


def _cold(m: Measurement, cores: int) -> None:
    for _ in range(2):
        chosen = m.new_set()
        if not chosen.files:
            return
        m.channel.gather(0)  # no rank holds them any more
        m.drop(chosen.files)
        m.progress.say("the loader alone, from storage", None)
        m.channel.gather(0)
        m.findings.drains += _drain(m, chosen, "cold", cores)


def _drain(m: Measurement, chosen: IndexSet, phase: str, cores: int) -> list[dict[str, Any]]:
    """Opens a set and lets the loader run; the records, where there is enough for one."""
    source = m.source
    source.expect(phase == "cold")
    drain = _Drain(m, phase, cores)
    try:
        if phase == "cold":
            drain.run(itertools.islice(source.open(chosen), chosen.count))
        else:
            iterator = source.open(chosen, cycle=True)
            with confined(source, cores):
                drain.run(iterator)
    except Exception as error:  # of a sample that training did not come to
        text = f"{type(error).__name__}: {error}"
        m.findings.note(f"the loader alone failed, its rate is not measured in full: {text}")
        return []
    finally:
        source.finish()
    return drain.records


class _Drain:
    """Rates between arrivals that are whole turns of all workers apart: workers that began
    together deliver together."""

    def __init__(self, m: Measurement, phase: str, cores: int) -> None:
        self._m, self._phase, self._cores = m, phase, cores
        self._cold = phase == "cold"
        self._turn = max(1, m.source.workers) if m.source.kind == "torch" else 1
        in_parts = cores == len(os.sched_getaffinity(0))
        self._parts = MOST_COLD_PARTS if self._cold else PARTS if in_parts else 1
        self._part_s = COLD_PART_S if self._cold else DRAIN_S / self._parts
        self._part_s = _share(m, self._part_s)
        self._least_turns = 1 if self._cold else LEAST_TURNS // self._parts
        self._longest = _share(m, LONGEST_DRAIN_S)
        self.records: list[dict[str, Any]] = []  # of each part

    def run(self, iterator: Iterator[Any]) -> None:
        pids, skip = self._m.source.pids, self._turn if self._cold else 2 * self._turn
        start = time.perf_counter()
        for number, _ in enumerate(iterator, 1):
            if number >= skip:
                break
            if time.perf_counter() - start > LONGEST_DRAIN_S:
                return
        first = begun = time.perf_counter()
        before, samples, turns = counters.read(pids()), 0, 0
        whole: tuple[int, float, counters.Reading] | None = None  # turns, of a first part
        for number, batch in enumerate(iterator, 1):
            now = time.perf_counter()
            samples += self._m.samples_in(batch)
            if number % self._turn:
                continue
            turns += 1
            over = now - first > self._longest
            enough = turns >= self._least_turns and now - begun >= self._part_s
            if self.records and not over and not enough:
                continue
            after = counters.read(pids())
            whole = samples, now - begun, after.since(before)
            if not over and not enough:
                continue
            self._add(*whole)
            if over or len(self.records) == self._parts:
                return
            begun, before, samples, turns = now, after, 0, 0
        if whole is not None and not self.records:
            self._add(*whole)

    def _add(self, samples: int, elapsed_s: float, used: counters.Reading) -> None:
        cpu = used.process_cpu_s + (used.worker_cpu_s or 0.0)
        self.records.append(
            {
                "phase": self._phase,
                "cores": self._cores,
                "samples": samples,
                "elapsed_s": elapsed_s,
                "cpu_s": None if used.worker_cpu_s is None else cpu,
                "read_bytes": used.read_bytes,
            }
        )


def storage(measurement: Measurement) -> dict[str, Any] | None:
    """Rates of whole files at several depths, and from memory."""
    files = list(measurement.findings.files)
    if not files:
        return None
    random.Random(0).shuffle(files)
    depths = []
    wanted = {*DEPTHS, min(32, max(1, measurement.source.workers))}
    try:
        _core.storage_measure(files, max(wanted), LEAD_IN_S)
    except OSError:
        pass  # reported below
    for depth in sorted(wanted):
        measurement.progress.say(f"storage, {depth} reads in flight", None)
        try:
            rate = _core.storage_measure(files, depth, DEPTH_S)
        except OSError as error:
            measurement.findings.note(f"storage was not measured: {error}")
            break
        steady = rate["steady_bytes_per_s"]
        depths.append(
            {
                "depth": depth,
                "bytes_per_s": steady,
                "reads_per_s": rate["reads_per_s"] * steady / rate["bytes_per_s"],
                "parts": rate["parts"],
            }
        )
    measurement.progress.say("storage, one read after another with pauses", None)
    return {
        "depths": depths,
        "paused_bytes_per_s": _paused(files, depths),
        "memory_bytes_per_s": _memory_rate(files[:500]),
    }


def _paused(files: list[str], depths: list[dict[str, Any]]) -> float | None:
    if not depths or depths[0]["depth"] != 1:
        return None
    random.Random(1).shuffle(files)
    try:
        return paused_rate(files, depths[0]["bytes_per_s"], PAUSED_S)
    except OSError:  # said already, where it is no single file's
        return None


def _memory_rate(files: list[str]) -> float | None:
    total = 0
    try:
        _core.storage_preread(files)
        begin = time.perf_counter()
        for path in files:
            with open(path, "rb") as file:
                total += len(file.read())
            if time.perf_counter() - begin > MEMORY_S:
                break
    except OSError:
        return None
    elapsed = time.perf_counter() - begin
    return total / elapsed if total and elapsed > 0 else None


def transform_of(dataset: Any) -> Any:
    """The transform of a dataset, or of the one below subsets."""
    while not hasattr(dataset, "transform") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    return getattr(dataset, "transform", None)


def headrace_cost(measurement: Measurement) -> dict[str, Any] | None:
    """See :mod:`headrace.stalls.cost`: forms, or the reason why there are none."""
    from . import cost, replaceable

    loader = measurement.source.loader
    reason = replaceable.obstacle(loader)
    files = measurement.findings.files
    if reason:
        return {"reason": reason}
    if not files:
        return {"reason": "which files it reads is not known"}
    measurement.progress.say("what Headrace's preparation costs", None)
    try:
        return cost.headrace_cost(files, transform_of(loader.dataset))
    except Exception as error:  # a what-if less, not a failed run
        return {"reason": f"its cost could not be measured: {error}"}
