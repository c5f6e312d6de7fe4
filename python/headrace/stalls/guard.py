"""Guards the script's files in a measuring run: redirects its writes to a scratch folder.

A library that is preloaded into every program of the run (``src/guard``) redirects changes of
files, and shows the script its own changes. This module checks whether the library can be
preloaded, creates the scratch folder and reports what was redirected. ``guard.h`` describes the
folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import struct
import tempfile
from dataclasses import dataclass, field
from typing import BinaryIO

from .._launch.folders import remove_folder

VARIABLE = "HEADRACE_GUARD"
LIBRARY = "libheadrace-guard.so"
MARK = b"//headrace-original:"
MOST_PATHS = 1000
FULL_BYTES = 16 << 20  # a disk with less free space counts as full

# Caches of libraries are not redirected: what a measuring run adds there is valid and useful.
CACHES = (
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
    "TORCH_HOME",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "TRANSFORMERS_CACHE",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "NUMBA_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "MPLCONFIGDIR",
)
_CONNECTIONS = struct.Struct("=8xI")  # of struct hr__guard_state, up to connections
HOME_CACHES = (".cache", ".triton", ".nv", ".config/matplotlib")


class Unguarded(Exception):
    """The command cannot be guarded; the message says why."""


def library_path() -> str | None:
    """Returns the path of the guard's library: beside the extension, unless HEADRACE_GUARD_LIBRARY
    names another. None if it is missing."""
    from .. import _core

    named = os.environ.get("HEADRACE_GUARD_LIBRARY")
    path = named or os.path.join(os.path.dirname(_core.__file__ or ""), LIBRARY)
    return os.path.abspath(path) if os.path.isfile(path) else None


def check(words: list[str]) -> None:
    """Raises Unguarded if the library is missing or cannot be preloaded into the command."""
    path = library_path()
    if path is None:
        raise Unguarded(f"{LIBRARY} is missing beside headrace's extension (install it again)")
    if set(path) & set(" :"):  # LD_PRELOAD's separators
        raise Unguarded(f"{path} cannot be preloaded, since its path contains a space or a colon")
    program = shutil.which(words[0])
    why = _why_not_preloadable(program) if program else ""
    if why:
        raise Unguarded(f"no library can be preloaded into {program}: {why}")


def _why_not_preloadable(program: str) -> str:
    """Returns why no library can be preloaded into a program; "" if one can."""
    try:
        mode = os.stat(program)
        with open(program, "rb") as file:
            head = file.read(64)
            if head[:2] == b"#!":
                first = (head + file.read(192))[2:].split(b"\n")[0].split()
                other = os.fsdecode(first[0]) if first else ""
                return _why_not_preloadable(other) if other and other != program else ""
            if mode.st_mode & stat.S_ISUID and mode.st_uid != os.geteuid():
                return "it runs as another user"
            if head[:5] == b"\x7fELF\x02" and not _is_dynamic(head, file):
                return "it is linked statically"
    except OSError:
        pass  # starting the program will report the error
    return ""


def _is_dynamic(head: bytes, file: BinaryIO) -> bool:
    (table,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    file.seek(table)
    rows = file.read(size * count)
    kinds = [struct.unpack_from("<I", rows, at)[0] for at in range(0, len(rows), size)]
    return 3 in kinds  # PT_INTERP


@dataclass
class Redirected:
    """The changes of files that the run would have made."""

    written: list[str] = field(default_factory=list)
    written_bytes: int = 0
    renamed: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    beyond: list[str] = field(default_factory=list)  # programs that could not be guarded

    def notes(self) -> list[str]:
        """Describes the changes for the report, in one sentence each."""
        parts = []
        if self.written:
            size = _size(self.written_bytes)
            parts.append(f"{_count(self.written, 'file')} ({size}) that the script wrote")
        if self.renamed:
            parts.append(_count(self.renamed, "renamed file"))
        if self.deleted:
            parts.append(_count(self.deleted, "deletion"))
        notes = []
        if parts:
            paths = self.written + self.deleted + self.renamed
            which = ", ".join(paths[:3]) + (", ..." if len(paths) > 3 else "")
            verb = "was" if len(paths) == 1 else "were"
            notes.append(
                f"{' and '.join(parts)} {verb} kept from its folders: a measuring run is thrown "
                f"away ({which})"
            )
        if self.beyond:
            notes.append(
                "not guarded, since no library can be preloaded into them: "
                f"{', '.join(self.beyond[:3])}; files that they wrote have changed, unless the "
                "kernel ended them (SIGSYS)"
            )
        return notes


def _count(what: list[str], name: str) -> str:
    return f"{len(what):,} {name}{'s' if len(what) != 1 else ''}"


def _size(count: int) -> str:
    value, unit = float(count), 0
    while value >= 999.5 and unit < 4:
        value /= 1000
        unit += 1
    return f"{value:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[unit]}"


class Guard:
    """The scratch folder of one run, inside the run's own folder."""

    def __init__(self, run_folder: str) -> None:
        self.path = os.path.join(os.path.realpath(run_folder), "guard")
        for name in ("new", "gone", "work"):
            os.makedirs(os.path.join(self.path, name), mode=0o700)
        self._write("exempt", "".join(f"{folder}\n" for folder in _exempt(run_folder)).encode())
        temp = os.path.realpath(tempfile.gettempdir())
        names = [os.fsencode(name) for name in [temp, *os.listdir(temp)]]
        self._write("temp", b"".join(name + b"\0" for name in names))

    def _write(self, name: str, text: bytes) -> None:
        with open(os.path.join(self.path, name), "wb") as file:
            file.write(text)

    def add_to(self, environment: dict[str, str]) -> None:
        """Adds the variables that load the library into all programs of the run."""
        others = environment.get("LD_PRELOAD")
        library = library_path() or ""
        environment["LD_PRELOAD"] = f"{library}:{others}" if others else library
        environment[VARIABLE] = self.path

    def is_full(self) -> bool:
        return shutil.disk_usage(self.path).free < FULL_BYTES

    def redirected(self) -> Redirected:
        """Reads which changes the scratch folder received."""
        found = Redirected()
        top = os.path.join(self.path, "new")
        for folder, _, names in os.walk(top):
            for name in sorted(names):
                path = os.path.join(folder, name)
                _add(found, path, path[len(top) :])
        moved = set(found.written) | set(found.renamed)
        for name in sorted(os.listdir(os.path.join(self.path, "gone"))):
            path = os.fsdecode(_read(os.path.join(self.path, "gone", name)))
            if path not in moved and os.path.lexists(path) and not os.path.isdir(path):
                found.deleted.append(path)
        found.deleted.sort()
        found.beyond = sorted(set(_lines(os.path.join(self.path, "beyond"))))
        return found

    def remove_made(self) -> None:
        remove_made(os.path.dirname(self.path))


