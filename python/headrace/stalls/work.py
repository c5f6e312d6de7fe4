"""Rows that the loader's workers write, one for each batch that they fetch.

torch's fetchers are wrapped in the training process and in every worker, which inherits the
wrapper or goes through the same start. While the file ``recording`` is in the run's folder, each
batch appends one row to a file of its own process: no pipe, no lock, and nothing is lost with a
worker. While ``learning`` is there, workers also log the paths that they open for reading, so
that the files of datasets which do not name them can be dropped from memory, and
the bytes that came over their network connections.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct
import sys
import time
from dataclasses import dataclass
from typing import Any

from . import counters

_ROW = struct.Struct("<qIddqq")
_OWNER = "HEADRACE_STALLS_OWNER"


def _folder() -> str:
    return os.environ.get("HEADRACE_STALLS_DIR", "")


def _marker(name: str) -> str:
    """The file whose presence switches the workers of this rank."""
    return f"{_folder()}/{name}-{os.environ.get(_OWNER, '0')}"


class _Files:
    """This process's files, opened when there is something to write."""

    def __init__(self) -> None:
        self.pid = 0
        self.rows: int | None = None
        self.paths: int | None = None
        self.held: int | None = None
        self.received: int | None = None

    def open(self, kind: str) -> int:
        if self.pid != os.getpid():
            self.pid = os.getpid()
            self.rows = self.paths = self.held = self.received = None
        fd: int | None = getattr(self, kind)
        if fd is None:
            name = f"{kind}-{os.environ.get(_OWNER, '0')}-{self.pid}"
            path = os.path.join(_folder(), name)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            setattr(self, kind, fd)
        return fd


_files = _Files()


def wrap_fetchers(module: Any) -> None:
    """``module``: torch.utils.data._utils.fetch."""
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        fetcher = getattr(module, name, None)
        if fetcher is not None and not hasattr(fetcher.fetch, "_headrace"):
            fetcher.fetch = _wrapped(fetcher.fetch)


def _wrapped(original: Any) -> Any:
    def fetch(self: Any, possibly_batched_index: Any) -> Any:
        if not os.path.exists(_marker("recording")):
            return original(self, possibly_batched_index)
        _listen()
        learning = _learning()
        connections = _received() if learning else {}
        before = counters.io_of("self")
        wall, cpu = time.perf_counter(), time.process_time()
        out = original(self, possibly_batched_index)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        after = counters.io_of("self")
        if getattr(self, "auto_collation", True):
            samples = len(possibly_batched_index)
        else:  # the dataset makes batches itself, or there are none
            from .replay import samples_in

            samples = samples_in(out)
        if learning:
            _note_held()
            _note_received(connections)
        row = _ROW.pack(time.perf_counter_ns(), samples, cpu, wall, *map(_less, after, before))
        try:
            os.write(_files.open("rows"), row)
        except OSError:  # a full disk, or the run is over: a row less
            pass
        return out

    fetch._headrace = True  # type: ignore[attr-defined]
    return fetch


def _less(after: int | None, before: int | None) -> int:
    return -1 if after is None or before is None else after - before


@dataclass(frozen=True)
class Row:
    """One batch of one worker; ``end_ns`` by the clock of ``time.perf_counter_ns``."""

    end_ns: int
    samples: int
    cpu_s: float
    wall_s: float
    read_bytes: int | None  # from storage
    given_bytes: int | None  # by reads, wherever from


def own() -> None:
    """From here on, what workers of this process write is marked as its own."""
    os.environ[_OWNER] = str(os.getpid())


def record(on: bool) -> None:
    """Rows are written while batches are fetched."""
    _mark("recording", on)


