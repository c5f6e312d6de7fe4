"""Loads the probe when a script has imported a module with loaders.

Every Python process of a measuring run loads this file by its path at startup. Until a module with
loaders is imported, this file imports only modules that Python itself has already imported
(:mod:`headrace._launch.imports`). If the run is guarded (:mod:`headrace.stalls.guard`) but this
process is not, it ends before the script starts.

It reports to the launcher through :mod:`headrace._launch.hello`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from headrace._launch.hello import report
from headrace._launch.imports import is_launcher, watch

LOADER = "torch.utils.data.dataloader"
OPTIMIZER = "torch.optim.optimizer"  # whose steps are counted
PREFIX = "nvidia.dali.plugin."
EXIT_INTERNAL = 70

_folder = ""


def install() -> None:
    """Watches for the import of a loader in this process. Called once. A launcher of ranks
    (torchrun) is not measured: it only reports that it runs."""
    global _folder
    _folder = os.environ["HEADRACE_STALLS_DIR"]
    if not os.path.exists(os.path.join(_folder, "settings.json")):
        return  # a child process that outlived the run
    if "HEADRACE_GUARD" in os.environ and not _is_guarded():
        _refuse()
    launcher = is_launcher(getattr(sys, "orig_argv", sys.argv))
    report(_folder, "hello", "launcher" if launcher else "script")
    if launcher:
        return
    watch(_wanted, _attach)


def _is_guarded() -> bool:
    with open("/proc/self/maps", "rb") as file:
        return b"libheadrace-guard" in file.read()


def _refuse() -> None:
    """Ends this process, since it could change the script's files unguarded."""
    import json

    text = f"{sys.executable} cannot be guarded: its loader did not preload libheadrace-guard.so"
    remedy = "with --unguarded the script is measured, and really changes its files"
    with open(os.path.join(_folder, f"problem-guard-{os.getpid()}.json"), "w") as file:
        json.dump({"code": "unguarded", "text": text, "remedy": remedy}, file)
    with open(os.path.join(_folder, f"gave-up-{os.getpid()}"), "w"):
        pass
    os._exit(EXIT_INTERNAL)


def _wanted(name: str) -> bool:
    return name in (LOADER, OPTIMIZER) or name.startswith(PREFIX)


def _attach(name: str, module: Any) -> None:
    """Passes a module to the probe. If that fails, the script continues unmeasured."""
    try:
        from headrace.stalls import probe

        probe.attach(name, module)
        if name != OPTIMIZER:
            report(_folder, "attached", name)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        report(_folder, "failed", text)
        print(f"headrace stalls: the probe does not work here: {text}", file=sys.stderr)