def connections() -> int | None:
    """Network connections that processes of this run began so far. ``None``: not known, because
    there is no guard, or programs of the run that it is not in."""
    scratch = os.environ.get(VARIABLE)
    if not scratch or _lines(os.path.join(scratch, "beyond")):
        return None
    try:
        with open(os.path.join(scratch, "state"), "rb") as file:
            return int(_CONNECTIONS.unpack(file.read(_CONNECTIONS.size))[0])
    except (OSError, struct.error):
        return None


def remove_made(run_folder: str) -> None:
    """Removes the files that the run created in the temporary folder, which is not redirected."""
    for path in _lines(os.path.join(run_folder, "guard", "made")):
        if os.path.basename(path).startswith("headrace"):
            continue  # may belong to an agent that serves other jobs, too
        with contextlib.suppress(OSError):
            if os.lstat(path).st_uid != os.geteuid():
                continue
            if os.path.isdir(path) and not os.path.islink(path):
                remove_folder(path)
            else:
                os.unlink(path)


def _add(found: Redirected, path: str, meant: str) -> None:
    try:
        status = os.lstat(path)
        target = os.readlink(os.fsencode(path)) if stat.S_ISLNK(status.st_mode) else b""
    except OSError:  # removed by a process of the script that is still running
        return
    if target.startswith(MARK):
        found.renamed.append(meant)
    elif stat.S_ISREG(status.st_mode) or target:
        found.written.append(meant)
        found.written_bytes += status.st_size


def _exempt(run_folder: str) -> list[str]:
    home = os.path.expanduser("~")
    folders = [os.environ.get(name, "") for name in CACHES]
    folders += [os.path.join(home, name) for name in HOME_CACHES]
    temp = tempfile.gettempdir()
    # These libraries are loaded with dlopen, which the guard does not redirect.
    folders += [os.path.join(temp, n) for n in os.listdir(temp) if n.startswith("torchinductor_")]
    real = [os.path.realpath(folder) for folder in folders if os.path.isabs(folder)]
    # Do not exempt a folder that contains the home or current folder (HF_HOME=/workspace).
    places = [os.path.join(os.path.realpath(place), "") for place in (os.getcwd(), home)]
    real = [f for f in real if not any(place.startswith(os.path.join(f, "")) for place in places)]
    system = ["/dev", "/proc", "/sys", "/run/user", "/run/lock"]  # not /run/media: users' disks
    return [*system, os.path.realpath(run_folder), *(f for f in real if "\n" not in f)]


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _lines(path: str) -> list[str]:
    try:
        return [line for line in os.fsdecode(_read(path)).split("\n") if line]
    except OSError:
        return []
