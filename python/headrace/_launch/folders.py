"""The folder through which a launcher and its processes communicate.

The launcher holds a lock on the folder's file ``lock``; the kernel releases it when the launcher
ends. A folder whose lock can be taken is left over and is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable

from .process import using

OLD_S = 600.0  # a folder without a lock is being made, unless it is older than this


class RunFolder:
    """A new folder that only its owner can read; :meth:`close` removes it."""

    def __init__(self, prefix: str) -> None:
        self.path = tempfile.mkdtemp(prefix=prefix)
        self._lock = _locked(self.path)

    def close(self) -> None:
        remove_folder(self.path)
        os.close(self._lock)


def write_whole(path: str, text: str) -> None:
    """Writes a file atomically, for concurrent readers."""
    partial = f"{path}~{os.getpid()}"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(partial, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.remove(partial)
        raise


def remove_folder(path: str) -> None:
    """Removes a folder, even if folders in it are not writable."""
    shutil.rmtree(path, ignore_errors=True)
    if not os.path.lexists(path):
        return
    for folder, names, _ in os.walk(path):
        for name in [".", *names]:
            one = os.path.join(folder, name)
            if not os.path.islink(one):
                with contextlib.suppress(OSError):
                    os.chmod(one, 0o700)
    shutil.rmtree(path, ignore_errors=True)


def _locked(folder: str) -> int:
    """Creates the file ``lock``; it is locked before it gets that name."""
    begun = os.path.join(folder, "lock~")
    lock = os.open(begun, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(begun, os.path.join(folder, "lock"))
    return lock


def remove_left_over(
    prefix: str, variable: str, before: Callable[[str], None] = lambda path: None
) -> None:
    """Removes the run folders of launchers that were killed, unless a process still has one in its
    environment as ``variable``. ``before`` is called with each first."""
    place = tempfile.gettempdir()
    try:
        names = [name for name in os.listdir(place) if name.startswith(prefix)]
    except OSError:
        return
    for name in names:
        path = os.path.join(place, name)
        try:
            is_mine = os.stat(path, follow_symlinks=False).st_uid == os.geteuid()
            if is_mine and _is_left_over(path, variable):
                before(path)
                remove_folder(path)
        except OSError:
            continue


def _is_left_over(path: str, variable: str) -> bool:
    try:
        lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - os.stat(path).st_mtime > OLD_S
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return not using(f"{variable}={path}")
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
