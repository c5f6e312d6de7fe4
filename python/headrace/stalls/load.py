"""Measures other load during a segment: other processes, the hypervisor, a container's CPU quota.
A segment disturbed by such load says nothing about training."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, fields
from typing import Any

from .. import _core


@dataclass(frozen=True)
class Load:
    """Totals, of which only differences are meaningful. ``None``: unknown."""

    at_s: float
    cores: int
    busy_s: float | None  # of the cores that this process may use, by all processes
    steal_s: float | None
    root: int  # the topmost process of the run
    own_s: float  # CPU of that and of all processes below it
    delay_s: float | None  # seconds that their threads waited for a core
    throttled_s: float | None  # by a CPU quota

    def since(self, before: Load) -> Load:
        values: dict[str, Any] = {"cores": self.cores, "root": self.root}
        for name in (one.name for one in fields(self) if one.name not in values):
            a, b = getattr(self, name), getattr(before, name)
            values[name] = None if a is None or b is None else max(0.0, a - b)
        return Load(**values)

    def evidence(self, run_s: float) -> dict[str, Any]:
        """For ``_core.stalls_judge``. ``run_s``: CPU of all ranks of this host."""
        return {
            "cores": self.cores,
            "load_s": self.at_s,
            "busy_s": self.busy_s,
            "steal_s": self.steal_s,
            "run_s": run_s,
            "run_delay_s": self.delay_s,
            "throttled_s": self.throttled_s,
        }


def read() -> Load:
    root = _root()
    now = _core.stalls_load(root)
    return Load(
        now["at_s"],
        now["cores"],
        now["busy_s"],
        now["steal_s"],
        root,
        now["run_s"],
        now["run_delay_s"],
        now["throttled_s"],
    )


@functools.cache
def _root() -> int:
    """Returns the id of the topmost ancestor of this process that belongs to the same run: a
    launcher of ranks, or a script whose child processes train."""
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
        pass  # another user's process, which does not belong to the run
    return found
