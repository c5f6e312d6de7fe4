"""Facts of a run for its record: overhead of recording, capacities, copy rates, paths."""

from __future__ import annotations

import os
import shutil
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from .. import _core
from .._launch import ranks

CALLS = 300  # calls of a small operator, for measuring the overhead
COPY_BYTES = 64 << 20


def probe_ns(make: Callable[[str], Any]) -> float | None:
    """Measures the overhead of recording, in ns per operator call: the median time of CALLS calls
    under the mode that `make(path)` returns, minus the median time of as many calls without it.
    Returns None if no temporary file can be written."""
    try:
        folder = tempfile.mkdtemp(prefix="headrace-")
    except OSError:
        return None
    try:
        mode = make(os.path.join(folder, "probe.hrm"))
        with torch.no_grad():
            # On the CPU even if the default device is an accelerator: do not initialise it.
            a, b = torch.ones(64, device="cpu"), torch.ones(64, device="cpu")
            plain = _time_calls(a, b)
            with mode:
                seen = _time_calls(a, b)
        mode.close()
    except OSError:
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return max(0.0, seen - plain)


def _time_calls(a: Any, b: Any) -> float:
    times = []
    for _ in range(CALLS):
        begin = time.perf_counter_ns()
        a + b
        times.append(time.perf_counter_ns() - begin)
    return statistics.median(times[CALLS // 10 :])


def capacities() -> dict[str, int]:
    """Returns the memory capacities, in bytes, as facts for a record: of the host ("cpu", with the
    limits of control groups), of each CUDA device if CUDA is in use, and, without a device's name,
    of the current accelerator, else of the host."""
    main = _core.machine()["memory_bytes"]
    facts = {"capacity bytes cpu": main}
    if torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            total = int(torch.cuda.get_device_properties(index).total_memory)
            facts[f"capacity bytes cuda:{index}"] = total
            if index == torch.cuda.current_device():
                main = total
    return {**facts, "capacity bytes": main}


def copy_rates() -> tuple[float, float] | None:
    """Measures the copy rates to the current CUDA device and back, in bytes per second, with short
    copies of pinned memory. Returns None if CUDA is not in use or memory is short."""
    if not torch.cuda.is_initialized():
        return None
    try:
        if torch.cuda.is_current_stream_capturing():  # synchronizing would break the capture
            return None
        host = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cpu", pin_memory=True)
        device = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
        rates = []
        for to, source in ((device, host), (host, device)):
            times = []
            for _ in range(4):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                to.copy_(source, non_blocking=True)
                torch.cuda.synchronize()
                times.append(time.perf_counter() - begin)
            rates.append(COPY_BYTES / min(times))
    except RuntimeError:  # out of memory, a broken context
        return None
    return rates[0], rates[1]


def default_path() -> str:
    """Returns "headrace-memory.hrm", with the rank in it if there are several ranks."""
    rank = ranks.rank()
    return "headrace-memory.hrm" if rank is None else f"headrace-memory.rank{rank}.hrm"


def recorded_by(path: str) -> int:
    """Returns the id of the process that is recording into a file now; 0 if none can be found."""
    try:
        with open(path, "rb") as file:
            head = file.read(80)
        if len(head) < 80 or head[:8] != b"HRMEMORY":
            return 0
        (pid,), (is_ended,) = struct.unpack_from("=q", head, 40), struct.unpack_from("=Q", head, 64)
        if is_ended or pid <= 0:
            return 0
        mine = os.stat(path)
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                other = os.stat(f"/proc/{pid}/fd/{name}")
            except OSError:  # closed meanwhile
                continue
            if (other.st_dev, other.st_ino) == (mine.st_dev, mine.st_ino):
                return int(pid)
    except OSError:  # no such file, no such process, another user's
        pass
    return 0


def bytes_asked(text: str) -> int:
    """Parses the requested size, in bytes, from an allocator's error message ("... you tried to
    allocate 123 bytes"); 0 if there is none."""
    words = text.replace(",", "").split()
    units = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    for number, unit in zip(words, words[1:]):
        scale = units.get(unit.strip(".;"))
        if scale is None:
            continue
        if number.isdigit():
            return int(number) * scale
        try:
            return round(float(number) * scale)
        except ValueError:
            continue
    return 0
