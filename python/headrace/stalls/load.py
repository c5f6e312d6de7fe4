"""Load of others while a segment is measured: other processes, the hypervisor, a container's CPU
quota. A segment that others disturbed says nothing about training."""

from __future__ import annotations

import functools
import os
import resource
import time
from dataclasses import dataclass

from . import counters
from .host import cpu_groups

TOO_MUCH = 0.1  # of the cores' time, for others
DELAYED = 0.05  # of a segment, that threads waited for a core: others are in the way
LEAST_S = 0.03  # the kernel counts in hundredths of a second
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Load:
    """Totals since some time; only differences mean anything. ``None``: the kernel does not
    say."""

    at_s: float
    cores: int
    busy_s: float | None  # of the cores that this process may use, by all processes
    steal_s: float
    root: int  # the topmost process of the run
    own_s: float  # CPU of that and of all processes below it
    delay_s: float | None  # that their threads were ready and waited for a core
    throttled_s: float | None  # by a CPU quota

    def since(self, before: Load) -> Load:
        def less(a: float | None, b: float | None) -> float | None:
            return None if a is None or b is None else max(0.0, a - b)

        return Load(
            self.at_s - before.at_s,
            self.cores,
            less(self.busy_s, before.busy_s),
            self.steal_s - before.steal_s,
            self.root,
            self.own_s - before.own_s,
            less(self.delay_s, before.delay_s),
            less(self.throttled_s, before.throttled_s),
        )

    def others(self, run_s: float) -> float | None:
        """Share of the cores' time that was neither the run's nor idle; ``None`` where the time
        is too short for the kernel's clock to show too much. ``run_s``: CPU of all ranks of this
        host."""
        whole = self.cores * self.at_s
        if self.busy_s is None or whole <= 0:
            return None
        foreign = self.busy_s - run_s
        if max(foreign, self.steal_s) <= LEAST_S and TOO_MUCH * whole < LEAST_S:
            return None
        return min(1.0, max(0.0, foreign if foreign > LEAST_S else 0.0) / whole + self.stolen)

    @property
    def stolen(self) -> float:
        whole = self.cores * self.at_s
        return self.steal_s / whole if whole > 0 and self.steal_s > LEAST_S else 0.0

    def disturbs(self, others: float | None) -> bool:
        """Whether ``others`` took so much that the segment is not worth much. Work of others on
        cores that the run does not want is no disturbance."""
        if others is None or others <= TOO_MUCH:
            return False
        delayed = self.delay_s is None or self.delay_s > DELAYED * self.at_s
        return delayed or self.stolen > TOO_MUCH


def read() -> Load:
    cores = os.sched_getaffinity(0)
    busy, steal = _cores_time(cores)
    root = _root()
    own, delay = _tree(root)
    return Load(time.perf_counter(), len(cores), busy, steal, root, own, delay, _throttled_s())


def _cores_time(cores: set[int]) -> tuple[float | None, float]:
    busy = steal = 0.0
    found = False
    try:
        with open("/proc/stat", encoding="ascii") as file:
            for line in file:
                name, *words = line.split()
                if not name.startswith("cpu"):
                    break
                if name[3:].isdigit() and int(name[3:]) in cores and len(words) >= 8:
                    found = True
                    ticks = [int(word) for word in words]
                    busy += sum(ticks[k] for k in (0, 1, 2, 5, 6)) * _TICK_S
                    steal += ticks[7] * _TICK_S
    except (OSError, ValueError):
        return None, 0.0
    return (busy if found else None), steal


@functools.cache
def _root() -> int:
    """The topmost process above this one that belongs to the same run: a launcher of ranks, or
    a script whose processes train."""
    name = "HEADRACE_STALLS_DIR"
    wanted = os.fsencode(f"{name}={os.environ.get(name, '')}")
    found = pid = os.getpid()
    try:
        while pid > 1:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{pid}/environ", "rb") as environ:
                if wanted not in environ.read().split(b"\0"):
                    break
            found = pid
    except (OSError, ValueError, IndexError):
        pass  # another user's: not of the run
    return found


def _tree(root: int) -> tuple[float, float | None]:
    """CPU and delay of a process and those below it. A child of this process that has ended is
    in RUSAGE_CHILDREN once it was waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = time.process_time() + ended.ru_utime + ended.ru_stime
    delay: float | None = 0.0
    for pid in [root, *counters.descendants(root)]:
        on_cores, waited = counters.schedule_of(pid)
        if pid != os.getpid():
            cpu += on_cores or 0.0
        delay = None if delay is None or waited is None else delay + waited
    return cpu, delay


def _throttled_s() -> float | None:
    found = None
    for folder in cpu_groups():
        try:
            with open(f"{folder}/cpu.stat", encoding="ascii") as file:
                for line in file:
                    name, value = line.split()
                    if name in ("throttled_usec", "throttled_time"):
                        unit = 1e-6 if name == "throttled_usec" else 1e-9
                        found = max(found or 0.0, int(value) * unit)
        except (OSError, ValueError):
            continue
    return found
