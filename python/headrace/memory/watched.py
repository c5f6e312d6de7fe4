"""The recording of one process of a script that ``headrace memory record`` started.

It begins when torch has been imported and ends with the process, or after so many iterations.
What the launcher needs to know is in the run's folder: ``record-NAME.json``, replaced at each
change, says where the record is, of which rank, and whether the process trained (a backward
pass ran, or an optimizer stepped); ``iterations-NAME`` is how many are recorded, 8 bytes that are
mapped, so it is known however the process ends.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import mmap
import os
import struct
import time
from typing import Any

import torch
from torch.optim import optimizer as optimizers

from .._launch import hello, ranks
from .._launch.folders import write_whole
from ._mode import Recording

_watched: Watched | None = None


def begin(folder: str) -> None:
    """Once in a process."""
    global _watched
    if _watched is None:
        with open(os.path.join(folder, "settings.json"), encoding="utf-8") as file:
            _watched = Watched(folder, json.load(file))
        _watched.begin()


def place_of(out: str) -> str:
    """Where this process records: a process that became another one records twice."""
    path, number = f"{out}.{os.getpid()}", 1
    while os.path.lexists(path):
        number += 1
        path = f"{out}.{os.getpid()}-{number}"
    return path


class Watched:
    """This process: its recording, and what the launcher learns of it."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        self._folder = folder
        self._pid = os.getpid()
        path = place_of(settings["out"])
        self._state: dict[str, Any] = {
            "path": path,
            "name": os.path.basename(path),
            "began_s": time.time(),
            "rank": ranks.rank(),
            "trained": False,
        }
        self._file = os.path.join(folder, f"record-{self._state['name']}.json")
        self._count = _mapped(os.path.join(folder, f"iterations-{self._state['name']}"))
        self._reported_fork = False
        self._recording = Recording(
            path,
            settings["limit_bytes"],
            iterations=settings["iterations"],
            stacks=settings["stacks"],
            batch_size=settings["batch_size"],
        )
        if self._state["rank"] is not None:
            self._recording.fact("rank", str(self._state["rank"]))

    def begin(self) -> None:
        self._write_state()
        for name in ("backward", "grad"):
            setattr(torch.autograd, name, self._wrapped(getattr(torch.autograd, name)))
        optimizers.register_optimizer_step_post_hook(self._stepped)
        self._recording.on_iteration = self._iterated
        atexit.register(self._end)
        self._recording.__enter__()

    def _wrapped(self, function: Any) -> Any:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not self._state["trained"]:
                self._trains()
            return function(*args, **kwargs)

        return wrapped

    def _trains(self) -> None:
        if not self._is_child():
            self._state["trained"] = True
            self._write_state()

    def _stepped(self, *_: Any) -> None:
        if not self._is_child() and not self._state["trained"]:
            self._trains()

    def _iterated(self, count: int) -> None:
        struct.pack_into("<Q", self._count, 0, count)

    def _end(self) -> None:
        if os.getpid() != self._pid:  # forked, and need not have trained
            return
        self._recording.close()
        # Loaders start workers epoch after epoch: their records would pile up.
        if not self._state["trained"] and self._others_train():
            for path in (self._state["path"], self._file):
                try:
                    os.unlink(path)
                except OSError:
                    pass

    def _others_train(self) -> bool:
        try:
            names = [name for name in os.listdir(self._folder) if name.startswith("record-")]
        except OSError:  # the run is over
            return False
        return any(_says_trained(os.path.join(self._folder, name)) for name in names)

    def _write_state(self) -> None:
        # The run may be over and its folder gone, or the disk full.
        with contextlib.suppress(OSError):
            write_whole(self._file, json.dumps(self._state))

    def _is_child(self) -> bool:
        """Forked: the recording is the parent's, which has ended it here."""
        if os.getpid() == self._pid:
            return False
        if not self._reported_fork:
            self._reported_fork = True
            hello.report(self._folder, "forked", str(self._pid))
        return True


def _says_trained(path: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            return bool(json.load(file)["trained"])
    except (OSError, ValueError):  # it is being written
        return False


def _mapped(path: str) -> mmap.mmap:
    """A new file of 8 bytes."""
    with open(path, "w+b") as file:
        file.write(bytes(8))
        file.flush()
        return mmap.mmap(file.fileno(), 8)
