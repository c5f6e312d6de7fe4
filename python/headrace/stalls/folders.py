"""The folder in which launcher and probe talk, and the folder that takes the results.

A run's folder belongs to the launcher that holds the lock on its file ``lock``, which the
kernel drops with the process: a folder whose lock can be had is left over, and goes.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time

PREFIX = "headrace-stalls-"
OLD_S = 600.0  # a folder without a lock is being made, unless it is older than this
MOST_NUMBERS = 1000


class RunFolder:
    """A new folder that only its owner can look into; removed by :meth:`close`."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix=PREFIX)
        self._lock = _locked(self.path)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _locked(folder: str) -> int:
    """Makes the file ``lock``, locked before it has that name."""
    begun = os.path.join(folder, "lock~")
    lock = os.open(begun, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(begun, os.path.join(folder, "lock"))
    return lock


def remove_left_over() -> None:
    """Run folders, and scratch folders in them, of launchers that were killed."""
    place = tempfile.gettempdir()
    try:
        names = [name for name in os.listdir(place) if name.startswith(PREFIX)]
    except OSError:
        return
    for name in names:
        path = os.path.join(place, name)
        try:
            if os.stat(path, follow_symlinks=False).st_uid == os.geteuid() and _is_left_over(path):
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue


def _is_left_over(path: str) -> bool:
    from .script import using

    try:
        lock = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - os.stat(path).st_mtime > OLD_S
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return not using(path)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)


def is_ours(path: str) -> bool:
    """Whether a folder holds results of an earlier run, or nothing. Where these did not
    suffice, there are only records."""
    try:
        names = os.listdir(path)
        if "stalls.json" not in names:
            return not set(names) - {"records"}
        with open(os.path.join(path, "stalls.json"), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and "headrace_stalls" in found


def choose_out(wanted: str) -> str:
    """``wanted``, or with a number where that is something else's; made. OSError where it
    cannot be written."""
    for number in range(1, MOST_NUMBERS):
        path = wanted if number == 1 else f"{wanted}-{number}"
        try:
            os.makedirs(path)
            return path
        except FileExistsError:
            if os.path.isdir(path) and is_ours(path):
                with tempfile.TemporaryFile(dir=path):  # can it be written?
                    return path
    raise FileExistsError(f"{wanted} and {MOST_NUMBERS - 2} numbered ones are in use")


def leave_no_empty(path: str) -> None:
    """Removes a folder for results that got none."""
    try:
        os.rmdir(path)
    except OSError:
        pass
