"""Starts a recording in a process that has imported torch.

The hook of each verb that records calls it at the start of every Python process of a recorded run,
so it imports only modules that Python itself has already imported, as :mod:`headrace._launch.imports`.
"""

from __future__ import annotations

import os
import sys

from headrace._launch.hello import report
from headrace._launch.imports import is_launcher, watch


def record_torch(folder: str, module: str, verb: str) -> None:
    """Watches for the import of torch in this process, and then calls ``begin(folder)`` of the
    module. Called once. A launcher of ranks (torchrun) is not recorded: it only reports that it
    runs. ``verb`` begins the messages."""
    if not os.path.exists(os.path.join(folder, "settings.json")):
        return  # a child process that outlived the run
    launcher = is_launcher(getattr(sys, "orig_argv", sys.argv))
    report(folder, "hello", "launcher" if launcher else "script")
    if not launcher:
        watch(lambda name: name == "torch", lambda _name, _module: _begin(folder, module, verb))


def _begin(folder: str, module: str, verb: str) -> None:
    """Starts the recording. If that fails, the script continues unrecorded."""
    try:
        import importlib

        importlib.import_module(module).begin(folder)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        report(folder, "failed", text)
        print(f"{verb}: the recording does not work here: {text}", file=sys.stderr)
