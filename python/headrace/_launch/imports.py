"""Waits for the import of certain modules, and recognises programs that only start others.

Loaded by its path at the start of every Python of a watched run, before the package is (which
it may never be there), so it imports nothing but what Python has imported itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

# Programs that start the training processes and do not train.
LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed", "horovodrun", "composer"})
LAUNCHER_MODULES = frozenset(
    {
        "torch.distributed.run",
        "torch.distributed.launch",
        "accelerate.commands.launch",
        "deepspeed.launcher.runner",
        "deepspeed.launcher.launch",
    }
)


def is_launcher(words: list[str]) -> bool:
    """Returns whether a Python command line is that of a program that starts ranks."""
    takes_value = ("-W", "-X", "--check-hash-based-pycs")
    at = 1
    while at < len(words) and words[at].startswith("-"):
        short = not words[at].startswith("--")
        if short and words[at].endswith("m"):
            return at + 1 < len(words) and words[at + 1] in LAUNCHER_MODULES
        if short and words[at].endswith("c"):
            return False
        at += 2 if words[at] in takes_value else 1
    return at < len(words) and os.path.basename(words[at]) in LAUNCHERS


def watch(wanted: Callable[[str], bool], attach: Callable[[str, Any], None]) -> None:
    """Calls ``attach(name, module)`` for each wanted module after its import, or at once if it is
    already imported."""
    sys.meta_path.insert(0, _Finder(wanted, attach))
    for name in [name for name in sys.modules if wanted(name)]:
        attach(name, sys.modules[name])


class _Finder:
    """Finds no modules itself, but wraps the loaders that other finders return."""

    def __init__(self, wanted: Callable[[str], bool], attach: Callable[[str, Any], None]) -> None:
        self._wanted, self._attach = wanted, attach

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not self._wanted(name):
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if isinstance(finder, _Finder) or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self._attach)
                return spec
        return None


class _Loader:
    """Wraps a module's own loader and calls ``attach`` after the import."""

    def __init__(self, own: Any, attach: Callable[[str, Any], None]) -> None:
        self._own, self._attach = own, attach

    def create_module(self, spec: Any) -> Any:
        return self._own.create_module(spec)

    def exec_module(self, module: Any) -> None:
        # Restore the module's own loader, to leave no trace of the wrapper.
        module.__loader__ = module.__spec__.loader = self._own
        self._own.exec_module(module)
        self._attach(module.__name__, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)
