"""What is measured once the segments are done, with the script's loop standing still: the
loader alone at several core counts (P), storage at several depths (F), and what Headrace's
own preparation would cost on these files."""

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
from .measure import Measurement
from .sources import IndexSet, Source

USUAL_S = 150.0  # of a run, for which these times are; less in shorter ones
DRAIN_S = 2.5
LONGEST_DRAIN_S = 12.0
DEPTHS = (1, 4, 16, 32)
DEPTH_S = 1.5
LEAD_IN_S = 0.5  # a disk that idled may first give more than it can keep up
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
    """The loader without training, its files in memory and, once, on storage."""
    m, source = measurement, measurement.source
    if not source.drains:
        return
    allowed = len(os.sched_getaffinity(0))
    chosen = m.new_set()
    if chosen.files:
        _core.storage_preread(chosen.files)
    if not source.same_samples:
        # Which files the first batches of a stream read is known only in part.
        m.progress.say("the loader alone", None)
        _drain(m, chosen, "warm", allowed)
    for count in reversed(core_counts(allowed)):
        m.progress.say(f"the loader alone, {count} cores", None)
        m.channel.gather(0)
        record = _drain(m, chosen, "warm", count)
        if record:
            m.findings.drains.append(record)
    if not cold:
        return
    for _ in range(2):
        chosen = m.new_set()
        if not chosen.files:
            return
        _core.storage_drop(chosen.files)
        m.progress.say("the loader alone, from storage", None)
        m.channel.gather(0)
        record = _drain(m, chosen, "cold", allowed)
        if record:
            m.findings.drains.append(record)


def _drain(m: Measurement, chosen: IndexSet, phase: str, cores: int) -> dict[str, Any] | None:
    """Opens a set and lets the loader run; the record, where there is enough for one."""
    source = m.source
    source.expect(phase == "cold")
    try:
        if phase == "cold":
            return _timed(m, itertools.islice(source.open(chosen), chosen.count), phase, cores)
        iterator = source.open(chosen, cycle=True)
        with confined(source, cores):
            return _timed(m, iterator, phase, cores)
    except Exception as error:  # of a sample that training did not come to
        text = f"{type(error).__name__}: {error}"
        m.findings.note(f"the loader alone failed, its rate is not measured in full: {text}")
        return None
    finally:
        source.finish()


def _timed(
    m: Measurement, iterator: Iterator[Any], phase: str, cores: int
) -> dict[str, Any] | None:
    """Rate between two arrivals, a whole number of turns of all workers apart: workers that
    began together deliver together."""
    turn = max(1, m.source.workers) if m.source.kind == "torch" else 1
    skip = 2 * turn if phase == "warm" else turn
    shortest, longest = _share(m, DRAIN_S), _share(m, LONGEST_DRAIN_S)
    begin: float | None = None
    before = counters.read(m.source.pids())
    record: dict[str, Any] | None = None
    samples = number = 0
    start = time.perf_counter()
    for batch in iterator:
        now = time.perf_counter()
        number += 1
        if begin is None:
            if number >= skip:
                begin, before = now, counters.read(m.source.pids())
                number = 0
            elif now - start > LONGEST_DRAIN_S:
                break
            continue
        samples += m.samples_in(batch)
        if number % turn:
            continue
        used = counters.read(m.source.pids()).since(before)
        cpu = used.process_cpu_s + (used.worker_cpu_s or 0.0)
        record = {
            "phase": phase,
            "cores": cores,
            "samples": samples,
            "elapsed_s": now - begin,
            "cpu_s": None if used.worker_cpu_s is None else cpu,
            "read_bytes": used.read_bytes,
        }
        enough = number >= 4 * turn and now - begin > shortest
        if (phase == "warm" and enough) or now - begin > longest:
            break
    return record


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
        pass  # said below
    for depth in sorted(wanted):
        measurement.progress.say(f"storage, {depth} reads in flight", None)
        try:
            rate = _core.storage_measure(files, depth, DEPTH_S)
        except OSError as error:
            measurement.findings.note(f"storage was not measured: {error}")
            break
        depths.append(
            {
                "depth": depth,
                "bytes_per_s": rate["bytes_per_s"],
                "reads_per_s": rate["reads_per_s"],
            }
        )
    return {"depths": depths, "memory_bytes_per_s": _memory_rate(files[:500])}


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
    """See :mod:`headrace.stalls.cost`."""
    files = measurement.findings.files
    if not files:
        return None
    measurement.progress.say("what Headrace's preparation costs", None)
    transform = transform_of(getattr(measurement.source.loader, "dataset", None))
    try:
        from . import cost

        found = cost.headrace_cost(files, transform)
    except Exception as error:  # a what-if less, not a failed run
        measurement.findings.note(f"what Headrace's loader would cost was not measured: {error}")
        return None
    if found is None or "reason" in found:
        reason = (found or {}).get("reason", "the files are no JPEG or PNG images")
        measurement.findings.note(f"what Headrace's loader would cost was not measured: {reason}")
        return None
    return found
