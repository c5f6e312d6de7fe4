"""Records a trace of one process of a script that ``headrace replay record`` runs.

An iteration ends with each step of the first optimizer that steps. The profiler warms up in the last
two iterations before the recorded ones, so that its own start is not recorded. Calls of modules are
marked as annotations "module: NAME", by which what-ifs select layers.
"""

from __future__ import annotations

import atexit
import json
import os
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from .._launch import hello, ranks

WARMUP = 2

_watched: Watched | None = None


def begin(folder: str) -> None:
    """Prepares the recording of this process, unless that was done already."""
    global _watched
    if _watched is None:
        with open(os.path.join(folder, "settings.json"), encoding="utf-8") as file:
            _watched = Watched(folder, json.load(file))


class Watched:
    """The recording of this process, and its report to the launcher."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        self._folder, self._pid = folder, os.getpid()
        self._rank = ranks.rank()
        self._path = f"{settings['out']}.{self._pid}.json.gz"
        self._skip = settings["skip"]
        self._iterations = settings["iterations"]
        self._shapes = settings["shapes"]
        self._modules = _Modules() if settings["modules"] else None
        self._optimizer: Any = None
        self._steps = 0
        self._profiler: Any = None
        self._hook = optimizers.register_optimizer_step_post_hook(self._stepped)
        atexit.register(self._end)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if os.getpid() != self._pid:  # a forked child
            return
        if self._optimizer is None:
            self._optimizer = optimizer
        if optimizer is not self._optimizer:
            return
        self._steps += 1
        first = max(self._skip - WARMUP, 0)
        if self._profiler is None and self._steps > first:
            self._start(min(WARMUP, self._skip))
        elif self._profiler is not None:
            self._profiler.step()

    def _start(self, warmup: int) -> None:
        self._profiler = torch.profiler.profile(
            schedule=torch.profiler.schedule(
                wait=0, warmup=warmup, active=self._iterations, repeat=1
            ),
            on_trace_ready=self._write,
            record_shapes=self._shapes,
        )
        self._profiler.start()
        if self._modules is not None:
            self._modules.start()

    def _write(self, profiler: Any) -> None:
        """Called when the last iteration is recorded."""
        self._hook.remove()
        if self._modules is not None:
            self._modules.stop()
        profiler.export_chrome_trace(self._path)
        state = {"path": self._path, "rank": self._rank, "pid": self._pid}
        hello.report(self._folder, "recorded", json.dumps(state))

    def _end(self) -> None:
        """At the end of the process: writes what there is, if the script made fewer iterations."""
        if os.getpid() != self._pid:
            return
        if self._profiler is not None and not os.path.exists(self._path):
            self._profiler.stop()
        if self._steps:
            hello.report(self._folder, "stepped", str(self._steps))


class _Modules:
    """Marks each call of a module with its name in the model."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._open: list[tuple[Any, Any]] = []
        self._hooks: list[Any] = []

    def start(self) -> None:
        self._hooks = [
            modules.register_module_forward_pre_hook(self._enter),
            modules.register_module_forward_hook(self._leave, always_call=True),
        ]

    def stop(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _enter(self, module: Any, _inputs: Any) -> None:
        if torch.jit.is_tracing() or torch.compiler.is_compiling():
            return
        if id(module) not in self._names:
            prefix = "" if not self._open else self._names.get(id(self._open[-1][0]), "")
            for name, child in module.named_modules():
                whole = ".".join(part for part in (prefix, name) if part)
                self._names.setdefault(id(child), whole or type(child).__name__)
        mark = torch.profiler.record_function(f"module: {self._names[id(module)]}")
        mark.__enter__()
        self._open.append((module, mark))

    def _leave(self, module: Any, _inputs: Any, _output: Any) -> None:
        # An exception may have left inner modules open.
        while self._open and any(module is one for one, _ in self._open):
            one, mark = self._open.pop()
            mark.__exit__(None, None, None)
            if one is module:
                break
