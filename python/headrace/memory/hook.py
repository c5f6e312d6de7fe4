"""Finds the moment when a script has torch, and begins a recording there.

Loaded by its path at the start of every Python of a recorded run, so it imports nothing but
what Python has imported itself (:mod:`headrace._launch.imports`).

What it leaves in the run's folder: ``hello-PID``, one JSON object in a line for each thing
that happened: ``{"hello": ...}``, ``{"failed": text}``; what is recorded is told by
:mod:`headrace.memory.watched`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from headrace._launch.imports import is_launcher, watch

VARIABLE = "HEADRACE_MEMORY_DIR"


def install() -> None:
    """Begins in this process. Once; a launcher of ranks only says hello."""
    folder = os.environ[VARIABLE]
    if not os.path.exists(os.path.join(folder, "settings.json")):
        return  # a child that was there longer than the run
    launcher = is_launcher(getattr(sys, "orig_argv", sys.argv))
    tell(folder, "hello", "launcher" if launcher else "script")
    if not launcher:
        watch(lambda name: name == "torch", lambda _name, _module: _begin(folder))


def tell(folder: str, what: str, text: str) -> None:
    """A line for the launcher."""
    import json

    try:
        with open(os.path.join(folder, f"hello-{os.getpid()}"), "a", encoding="utf-8") as file:
            file.write(json.dumps({what: text}) + "\n")
    except OSError:  # the run is over and its folder gone
        pass


def _begin(folder: str) -> None:
    """Begins the recording. The script goes on whatever happens."""
    try:
        from headrace.memory import watched

        watched.begin(folder)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        tell(folder, "failed", text)
        print(f"headrace memory: the recording does not work here: {text}", file=sys.stderr)
