"""Finds the moment when a script has loaders, and what files it writes.

Loaded by its path at the start of every Python of a measuring run, so it imports nothing
but what Python has imported itself: it waits for the modules that have loaders
(:mod:`headrace._launch.imports`), and only then imports the probe. An audit hook collects the
paths that are opened for writing.

What it leaves in the run's folder: ``hello-PID``, one JSON object in a line for each thing
that happened: ``{"hello": ...}``, ``{"attached": module}``, ``{"failed": text}``.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from headrace._launch.imports import is_launcher, watch

LOADERS = frozenset({"torch.utils.data.dataloader", "headrace.torch"})
OPTIMIZER = "torch.optim.optimizer"  # whose steps are counted
PREFIX = "nvidia.dali.plugin."
MOST_PATHS = 1000

_WRITES = os.O_WRONLY | os.O_RDWR

_folder = ""
_written: dict[str, None] = {}  # in the order they were opened


def install() -> None:
    """Begins in this process. Once; a launcher of ranks only says hello."""
    global _folder
    _folder = os.environ["HEADRACE_STALLS_DIR"]
    if not os.path.exists(os.path.join(_folder, "settings.json")):
        return  # a child that was there longer than the run
    launcher = is_launcher(getattr(sys, "orig_argv", sys.argv))
    _tell("hello", "launcher" if launcher else "script")
    if launcher:
        return
    watch(_wanted, _attach)
    sys.addaudithook(_audit)


def files_written() -> list[str]:
    """Paths that this process opened for writing, or renamed a file to: files only, the
    oldest 1,000."""
    return [path for path in list(_written) if _is_file(path)]  # other threads go on writing


def _is_file(path: str) -> bool:
    import stat
    import tempfile

    try:
        mode = os.stat(path).st_mode
    except OSError:
        # Removed since: it was written all the same, unless it was to be removed.
        return not path.startswith(tempfile.gettempdir() + "/")
    return stat.S_ISREG(mode)


def _tell(what: str, text: str) -> None:
    import json

    line = json.dumps({what: text, "argv": getattr(sys, "orig_argv", sys.argv)[:64]})
    try:
        with open(os.path.join(_folder, f"hello-{os.getpid()}"), "a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError:  # the run is over and its folder gone
        pass


def _wanted(name: str) -> bool:
    return name in LOADERS or name == OPTIMIZER or name.startswith(PREFIX)


def _attach(name: str, module: Any) -> None:
    """Hands a module to the probe. The script goes on whatever happens."""
    try:
        from headrace.stalls import probe

        probe.attach(name, module)
        if name != OPTIMIZER:
            _tell("attached", name)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        _tell("failed", text)
        print(f"headrace stalls: the probe does not work here: {text}", file=sys.stderr)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event == "open":
        path, mode, flags = args
        # os.open() has no mode; open() has flags of its own that say the same.
        if not (flags & _WRITES if isinstance(flags, int) else mode and mode[0] != "r"):
            return
    elif event == "os.rename":
        path = args[1]
    else:
        return
    if len(_written) < MOST_PATHS:
        try:
            _note(path)
        except (TypeError, ValueError, OSError):  # no path, or none that can be told
            pass


def _note(path: Any) -> None:
    if isinstance(path, int):  # a descriptor: whoever opened it was noted
        return
    path = os.path.abspath(os.fsdecode(path))
    if path.startswith(("/dev/", "/proc/", _folder + "/")) or "/__pycache__/" in path:
        return
    _written[path] = None
