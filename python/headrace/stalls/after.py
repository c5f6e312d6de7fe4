"""Measurements after the segments, while the script's loop waits: the loader alone at several core
counts (rate P), storage at several queue depths (rate F), and the cost of preparing these files
with Headrace."""

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
from .findings import COLD, WARM
from .measurement import Measurement
from .paused import paused_rate, saved_bytes
from .sources import IndexSet, Source

USUAL_S = 150.0  # length of a run for which the times below hold; shorter runs scale them down
DRAIN_S = 1.5
COLD_PART_S = 0.75
LONGEST_DRAIN_S = 12.0
EPOCH_STARTS = 3  # measured starts of an epoch
LONG_START_S = 1.0  # a start that takes this long is measured only once
PARTS = 4  # a drain on all cores is measured in parts, for an interval
MOST_COLD_PARTS = 8
LEAST_TURNS = 4  # of a warm drain; a turn is one batch from each worker
DEPTHS = (1, 4, 16, 32)
REQUESTS = (256, 64, 16, 4, 1)  # in flight to a store; 256 are the most that a loader has
MOST_MEASURED = 1 << 16  # samples that a store is asked for, again and again
DEPTH_S = 1.5
LEAD_IN_S = 0.5  # not measured: after idling, a disk may be faster than it can sustain
PAUSED_S = 1.5
MEMORY_S = 0.5


def _share(m: Measurement, seconds: float) -> float:
    return seconds * min(1.0, max(0.6, m.settings.time_s / USUAL_S))


def core_counts(cores: int) -> list[int]:
    """Returns the core counts to measure: 1, 2, 4, ... and all."""
    counts = [1 << k for k in range(cores.bit_length()) if 1 << k < cores]
    return [*counts, cores]


@contextmanager
def confined(source: Source, cores: int) -> Iterator[None]:
    """Restricts this process, all its threads and the loader's workers to ``cores`` cores."""
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
    """Measures the loader without training, with its files in memory and on storage. In memory, all
    cores are measured first and once more at the end, so that a change of other load shows."""
    m, source = measurement, measurement.source
    if not source.drains:
        return
    allowed = len(os.sched_getaffinity(0))
    counts = core_counts(allowed)
    chosen = m.new_set()
    source.keep(chosen)
    with m.hold(chosen.files or []):
        if not source.same_samples:
            # The files that the first batches of a stream read are known only in part.
            m.progress.say("the loader alone", None)
            _drain(m, chosen, WARM, allowed)
        _warm(m, chosen, counts[::-1])
    if cold and source.same_samples:
        _cold(m, allowed)
    with m.hold(chosen.files or []):
        _warm(m, chosen, counts)
    if cold and not source.same_samples:
        _cold(m, allowed)


