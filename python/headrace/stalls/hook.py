"""Loads the probe once a script has imported a module with loaders.

Loaded by its path at the start of every Python of a measuring run, so it imports nothing but what
Python has imported itself until such a module comes (:mod:`headrace._launch.imports`). Where the
run is guarded (:mod:`headrace.stalls.guard`) and this Python is not, it ends before the script
begins.

It reports to the launcher by :mod:`headrace._launch.hello`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from headrace._launch.hello import report
from headrace._launch.imports import is_launcher, watch

LOADERS = frozenset({"torch.utils.data.dataloader", "headrace.torch"})
OPTIMIZER = "torch.optim.optimizer"  # whose steps are counted
PREFIX = "nvidia.dali.plugin."
EXIT_INTERNAL = 70

_folder = ""


def install() -> None:
    """Begins in this process. Once; a launcher of ranks only says hello."""
    global _folder
    _folder = os.environ["HEADRACE_STALLS_DIR"]
    if not os.path.exists(os.path.join(_folder, "settings.json")):
        return  # a child that was there longer than the run
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
    """Ends this process: it would change the script's files."""
    import json

    text = f"{sys.executable} cannot be guarded: its loader did not preload libheadrace-guard.so"
    remedy = "with --unguarded the script is measured, and changes its files"
    with open(os.path.join(_folder, f"problem-guard-{os.getpid()}.json"), "w") as file:
        json.dump({"code": "unguarded", "text": text, "remedy": remedy}, file)
    with open(os.path.join(_folder, f"gave-up-{os.getpid()}"), "w"):
        pass
    os._exit(EXIT_INTERNAL)


def _wanted(name: str) -> bool:
    return name in LOADERS or name == OPTIMIZER or name.startswith(PREFIX)


def _attach(name: str, module: Any) -> None:
    """Hands a module to the probe. The script goes on whatever happens."""
    try:
        from headrace.stalls import probe

        probe.attach(name, module)
        if name != OPTIMIZER:
            report(_folder, "attached", name)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        report(_folder, "failed", text)
        print(f"headrace stalls: the probe does not work here: {text}", file=sys.stderr)
