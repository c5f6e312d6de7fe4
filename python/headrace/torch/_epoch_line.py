"""The line that ``verbose=1`` prints at the end of each epoch: how fast it was, how long training
waited and for what, and where the samples came from.

If torch.distributed's ranks are the loader's, rank 0 prints one line for all ranks and names the one
whose training waited longest. Ranks report through the process group's store, not by a collective
operation: a rank that ends its epoch early, or was not given ``verbose``, is missing in the line and
stops nobody.
"""

from __future__ import annotations

import itertools
import statistics
import struct
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch.distributed as dist

# Epoch, samples, seconds, seconds waited, for what, how often this rank has begun the epoch.
_RECORD = struct.Struct("<4sQQddIQ")
_MAGIC = b"hrl2"
_WAIT_S = 0.5  # at the most, for the others' reports
_CAUSES = (
    "",
    "for preparation: the threads are busy",
    "for storage",
    "and the threads were not busy: other work may have the cores",
    "for the agent: headrace top shows why",
    "for Python's code: explain() shows its cost",
)
_PREPARE, _STORAGE, _CORES, _AGENT, _PYTHON = range(1, 6)
_SOME = 0.01  # a smaller share of waiting has no cause
_BUSY = 0.5  # of the threads: as in headrace top

_numbers = itertools.count()  # loaders with a line, in the order in which each rank makes them


class Report(NamedTuple):
    """One rank's epoch."""

    epoch: int
    samples: int
    seconds: float
    wait_s: float
    cause: int
    times: int = 1  # that the rank has begun it: an epoch may be read again, and is another one then

    @property
    def share(self) -> float:
        return min(1.0, self.wait_s / self.seconds) if self.seconds > 0 else 0.0


class EpochLine:
    """Measures epochs of a DataLoader and prints their lines."""

    def __init__(self, *, is_native: bool, has_agent: bool) -> None:
        self._is_native = is_native
        self._has_agent = has_agent
        self._number = next(_numbers)
        self._before: dict[str, Any] | None = None
        self._began = 0.0
        self._times: Counter[int] = Counter()  # of each epoch, how often it has begun

    def begin(self, stats: dict[str, Any]) -> None:
        """An epoch is about to begin: threads prepare before its first batch is asked for."""
        self._before, self._began = stats, time.monotonic()

    def first_batch(self, epoch: int) -> None:
        """The epoch's first batch is asked for."""
        self._began = time.monotonic()
        self._times[epoch] += 1

    def end(self, epoch: int, stats: dict[str, Any], part: tuple[int, int]) -> None:
        """The epoch is complete. ``part``: rank and number of ranks."""
        if self._before is None:
            return
        seconds = time.monotonic() - self._began
        now = changes(self._before, stats)
        self._before = None
        report = Report(epoch, now["samples"], seconds, now["wait_ns"] / 1e9, 0, self._times[epoch])
        report = report._replace(cause=self._cause(report, now, stats["threads"]))
        rank, ranks = part
        found = exchange(report, self._number, part)
        if found is None:
            who = f" (rank {rank} of {ranks})" if ranks > 1 else ""
            text = one_line(report, who)
        elif rank:
            return  # rank 0 prints
        else:
            text = line_of_ranks(found, ranks)
        print(f"headrace: {text}{self._sources(now)}", file=sys.stderr, flush=True)

    def _cause(self, report: Report, now: dict[str, int], threads: int) -> int:
        if report.share < _SOME:
            return 0
        if self._has_agent:
            return _AGENT  # whose processes for Python's code are those of several jobs
        if not self._is_native:
            return _PYTHON
        if now["prepare"] / 1e9 >= _BUSY * max(1, threads) * report.seconds:
            return _PREPARE
        return _STORAGE if now["fetch"] > now["prepare"] else _CORES

    def _sources(self, now: dict[str, int]) -> str:
        """Returns where this rank's samples came from; "" if that is not known here."""
        samples, hits = now["samples"], now["cache_hits"]
        if not self._is_native or self._has_agent or not samples:
            return ""
        own, peers = now["own_hits"], now["peer_hits"]
        parts = [
            (samples - hits, f"files ({_size(now['bytes_read'])})"),
            (hits - own - peers, "the cache"),
            (own, f"this host's memory ({_size(now['own_bytes'])})"),
            (peers, f"other hosts' memory ({_size(now['peer_bytes'])})"),
        ]
        shown = [f"{_percent(min(1, count / samples))} from {where}" for count, where in parts if count > 0]
        return f"; samples: {', '.join(shown)}" if shown else ""


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    """Returns the counters of one epoch; ``fetch`` and ``prepare`` in nanoseconds."""
    names = ("samples", "wait_ns", "bytes_read", "cache_hits")
    out = {name: max(0, after[name] - before[name]) for name in names}
    for name in ("own_hits", "own_bytes", "peer_hits", "peer_bytes"):
        out[name] = max(0, after[name] - before[name])
    for name in ("fetch", "prepare"):
        out[name] = max(0, after[name]["sum_ns"] - before[name]["sum_ns"])
    return out


