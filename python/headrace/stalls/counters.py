"""Reads the kernel's counters of this process and of the loader's workers: CPU time and bytes read
from storage. Only the difference of two readings is meaningful."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """Totals since each process started. ``None``: unknown."""

    process_cpu_s: float
    worker_cpu_s: float | None
    read_bytes: int | None

    def since(self, before: Reading) -> Reading:
        def difference(a: float | None, b: float | None) -> float | None:
            return None if a is None or b is None else a - b

        read = difference(self.read_bytes, before.read_bytes)
        return Reading(
            self.process_cpu_s - before.process_cpu_s,
            difference(self.worker_cpu_s, before.worker_cpu_s),
            None if read is None else int(read),
        )


def read(workers: Iterable[int]) -> Reading:
    """Reads the counters of this process and of ``workers`` (process ids). If one of these has
    ended, the workers' figures are unknown."""
    pids = list(workers)
    cpu: float | None = 0.0
    total: int | None = bytes_read("self")
    for pid in pids:
        one = cpu_s(pid)
        cpu = None if cpu is None or one is None else cpu + one
        bytes_of = bytes_read(pid)
        total = None if total is None or bytes_of is None else total + bytes_of
    return Reading(time.process_time(), cpu, total)


def bytes_read(pid: int | str) -> int | None:
    """Returns the bytes that a process read from storage; ``None`` without permission."""
    return io_of(pid)[0]


def io_of(pid: int | str) -> tuple[int | None, int | None]:
    """Returns the bytes that a process read from storage, and the bytes that its read calls
    returned, from storage or not (accesses to mapped files are not read calls)."""
    found: dict[bytes, int] = {}
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            for line in file:
                name, value = line.split(b":")
                found[name] = int(value)
    except (OSError, ValueError):
        pass
    return found.get(b"read_bytes"), found.get(b"rchar")


def cpu_s(pid: int) -> float | None:
    """Returns the CPU time, in seconds, of all live threads of a process."""
    total = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat", "rb") as file:
                total += int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return total / 1e9


def received() -> dict[str, int] | None:
    """Returns the bytes that each network interface of this host received, with loopback."""
    found = {}
    try:
        with open("/proc/self/net/dev", encoding="ascii") as file:
            for line in list(file)[2:]:
                name, counts = line.split(":", 1)
                found[name.strip()] = int(counts.split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return found


def received_since(before: dict[str, int] | None) -> int | None:
    """Returns the bytes received since then, over interfaces that are still there: what went over
    one that was removed meanwhile is not known."""
    now = received()
    if before is None or now is None:
        return None
    return sum(max(0, count - before.get(name, 0)) for name, count in now.items())


def descendants() -> list[int]:
    """Lists the process ids of all children, their children, and so on."""
    found: list[int] = []
    pending = [os.getpid()]
    while pending:
        parent = pending.pop()
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
        except OSError:
            continue
        for task in tasks:
            try:
                with open(f"/proc/{parent}/task/{task}/children", "rb") as file:
                    children = [int(word) for word in file.read().split()]
            except (OSError, ValueError):
                continue
            found += children
            pending += children
    return found


def tasks_of(pids: Iterable[int]) -> list[int]:
    """Lists the thread ids of processes, for setting affinities."""
    found: list[int] = []
    for pid in pids:
        try:
            found += [int(task) for task in os.listdir(f"/proc/{pid}/task")]
        except OSError:
            continue
    return found
