"""Measures the work of the loader's workers: each writes one row per batch that it fetches.

torch's fetchers are wrapped in the training process and in every worker, which inherits the
wrapper (fork) or installs it at startup (spawn). While the file ``recording`` exists in the run's
folder, each batch appends one row to the process' own file. That needs no pipe and no lock, and
the rows survive the worker.

While the file ``learning`` exists, workers also log the paths that they open for reading and the
bytes that their network connections receive. The paths are needed to drop the dataset's files from
the page cache if the dataset does not list them.
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
    """Returns the path of the file whose existence switches ``name`` on for this rank's workers."""
    return f"{_folder()}/{name}-{os.environ.get(_OWNER, '0')}"


class _Files:
    """The files of this process, opened at the first write."""

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
    """Wraps the fetchers of ``module``, torch.utils.data._utils.fetch."""
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
        else:  # the dataset makes batches itself, or yields single samples
            from .replay import samples_in

            samples = samples_in(out)
        if learning:
            _note_held()
            _note_received(connections)
        row = _ROW.pack(time.perf_counter_ns(), samples, cpu, wall, *map(_less, after, before))
        try:
            os.write(_files.open("rows"), row)
        except OSError:  # the disk is full or the run is over: lose this row
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
    read_bytes: int | None  # read from storage
    given_bytes: int | None  # returned by reads, from storage or not


def own() -> None:
    """Makes workers that start from now on write to files marked with this process' id."""
    os.environ[_OWNER] = str(os.getpid())


def record(on: bool) -> None:
    """Switches the writing of rows on or off."""
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
    """Reads the rows that all workers of this process have written, sorted by time."""
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
_connected = 0  # connections that this process opened while learning was on


def _on_audit(event: str, arguments: tuple[Any, ...]) -> None:
    global _connected
    if event == "socket.connect" and isinstance(arguments[1], tuple) and _learning():
        _connected += 1  # a network address is a tuple; that of a Unix socket is a string
    if event != "open" or not _learning():
        return
    path, _, flags = arguments
    if not isinstance(path, (str, bytes)) or not isinstance(flags, int):
        return
    if flags & os.O_ACCMODE != os.O_RDONLY:
        return
    _append("paths", os.path.abspath(os.fsdecode(path)))


def _append(kind: str, path: str) -> None:
    if "\n" not in path:
        try:
            os.write(_files.open(kind), os.fsencode(path) + b"\n")
        except OSError:  # the disk is full or the run is over: lose this line
            pass


_held: set[str] = set()  # logged by this process
_held_pid = 0


def _note_held() -> None:
    """Logs files that are open or mapped already, which may be read without another open."""
    global _held_pid
    if _held_pid != os.getpid():
        _held_pid = os.getpid()
        _held.clear()
    for path in [*mapped_files(), *_open_files()]:
        if path not in _held:
            _held.add(path)
            _append("held", path)


def mapped_files(pid: int | str = "self") -> dict[str, list[tuple[int, int]]]:
    """Returns the regular files that a process has mapped, without those that it executes, each
    with the address ranges of the mappings that contain only the file's bytes."""
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
                if rights == "rw-p":  # private and writable: may differ from the file
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
    """Whether a descriptor of this process is open for reading."""
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        flags = next(int(line.split()[1], 8) for line in file if line.startswith("flags:"))
    return flags & os.O_ACCMODE != os.O_WRONLY


_TCP_INFO = struct.Struct("128xQ")  # of struct tcp_info, up to tcpi_bytes_received


def _received() -> dict[int, int]:
    """Returns the bytes that each TCP connection of this process has received, by inode."""
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
    """Logs how many bytes the open connections received since ``before``, and how many connections
    were opened."""
    global _connected
    more = sum(total - before.get(inode, 0) for inode, total in _received().items())
    _append("received", f"{time.perf_counter_ns()} {more} {_connected}")
    _connected = 0


def received() -> tuple[int, int]:
    """Returns two totals logged by this process and its workers: bytes received by connections that
    were still open after a batch, and the number of connections opened. Clears the log."""
    lines = [[int(word) for word in line.split()] for line in _taken("received") if line]
    return sum(line[1] for line in lines), sum(line[2] for line in lines)


def _learning() -> bool:
    try:
        os.stat(_marker("learning"))
    except OSError:
        return False
    return True


def _listen() -> None:
    """Adds the audit hook when learning is on: hooks cannot be removed, so not before."""
    global _listening
    if not _listening and _learning():
        sys.addaudithook(_on_audit)
        _listening = True


def learn(on: bool) -> None:
    """Switches the logging of opened files and received bytes on or off."""
    _mark("learning", on)


def learned() -> tuple[list[str], list[str]]:
    """Returns two lists of files logged by this process and its workers: those that they opened,
    and others that they had open or mapped already. Files of Python and of the system are left
    out. Clears the log."""
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