def one_line(report: Report, who: str = "") -> str:
    text = (
        f"epoch {report.epoch}{who}: {report.samples:,} samples in {_seconds(report.seconds)}, "
        f"{_rate(report.samples, report.seconds)} samples/s; training waited "
        f"{_seconds(report.wait_s)} ({_percent(report.share, 1)})"
    )
    return text + (f", {_CAUSES[report.cause]}" if report.cause else "")


def line_of_ranks(found: Sequence[tuple[int, Report]], ranks: int) -> str:
    """Returns the line of all ranks that have reported, (rank, report)."""
    samples = sum(report.samples for _, report in found)
    seconds = max(report.seconds for _, report in found)
    missing = f" (of {len(found)} of {ranks} ranks)" if len(found) < ranks else f" ({ranks} ranks)"
    text = (
        f"epoch {found[0][1].epoch}{missing}: {samples:,} samples in {_seconds(seconds)}, "
        f"{_rate(samples, seconds)} samples/s"
    )
    slow, most = max(found, key=lambda one: one[1].wait_s)
    others = [report.wait_s for rank, report in found if rank != slow]
    usual = statistics.median(others) if others else 0.0
    if most.wait_s - usual > max(_SOME * most.seconds, 0.05) and others:
        text += (
            f"; rank {slow} waited longer than the others: {_seconds(most.wait_s)} "
            f"({_percent(most.share, 1)}), they {_seconds(usual)}"
        )
    else:
        text += f"; training waited {_seconds(most.wait_s)} ({_percent(most.share, 1)}) at most"
    return text + (f", {_CAUSES[most.cause]}" if most.cause else "")


def exchange(
    report: Report, number: int, part: tuple[int, int]
) -> list[tuple[int, Report]] | None:
    """Gives this rank's report to rank 0. Returns there, in rank order, the reports that have
    come; elsewhere an empty list; None: there is no process group of these ranks."""
    rank, ranks = part
    store = _store(part)
    if store is None:
        return None
    keys = [f"headrace/epoch-line/{number}/{other}" for other in range(ranks)]
    try:
        store.set(keys[rank], _RECORD.pack(_MAGIC, *report))
        if rank:
            return []
        found = {0: report}
        until = time.monotonic() + _WAIT_S
        while len(found) < ranks:
            for other in range(1, ranks):
                if other not in found and store.check([keys[other]]):
                    theirs = _read(store.get(keys[other]))
                    if theirs is not None and _is_same(theirs, report):
                        found[other] = theirs
            if time.monotonic() >= until:
                break
            if len(found) < ranks:
                time.sleep(0.005)
        return sorted(found.items())
    except RuntimeError:  # the store is gone, with the rank that keeps it
        return None


def _is_same(theirs: Report, ours: Report) -> bool:
    return theirs.epoch == ours.epoch and theirs.times == ours.times


def _read(record: bytes) -> Report | None:
    if len(record) != _RECORD.size or record[:4] != _MAGIC:
        return None
    report = Report(*_RECORD.unpack(record)[1:])
    return report if report.cause < len(_CAUSES) else None


def _store(part: tuple[int, int]) -> Any:
    """Returns the store of torch.distributed's default group, if its ranks are the loader's."""
    if part[1] == 1 or not (dist.is_available() and dist.is_initialized()):
        return None
    if part != (dist.get_rank(), dist.get_world_size()):
        return None
    try:
        return dist.distributed_c10d._get_default_store()
    except (AttributeError, RuntimeError, ValueError):
        return None  # MPI's group has none


def _rate(samples: int, seconds: float) -> str:
    return f"{samples / seconds:,.0f}" if seconds > 0 else "-"


def _seconds(value: float) -> str:
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def _percent(share: float, decimals: int = 0) -> str:
    return f"{100 * share:.{decimals}f} %"


def _size(value: int) -> str:
    size = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"
