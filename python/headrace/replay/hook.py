"""Starts a recording when a script has imported torch.

Every Python process of a recorded run loads this file by its path at startup, so the file imports
only modules that Python itself has already imported (:mod:`headrace._launch.imports`).
"""

from __future__ import annotations

import os
import sys

from headrace._launch.hello import report
from headrace._launch.imports import is_launcher, watch

VARIABLE = "HEADRACE_REPLAY_DIR"


def install() -> None:
    """Watches for the import of torch in this process. Called once. A launcher of ranks (torchrun)
    is not recorded: it only reports that it runs."""
    folder = os.environ[VARIABLE]
    if not os.path.exists(os.path.join(folder, "settings.json")):
        return  # a child process that outlived the run
    launcher = is_launcher(getattr(sys, "orig_argv", sys.argv))
    report(folder, "hello", "launcher" if launcher else "script")
    if not launcher:
        watch(lambda name: name == "torch", lambda _name, _module: _begin(folder))


def _begin(folder: str) -> None:
    """Starts the recording. If that fails, the script continues unrecorded."""
    try:
        from headrace.replay import watched

        watched.begin(folder)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        report(folder, "failed", text)
        print(f"headrace replay: the recording does not work here: {text}", file=sys.stderr)
