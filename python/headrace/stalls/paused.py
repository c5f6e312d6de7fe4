"""Measures storage with a reader that pauses.

A worker reads a sample, prepares it, and then reads the next. Some storage makes progress while the
worker prepares: a throttled disk accumulates its allowance, and the kernel reads ahead in a large
file. This reader reads one piece after another, and pauses after each for as long as a piece takes
without pauses. The time that it still waits for reads is the time that a worker waits.

How much is saved up at most, a reader finds that pauses once for long, and then reads without pauses:
what it gets beyond the rate that storage keeps up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence

from .. import _core

PIECE_BYTES = 256 << 10  # larger files, such as tar files, are read in pieces of this size
LEAD_IN = 0.25  # share of the time that does not count, in which earlier allowance is used up
LEAST_PIECES = 8
IDLE_S = 0.5  # a throttle of Linux saves up for 0.1 s
BURST_S = 0.3  # of reading; an allowance that lasts longer is not found whole


def paused_rate(files: Sequence[str], bytes_per_s: float, seconds: float) -> float | None:
    """Returns bytes per second of reading time; ``None`` if too little was read.

    Args:
        files: the files to read, in this order; they are first dropped from the page cache.
        bytes_per_s: the rate of reading without pauses, one read after another.
        seconds: the approximate duration.
    """
    if not bytes_per_s > 0:
        return None
    begin = time.perf_counter()
    read, waited, pieces = 0, 0.0, 0
    for path in files:
        _core.storage_drop([path])
        with open(path, "rb", buffering=0) as file:
            for size, took in _timed_pieces(file.fileno()):
                if time.perf_counter() - begin > LEAD_IN * seconds:
                    read, waited, pieces = read + size, waited + took, pieces + 1
                time.sleep(size / bytes_per_s)
                if time.perf_counter() - begin > seconds:
                    return read / waited if waited > 0 and pieces >= LEAST_PIECES else None
    return read / waited if waited > 0 and pieces >= LEAST_PIECES else None


def saved_bytes(files: Iterable[str], bytes_per_s: float) -> float:
    """Returns the bytes that storage delivers after it idled, beyond ``bytes_per_s``, its rate.

    Args:
        files: the files to read, in this order, until an allowance would be used up; each is first
            dropped from the page cache.
    """
    time.sleep(IDLE_S)
    begin = time.perf_counter()
    read, most = 0, 0.0
    for path in files:
        _core.storage_drop([path])
        with open(path, "rb", buffering=0) as file:
            for size, _ in _timed_pieces(file.fileno()):
                passed = time.perf_counter() - begin
                read += size
                most = max(most, read - bytes_per_s * passed)
                if passed > BURST_S:
                    return most
    return most


def _timed_pieces(fd: int) -> Iterator[tuple[int, float]]:
    """Reads a file in pieces. Yields the bytes of each piece, and the seconds that reading it took
    without its CPU time."""
    while True:
        wall, cpu = time.perf_counter(), time.thread_time()
        size = len(os.read(fd, PIECE_BYTES))
        took = time.perf_counter() - wall - (time.thread_time() - cpu)
        if not size:
            return
        yield size, max(0.0, took)
