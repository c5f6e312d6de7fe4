"""The status of a loader whose samples Python makes, for headrace top and Prometheus.

It is published as the native loader's is (``src/loader/status.h``): from the first epoch on, when an
epoch begins or ends, and otherwise every half second, in a call of ``next``. ``docs/metrics.md`` lists
the keys.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Protocol

from .. import _core

_INTERVAL_NS = 500_000_000
# Keys of a status, and where stats() has them.
_COUNTS = {
    "batches": "batches",
    "prepared": "samples",
    **{
        name: name
        for name in (
            *("padded_samples", "bad_samples", "damaged_samples", "scaled_samples", "bytes_read"),
            *("cache_hits", "own_hits", "own_bytes", "peer_hits", "peer_bytes", "stored_bytes"),
            *("disk_hits", "disk_bytes"),
            *("cache_bytes", "staged_bytes", "ready_batches", "reattached", "threads"),
        )
    },
}


class Watched(Protocol):
    """What is published."""

    def stats(self) -> dict[str, Any]: ...
    def ready(self) -> int:
        """Returns how many batches are made and not taken."""

    def about(self) -> dict[str, Any]:
        """Returns ``samples``, ``batch_samples``, ``ahead_batches``, ``epoch``,
        ``position``, ``epoch_samples`` and ``waits_for``."""


class Publication:
    """Publishes the status of a loader; ``metrics`` and ``rank`` are the DataLoader's."""

    def __init__(
        self, dataset: str, metrics: str | None, rank: int, local_world_size: int
    ) -> None:
        if metrics:
            _core.Meter.check(metrics)
        self._asked = metrics, rank, local_world_size
        self._meter: _core.Meter | None = None
        self._begun_ns = self._due_ns = 0
        self._left_ns = 0  # the end of the last call of next in this epoch; 0: none
        self._shows_wait = False
        self._is_running = False
        self._program, self._dataset = _program(), _printable(dataset)[:255]

    def start(self, loader: Watched) -> None:
        """An epoch begins."""
        if self._meter is None:
            self._begun_ns = time.monotonic_ns()
            self._meter = _core.Meter(*self._asked)
        self._is_running, self._left_ns = True, 0
        self._publish(loader, time.monotonic_ns())

    def enter(self, loader: Watched) -> int:
        """A call of next begins. Returns the nanoseconds since the last one in this epoch."""
        now_ns = time.monotonic_ns()
        if now_ns >= self._due_ns and self._is_running and not loader.ready():
            self._publish(loader, now_ns, is_waiting=True)
        return now_ns - self._left_ns if self._left_ns else 0

    def leave(self, loader: Watched, got: bool) -> None:
        """It ends, with a batch or at the end of the epoch."""
        now_ns, was_running = time.monotonic_ns(), self._is_running
        self._is_running = was_running and got
        self._left_ns = now_ns if self._is_running else 0
        if self._shows_wait or now_ns >= self._due_ns or was_running != self._is_running:
            self._publish(loader, now_ns)

    def end(self) -> None:
        if self._meter is not None:
            self._meter.end()
        self._meter = None

    def _publish(self, loader: Watched, now_ns: int, is_waiting: bool = False) -> None:
        if self._meter is None:
            return
        stats, about = loader.stats(), loader.about()
        if not self._is_running:
            about["waits_for"] = None
        status = {
            "version": 1,
            "pid": os.getpid(),
            "program": self._program,
            "loader": self._meter.number,
            "rank": self._asked[1],
            "dataset": self._dataset,
            "prepared_by": "python",
            "begun_s": self._begun_ns / 1e9,
            "uptime_s": (now_ns - self._begun_ns) / 1e9,
            "published_s": now_ns / 1e9,
            "running": self._is_running,
            "waiting": is_waiting,
            **about,
            "wait_s": stats["wait_ns"] / 1e9,
            "step_s": stats["step_ns"] / 1e9,
            "fetch_s": stats["fetch"]["sum_ns"] / 1e9,
            "prepare_s": stats["prepare"]["sum_ns"] / 1e9,
            "memory_bytes": stats["slots"] * stats["slot_bytes"],
            **{key: stats[name] for key, name in _COUNTS.items()},
        }
        self._meter.publish(json.dumps(status))
        self._shows_wait = is_waiting
        self._due_ns = now_ns + _INTERVAL_NS


def _program() -> str:
    """Returns this program's command line, without its folder, for people."""
    words = [os.path.basename(sys.orig_argv[0]), *sys.orig_argv[1:]] if sys.orig_argv else []
    return _printable(" ".join(words))[:127]


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
