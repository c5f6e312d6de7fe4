"""Records one process of a script that ``headrace memory record`` runs.

The recording starts when torch has been imported. It ends with the process or after the requested
number of iterations. Two files in the run's folder inform the launcher. ``record-NAME.json``,
replaced at each change, holds the record's path, the rank, and whether the process trained (ran a
backward pass or an optimizer step). ``iterations-NAME`` holds the number of recorded iterations
(8 bytes). It is written through a mapping, so the number is known even if the process is killed.
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
    """Starts the recording of this process, unless it has started already."""
    global _watched
    if _watched is None:
        with open(os.path.join(folder, "settings.json"), encoding="utf-8") as file:
            _watched = Watched(folder, json.load(file))
        _watched.begin()


def place_of(out: str) -> str:
    """Returns the path of this process' record. A process that calls exec records twice, so a
    number is added if the path is taken."""
    path, number = f"{out}.{os.getpid()}", 1
    while os.path.lexists(path):
        number += 1
        path = f"{out}.{os.getpid()}-{number}"
    return path


class Watched:
    """The recording of this process and its reports to the launcher."""

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
        if os.getpid() != self._pid:  # a forked child
            return
        self._recording.close()
        # Loaders start new workers in each epoch: remove their records, or they pile up.
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
        # Fails if the run is over and its folder removed, or if the disk is full.
        with contextlib.suppress(OSError):
            write_whole(self._file, json.dumps(self._state))

    def _is_child(self) -> bool:
        """Whether this process is a forked child, which is not recorded. Reports it once."""
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
    except (OSError, ValueError):  # removed meanwhile, or damaged
        return False


def _mapped(path: str) -> mmap.mmap:
    """Creates a file of 8 zero bytes and maps it."""
    with open(path, "w+b") as file:
        file.write(bytes(8))
        file.flush()
        return mmap.mmap(file.fileno(), 8)
