"""Which phase training is in, and where an iteration begins: by hooks of modules, of
optimizers, and around backward passes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

OUTSIDE, FORWARD, BACKWARD, OPTIMIZER = range(4)
PARAMETER, GRADIENT, OPTIMIZER_STATE = 1, 2, 3  # categories


def _storages() -> set[int]:
    """Addresses of the storages of all tensors that Python knows."""
    found = set()
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.Tensor):
            try:
                found.add(torch._C._storage_address(thing))
            except (RuntimeError, NotImplementedError):  # has none
                continue
    return found


class Phases:
    """Sets ``recorder.phase`` and marks iterations between begin() and end()."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self._hooks: list[Any] = []
        self._before: dict[str, Callable[..., Any]] = {}
        self._iteration = 0
        self._is_stepping = False
        self._name = 0

    def begin(self) -> None:
        self._recorder.surveyed(_storages())
        self._name = self._recorder.name("iteration")
        self._mark()
        self._hooks = [
            modules.register_module_forward_pre_hook(self._forward),
            optimizers.register_optimizer_step_pre_hook(self._step),
            optimizers.register_optimizer_step_post_hook(self._stepped),
        ]
        for name in ("backward", "grad"):
            self._before[name] = getattr(torch.autograd, name)
            setattr(torch.autograd, name, self._wrapped(self._before[name], name == "backward"))

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()
        for name, function in self._before.items():
            setattr(torch.autograd, name, function)
        self._hooks, self._before = [], {}
        self._recorder.phase = OUTSIDE

    def _mark(self) -> None:
        self._recorder.mark(self._name, self._iteration)
        self._iteration += 1

    def _forward(self, *_: Any) -> None:
        # Recomputed in a backward pass it is still that; in a step it is of its closure.
        if self._recorder.phase != BACKWARD:
            self._recorder.phase = FORWARD

    def _step(self, optimizer: Any, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._recorder.describe(parameter, PARAMETER)
                if parameter.grad is not None:
                    self._recorder.describe(parameter.grad, GRADIENT)
        self._recorder.phase = OPTIMIZER
        self._is_stepping = True

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        self._recorder.phase = OUTSIDE
        self._is_stepping = False
        for state in optimizer.state.values():
            # Some keep what is of no parameter there, too.
            for value in state.values() if isinstance(state, dict) else (state,):
                if isinstance(value, torch.Tensor):
                    self._recorder.describe(value, OPTIMIZER_STATE)
        self._mark()

    def _wrapped(self, function: Callable[..., Any], ends: bool) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            before = self._recorder.phase
            self._recorder.phase = BACKWARD
            try:
                return function(*args, **kwargs)
            finally:
                # The forward pass is over, too: what comes next may be another one's input.
                if ends and before == FORWARD:
                    before = OPTIMIZER if self._is_stepping else OUTSIDE
                self._recorder.phase = before

        return wrapped
