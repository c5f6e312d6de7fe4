"""Record files as the launcher sees them: reads their headers (docs/memory-format.md) and gives
them their names. The library reads their events."""

from __future__ import annotations

import math
import os
import re
import struct
import tempfile
from dataclasses import dataclass

MAGIC = b"HRMEMORY"
HEADER_BYTES, EXTENT_BYTES, EVENT_BYTES = 4096, 262144, 32
EXTENT_MAGIC = b"HREXTENT"
EVENTS = 1  # the kind of an extent


@dataclass
class About:
    """What the heads of a record say."""

    pid: int
    events: int
    bytes: int
    lost: int
    ended: bool  # False: its process was killed, or records still
    problem: int  # errno of what ended it early; 0: nothing


def about(path: str) -> About | None:
    """None where the file is no record. OSError of the file."""
    with open(path, "rb") as file:
        head = file.read(80)
        if len(head) < 80 or head[:8] != MAGIC:
            return None
        pid, lost, ended, problem = struct.unpack_from("<q8xQQq", head, 40)
        size = file.seek(0, os.SEEK_END)
        events = 0
        for at in range(HEADER_BYTES, size, EXTENT_BYTES):
            file.seek(at)
            extent = file.read(32)
            if len(extent) < 32 or extent[:8] != EXTENT_MAGIC:
                continue
            kind, used = struct.unpack_from("<I12xQ", extent, 8)
            events += used // EVENT_BYTES if kind == EVENTS else 0
    return About(pid, events, size, lost, ended == 1, -problem)


def is_record(path: str) -> bool:
    """A record, or an empty file, which may be replaced."""
    with open(path, "rb") as file:
        return file.read(8) in (b"", MAGIC)


def check_place(out: str) -> None:
    """OSError where no record can be written to ``out``."""
    folder = os.path.dirname(out)
    if os.path.isdir(out):
        raise IsADirectoryError(0, "is a directory", out)
    if os.path.exists(out) and not (os.path.isfile(out) and is_record(out)):
        raise FileExistsError(0, "is there and is no memory record: it is left as it is", out)
    with tempfile.TemporaryFile(dir=folder):  # can it be written?
        pass


def left_over(out: str) -> list[tuple[str, int]]:
    """Records of processes of earlier runs whose launcher was killed, oldest first, and the
    process that still records there (0: none does)."""
    name = os.path.basename(out)
    found = []
    for entry in os.scandir(os.path.dirname(out)):
        match = re.fullmatch(re.escape(name) + r"\.(\d+)(-\d+)?", entry.name)
        try:
            if match and entry.is_file(follow_symlinks=False) and about(entry.path) is not None:
                pid = int(match[1]) if _maps(int(match[1]), entry.path) else 0
                found.append((entry.stat().st_mtime, entry.path, pid))
        except OSError:
            continue
    return [(path, pid) for _, path, pid in sorted(found)]


def _maps(pid: int, path: str) -> bool:
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            return any(line.rstrip("\n").endswith(path) for line in file)
    except OSError:
        return False


def with_part(out: str, part: str) -> str:
    """run.hrm: run.PART.hrm."""
    stem, suffix = os.path.splitext(out)
    return f"{stem}.{part}{suffix}"


def name_all(
    out: str, paths: list[str], ranks: list[int | None], began_s: float = math.inf
) -> list[str]:
    """Gives the processes' records their names: ``out`` for one; for several that with
    ".rankN", or, where their ranks are not different, ".process1", ".process2". Those of an
    earlier run that have no place among these are removed, but none that was written since
    ``began_s``: it is of another host's ranks, in the same folder. OSError where that fails."""
    numbers = [f"rank{rank}" for rank in ranks if rank is not None]
    if len(paths) == 1 and not (numbers and _is_since(out, began_s)):
        names = [out]
    elif len(set(numbers)) == len(paths):
        names = [with_part(out, number) for number in numbers]
    else:
        names = [with_part(out, f"process{at}") for at in range(1, len(paths) + 1)]
    for old in _earlier(out):
        if old not in names and not _is_since(old, began_s):
            os.unlink(old)
    for path, name in zip(paths, names):
        if os.path.lexists(name) and not is_record(name):
            raise FileExistsError(0, "is there and is no memory record", name)
        os.replace(path, name)
    return names


def _is_since(path: str, began_s: float) -> bool:
    return os.path.exists(path) and os.stat(path).st_mtime >= began_s


def _earlier(out: str) -> list[str]:
    """Records that a run before this one left."""
    stem, suffix = os.path.splitext(os.path.basename(out))
    pattern = re.escape(stem) + r"(\.(rank|process)\d+)?" + re.escape(suffix)
    return [
        entry.path
        for entry in os.scandir(os.path.dirname(out))
        if re.fullmatch(pattern, entry.name)
        and entry.is_file(follow_symlinks=False)
        and is_record(entry.path)
    ]