def _mark(name: str, on: bool) -> None:
    if on:
        os.close(os.open(_marker(name), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return
    try:
        os.unlink(_marker(name))
    except FileNotFoundError:
        pass


def rows() -> list[Row]:
    """Of all workers of this process so far, by time."""
    found: list[Row] = []
    for name in os.listdir(_folder()):
        if not name.startswith(f"rows-{os.getpid()}-"):
            continue
        with open(os.path.join(_folder(), name), "rb") as file:
            data = file.read()
        whole = len(data) // _ROW.size * _ROW.size
        for end, samples, cpu, wall, *amounts in _ROW.iter_unpack(data[:whole]):
            found.append(Row(end, samples, cpu, wall, *(None if a < 0 else a for a in amounts)))
    found.sort(key=lambda row: row.end_ns)
    return found


_listening = False
_connected = 0  # connections that this process began while it learned


def _on_audit(event: str, arguments: tuple[Any, ...]) -> None:
    global _connected
    if event == "socket.connect" and isinstance(arguments[1], tuple) and _learning():
        _connected += 1  # not to a socket in the file system, whose address is a text
    if event != "open" or not _learning():
        return
    path, _, flags = arguments
    if not isinstance(path, (str, bytes)) or not isinstance(flags, int):
        return
    if flags & os.O_ACCMODE != os.O_RDONLY:
        return
    _write_down("paths", os.path.abspath(os.fsdecode(path)))


def _write_down(kind: str, path: str) -> None:
    if "\n" not in path:
        try:
            os.write(_files.open(kind), os.fsencode(path) + b"\n")
        except OSError:  # a path less
            pass


_held: set[str] = set()  # written down by this process
_held_pid = 0


def _note_held() -> None:
    """Files that were opened or mapped before, and may be read without being opened again."""
    global _held_pid
    if _held_pid != os.getpid():
        _held_pid = os.getpid()
        _held.clear()
    for path in [*mapped_files(), *_open_files()]:
        if path not in _held:
            _held.add(path)
            _write_down("held", path)


def mapped_files(pid: int | str = "self") -> dict[str, list[tuple[int, int]]]:
    """Regular files that a process has mapped and does not execute, with the addresses of
    mappings that hold nothing but the file's own bytes."""
    found: dict[str, list[tuple[int, int]]] = {}
    executed = set()
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                words = line.rstrip("\n").split(None, 5)
                if len(words) < 6 or not words[5].startswith("/"):
                    continue
                addresses, rights, path = words[0], words[1], words[5]
                if "x" in rights:
                    executed.add(path)
                if rights == "rw-p":  # may hold what is not in the file
                    continue
                begin, end = addresses.split("-")
                found.setdefault(path, []).append((int(begin, 16), int(end, 16)))
    except (OSError, ValueError):
        return {}
    return {path: places for path, places in found.items() if path not in executed}


def _open_files() -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
            if path.startswith("/") and _is_read(fd):
                found.append(path)
        except (OSError, ValueError):
            continue
    return found


def _is_read(fd: str) -> bool:
    """Not one that is only written to."""
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        flags = next(int(line.split()[1], 8) for line in file if line.startswith("flags:"))
    return flags & os.O_ACCMODE != os.O_WRONLY


_TCP_INFO = struct.Struct("128xQ")  # of struct tcp_info, up to tcpi_bytes_received


def _received() -> dict[int, int]:
    """Bytes that the TCP connections of this process have received, by the socket's inode."""
    libc = ctypes.CDLL(None)
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            status = os.fstat(int(name))
        except OSError:  # closed meanwhile
            continue
        info, length = ctypes.create_string_buffer(_TCP_INFO.size), ctypes.c_uint(_TCP_INFO.size)
        if stat.S_ISSOCK(status.st_mode) and not libc.getsockopt(
            int(name), socket.IPPROTO_TCP, socket.TCP_INFO, info, ctypes.byref(length)
        ):
            found[status.st_ino] = _TCP_INFO.unpack(info.raw)[0]
    return found


def _note_received(before: dict[int, int]) -> None:
    """What connections that are still open got since ``before``, and how many were begun."""
    global _connected
    more = sum(total - before.get(inode, 0) for inode, total in _received().items())
    _write_down("received", f"{time.perf_counter_ns()} {more} {_connected}")
    _connected = 0


def received() -> tuple[int, int]:
    """Bytes that connections of this process and its workers got while they were listened to,
    of those that a batch left open; and how many connections they began. Forgotten afterwards."""
    lines = [[int(word) for word in line.split()] for line in _taken("received") if line]
    return sum(line[1] for line in lines), sum(line[2] for line in lines)


def _learning() -> bool:
    try:
        os.stat(_marker("learning"))
    except OSError:
        return False
    return True


def _listen() -> None:
    """Audit hooks stay for good, so a process gets one only when it has something to learn."""
    global _listening
    if not _listening and _learning():
        sys.addaudithook(_on_audit)
        _listening = True


def learn(on: bool) -> None:
    """Writes down files that are opened, and what connections receive, while batches are
    fetched."""
    _mark("learning", on)


def learned() -> tuple[list[str], list[str]]:
    """Files that this process and its workers opened while they were listened to, and files
    that they had open or mapped meanwhile; once each, those of Python itself and of the system
    left out, and forgotten afterwards."""
    opened = _data_files(_taken("paths"))
    held = _data_files(_taken("held"))
    return opened, [path for path in held if path not in set(opened)]


def _taken(kind: str) -> dict[str, None]:
    seen: dict[str, None] = {}
    for name in os.listdir(_folder()):
        if not name.startswith(f"{kind}-{os.getpid()}-"):
            continue
        path = os.path.join(_folder(), name)
        with open(path, "rb") as file:
            for line in file.read().split(b"\n"):
                seen[os.fsdecode(line)] = None
        with open(path, "rb+") as file:
            file.truncate(0)
    _held.clear()
    return seen


def _data_files(paths: dict[str, None]) -> list[str]:
    skipped = ("/proc/", "/sys/", "/dev/", "/etc/", sys.prefix + "/", sys.base_prefix + "/lib/")
    skipped += ("/usr/lib", "/usr/share/", "/lib")
    return [
        path
        for path in paths
        if path
        and not path.startswith(skipped)
        and not path.startswith(_folder())
        and not path.endswith((".py", ".pyc", ".so"))
        and os.path.isfile(path)
        and path != os.path.abspath(sys.argv[0])
    ]
