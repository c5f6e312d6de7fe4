"""Measures storage with a reader that pauses.

A worker reads a sample, prepares it, and reads the next. Some storage works meanwhile: a throttled
disk saves up its allowance, and the kernel reads ahead in a large file. This reader reads piece
after piece and pauses after each for as long as a piece takes without pauses: the time that it
still waits is the time that a worker waits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from .. import _core

PIECE_BYTES = 256 << 10  # of a file that is larger, such as a tar file
LEAD_IN = 0.25  # of the time: what was saved up before is used first
LEAST_PIECES = 8


def paused_rate(files: Sequence[str], bytes_per_s: float, seconds: float) -> float | None:
    """Bytes/s over the time of reading; ``None`` where too little was read.

    Args:
        files: to read, in this order; they are dropped from memory first.
        bytes_per_s: of one read after another, without pauses.
        seconds: about as long as it takes.
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


def _timed_pieces(fd: int) -> Iterator[tuple[int, float]]:
    """Bytes of each piece of a file, and seconds that reading it took, less its CPU time."""
    while True:
        wall, cpu = time.perf_counter(), time.thread_time()
        size = len(os.read(fd, PIECE_BYTES))
        took = time.perf_counter() - wall - (time.thread_time() - cpu)
        if not size:
            return
        yield size, max(0.0, took)