def epoch_start(m: Measurement) -> None:
    """Measures the time to start and end an epoch, apart from its batches."""
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
    except Exception as error:  # e.g. a bad sample that training has not reached
        m.findings.note(f"the start of an epoch was not measured: {type(error).__name__}: {error}")
    if times:
        found["start_s"] = sorted(times)[len(times) // 2]
        found["each"] = not source.loader.persistent_workers
    m.findings.epoch = found


def _warm(m: Measurement, chosen: IndexSet, counts: list[int]) -> None:
    for count in counts:
        m.progress.say(f"the loader alone, {count} cores", None)
        m.channel.gather(0)
        m.findings.drains += _drain(m, chosen, WARM, count)


def _cold(m: Measurement, cores: int) -> None:
    for _ in range(2):
        chosen = m.new_set()
        if not chosen.files and not m.source.store():
            return
        m.channel.gather(0)  # wait until no rank has these files open
        if chosen.files:
            m.drop(chosen.files)
        m.progress.say("the loader alone, from storage", None)
        m.channel.gather(0)
        m.findings.drains += _drain(m, chosen, COLD, cores)


def _drain(m: Measurement, chosen: IndexSet, phase: str, cores: int) -> list[dict[str, Any]]:
    """Runs the loader alone over a set of indices. Returns the records, if there are enough batches
    for any."""
    source = m.source
    source.expect(phase == COLD)
    drain = _Drain(m, phase, cores)
    try:
        if phase == COLD:
            drain.run(itertools.islice(source.open(chosen), chosen.count))
        else:
            iterator = source.open(chosen, cycle=True)
            with confined(source, cores):
                drain.run(iterator)
    except Exception as error:  # e.g. a bad sample that training has not reached
        text = f"{type(error).__name__}: {error}"
        m.findings.note(f"the loader alone failed, so its rate is incomplete: {text}")
        return []
    finally:
        source.finish()
    return drain.records


class _Drain:
    """Measures rates between arrivals of batches that are a whole number of turns apart (one batch
    from each worker): workers that start together also deliver together."""

    def __init__(self, m: Measurement, phase: str, cores: int) -> None:
        self._m, self._phase, self._cores = m, phase, cores
        self._cold = phase == COLD
        self._turn = max(1, m.source.workers) if m.source.kind == "torch" else 1
        in_parts = cores == len(os.sched_getaffinity(0))
        self._parts = MOST_COLD_PARTS if self._cold else PARTS if in_parts else 1
        self._part_s = COLD_PART_S if self._cold else DRAIN_S / self._parts
        self._part_s = _share(m, self._part_s)
        self._least_turns = 1 if self._cold else LEAST_TURNS // self._parts
        self._longest = _share(m, LONGEST_DRAIN_S)
        self.records: list[dict[str, Any]] = []  # one for each part

    def run(self, iterator: Iterator[Any]) -> None:
        read, skip = self._m.source.read, self._turn if self._cold else 2 * self._turn
        start = time.perf_counter()
        for number, _ in enumerate(iterator, 1):
            if number >= skip:
                break
            if time.perf_counter() - start > LONGEST_DRAIN_S:
                return
        first = begun = time.perf_counter()
        before, samples, turns = read(), 0, 0
        whole: tuple[int, float, counters.Reading] | None = None  # turns of a first part
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
            after = read()
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
    """Measures the rates of reading whole files at several queue depths, and from memory; or those
    of a store."""
    if measurement.source.store():
        return _store(measurement)
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
        depths.append(_depth_of(depth, dict(rate)))
    measurement.progress.say("storage, one read after another with pauses", None)
    return {
        "depths": depths,
        "paused_bytes_per_s": _paused(files, depths),
        "saved_bytes": _saved(files, depths),
        "memory_bytes_per_s": _memory_rate(files[:500]),
    }


def _store(m: Measurement) -> dict[str, Any]:
    """Measures the rates of a store, at several numbers of requests in flight: first the most, for
    which the client has found how many the link repays."""
    depths = []
    chosen = m.source.some(MOST_MEASURED)
    for depth in REQUESTS:
        m.progress.say(f"the network, {depth} requests in flight", None)
        try:
            if not depths:
                m.source.measure(chosen, depth, LEAD_IN_S)
            rate = m.source.measure(chosen, depth, DEPTH_S)
        except (OSError, ValueError) as error:
            m.findings.note(f"the network was not measured: {error}")
            break
        depths.append(_depth_of(depth, rate))
    return {"depths": depths[::-1]}


def _depth_of(depth: int, rate: dict[str, Any]) -> dict[str, Any]:
    steady = rate["steady_bytes_per_s"]
    return {
        "depth": depth,
        "bytes_per_s": steady,
        "reads_per_s": rate["reads_per_s"] * steady / rate["bytes_per_s"],
        "parts": rate["parts"],
    }


def _paused(files: list[str], depths: list[dict[str, Any]]) -> float | None:
    if not depths or depths[0]["depth"] != 1:
        return None
    random.Random(1).shuffle(files)
    try:
        return paused_rate(files, depths[0]["bytes_per_s"], PAUSED_S)
    except OSError:  # an error that does not concern a single file is reported already
        return None


def _saved(files: list[str], depths: list[dict[str, Any]]) -> float | None:
    if not depths:
        return None
    random.Random(2).shuffle(files)
    try:
        return saved_bytes(files, max(one["bytes_per_s"] for one in depths))
    except OSError:
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
    """Returns the transform of a dataset, or of the dataset below subsets."""
    while not hasattr(dataset, "transform") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    return getattr(dataset, "transform", None)


def headrace_cost(measurement: Measurement) -> dict[str, Any] | None:
    """Measures the cost of Headrace's preparation (:mod:`headrace.stalls.cost`): the forms, or the
    reason why there are none."""
    from . import cost, replaceable

    loader = measurement.source.loader
    reason = replaceable.obstacle(loader)
    files = measurement.findings.files
    if reason:
        return {"reason": reason}
    if not files:
        return {"reason": "the files that it reads are unknown"}
    measurement.progress.say("what Headrace's preparation costs", None)
    try:
        return cost.headrace_cost(files, transform_of(loader.dataset))
    except Exception as error:  # lose this what-if, not the run
        return {"reason": f"its cost could not be measured: {error}"}
