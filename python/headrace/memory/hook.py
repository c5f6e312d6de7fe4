"""Begins a recording once a script has imported torch.

Loaded by its path at the start of every Python of a recorded run, so it imports nothing but
what Python has imported itself (:mod:`headrace._launch.imports`).

It reports to the launcher by :mod:`headrace._launch.hello`; :mod:`headrace.memory.watched` reports
what is recorded.
"""

from __future__ import annotations

import os
import sys

from headrace._launch.hello import report
from headrace._launch.imports import is_launcher, watch

VARIABLE = "HEADRACE_MEMORY_DIR"


def install() -> None:
    """Begins in this process. Once; a launcher of ranks only says hello."""
    folder = os.environ[VARIABLE]
    if not os.path.exists(os.path.join(folder, "settings.json")):
        return  # a child that was there longer than the run
    launcher = is_launcher(getattr(sys, "orig_argv", sys.argv))
    report(folder, "hello", "launcher" if launcher else "script")
    if not launcher:
        watch(lambda name: name == "torch", lambda _name, _module: _begin(folder))


def _begin(folder: str) -> None:
    """Begins the recording. The script goes on whatever happens."""
    try:
        from headrace.memory import watched

        watched.begin(folder)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        report(folder, "failed", text)
        print(f"headrace memory: the recording does not work here: {text}", file=sys.stderr)
