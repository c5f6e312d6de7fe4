"""Reads the limits of the machine and of control groups on this process. (``_core.cores`` counts
the cores.)"""

from __future__ import annotations

import os
import platform


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(("model name", "Model")):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def _memberships() -> list[tuple[str, str]]:
    """Lists this process' control groups as (controllers, path); v2 groups have no controllers."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    return [(words[1], words[2]) for words in lines if len(words) == 3]


def _groups() -> list[str]:
    """Lists the folders of this process' control group (v2) and of its parents."""
    own = next((path for controllers, path in _memberships() if not controllers), None)
    if own is None:
        return []
    found = []
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        path = os.path.normpath(root + own)
        while path.startswith(root):
            found.append(path)
            path = os.path.dirname(path)
    return found


def _number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _used(group: str, names: tuple[str, ...]) -> int:
    """Returns the bytes that a control group uses, without the page cache."""
    used = 0
    try:
        with open(f"{group}/memory.stat", encoding="ascii") as file:
            for line in file:
                name, value = line.split()
                if name in names:
                    used += int(value)
    except (OSError, ValueError):
        pass
    return used


def memory() -> tuple[int, int]:
    """Returns the memory of the machine, or of the control group if that limits it, and how much of
    it the page cache may use, in bytes."""
    values = {}
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            name, rest = line.split(":", 1)
            values[name] = int(rest.split()[0]) * 1024
    total = values["MemTotal"]
    available = values.get("MemAvailable", values["MemFree"])
    for group in _groups():
        limit = _number(f"{group}/memory.max")
        if limit is not None:
            total = min(total, limit)
            used = _used(group, ("anon", "shmem", "slab_unreclaimable"))
            available = min(available, max(0, limit - used))
    first = _memory_group()
    limit = _number(f"{first}/memory.limit_in_bytes") if first else None
    if first and limit is not None and limit < total:
        total = limit
        available = min(available, max(0, limit - _used(first, ("total_rss", "total_shmem"))))
    return total, available


def _memory_group() -> str | None:
    """Returns the folder of this process' memory controller (v1), if one is in use."""
    for controllers, path in _memberships():
        if "memory" in controllers.split(","):
            folder = f"/sys/fs/cgroup/memory{path}"
            return folder if os.path.isdir(folder) else "/sys/fs/cgroup/memory"
    return None
