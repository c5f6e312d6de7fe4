"""Reads the headers of record files (docs/memory-format.md) and names the files of a run. Their
events are read by the library."""

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
EVENTS = 1  # kind of an extent that holds events


@dataclass
class About:
    """Summary of a record, from its header and the headers of its extents."""

    pid: int
    events: int
    bytes: int
    lost: int
    ended: bool  # False: its process was killed, or is still recording
    problem: int  # errno of the error that ended it early; 0: none


def about(path: str) -> About | None:
    """Reads a record's headers. Returns None if the file is not a record. Raises OSError."""
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
    """Whether the file is a record or empty, so that it may be replaced. Raises OSError."""
    with open(path, "rb") as file:
        return file.read(8) in (b"", MAGIC)


def check_place(out: str) -> None:
    """Raises OSError if no record can be written to ``out``."""
    folder = os.path.dirname(out)
    if os.path.isdir(out):
        raise IsADirectoryError(0, "is a directory", out)
    if os.path.exists(out) and not (os.path.isfile(out) and is_record(out)):
        raise FileExistsError(0, "exists and is not a memory record, so it is not replaced", out)
    with tempfile.TemporaryFile(dir=folder):  # checks that the folder is writable
        pass


def left_over(out: str) -> list[tuple[str, int]]:
    """Lists records left by earlier runs whose launcher was killed, oldest first: their paths, each
    with the process that still records into it (0: none)."""
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
    """Inserts a part into a file name: "run.hrm" becomes "run.PART.hrm"."""
    stem, suffix = os.path.splitext(out)
    return f"{stem}.{part}{suffix}"


def name_all(
    out: str, paths: list[str], ranks: list[int | None], began_s: float = math.inf
) -> list[str]:
    """Renames the records of a run's processes and returns their new paths.

    A single record is named ``out``. Several get ".rankN" inserted, or ".process1", ".process2",
    ... if their ranks are missing or not distinct. Other records of an earlier run are removed.
    Records written since ``began_s`` are kept: they belong to the ranks of another host that uses
    the same folder. Raises OSError.
    """
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
            raise FileExistsError(0, "exists and is not a memory record", name)
        os.replace(path, name)
    return names


def _is_since(path: str, began_s: float) -> bool:
    return os.path.exists(path) and os.stat(path).st_mtime >= began_s


def _earlier(out: str) -> list[str]:
    """Lists the records that an earlier run with the same ``out`` left."""
    stem, suffix = os.path.splitext(os.path.basename(out))
    pattern = re.escape(stem) + r"(\.(rank|process)\d+)?" + re.escape(suffix)
    return [
        entry.path
        for entry in os.scandir(os.path.dirname(out))
        if re.fullmatch(pattern, entry.name)
        and entry.is_file(follow_symlinks=False)
        and is_record(entry.path)
    ]
