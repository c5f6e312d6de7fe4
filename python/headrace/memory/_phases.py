"""Tracks the phase of training and the ends of iterations.

It uses hooks of modules and optimizers, and wraps the functions that start backward passes. No hook
may change the training or raise into it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from ._batch import Batch
from ._compiled import Uncompiled
from ._parts import Parts, plain

OUTSIDE, FORWARD, BACKWARD, OPTIMIZER = range(4)
PARAMETER, GRADIENT, OPTIMIZER_STATE = 1, 2, 3  # categories
# Raised by tensors without gradients or without a storage.
STRANGE = (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError)


class Phases:
    """Sets ``recorder.phase`` and ``recorder.part`` and marks iterations between begin() and
    end()."""

    def __init__(self, recorder: Any, batch_size: int | None) -> None:
        self._recorder = recorder
        self._hooks: list[Any] = []
        # Wrapped functions: owner, name, original, whether the owner itself (not a base class)
        # defined it, wrapper.
        self._before: list[tuple[Any, str, Callable[..., Any], bool, Callable[..., Any]]] = []
        self._iteration = 0
        self._is_stepping = False
        self._is_in_hook = False
        self._is_over = True
        self._has_steps = False  # an optimizer of torch's has stepped
        self._backwards = 0  # backward passes since the last update, without such a step
        self._name = 0
        self._thread = 0
        self._parts = Parts(recorder)
        self._uncompiled = Uncompiled()
        self._batch = Batch(recorder, batch_size)

    def begin(self) -> None:
        self._is_over = False
        self._thread = threading.get_ident()
        self._name = self._recorder.name("iteration")
        self._mark()
        self._hooks = [
            modules.register_module_forward_pre_hook(self._forward),
            modules.register_module_forward_hook(self._forwarded, always_call=True),
            optimizers.register_optimizer_step_pre_hook(self._step),
            optimizers.register_optimizer_step_post_hook(self._stepped),
        ]
        for name in ("backward", "grad"):
            self._wrap(torch.autograd, name, self._backward_of)
        for name in ("resize_", "share_memory_"):
            self._wrap(torch.UntypedStorage, name, self._moving_of)
        self._uncompiled.begin()

    def survey(self) -> None:
        """Records all existing tensors."""
        for thing in gc.get_objects():
            if not issubclass(type(thing), torch.Tensor):
                continue
            try:
                self._recorder.present(thing)
                # Reading attributes of a subclass would run foreign code.
                if type(thing) not in (torch.Tensor, torch.nn.Parameter):
                    continue
                if thing.is_leaf and thing.requires_grad and thing.grad is not None:
                    self._recorder.present(thing.grad)
                    self._recorder.describe(thing.grad, GRADIENT)
            except STRANGE:
                continue

    def end(self) -> None:
        """Removes the hooks. May be called from one of them, and more than once."""
        self._is_over = True
        # Within a step hook PyTorch is iterating over the step hooks: leave those; they do nothing.
        hooks, self._hooks = self._hooks, self._hooks[2:] if self._is_in_hook else []
        for hook in hooks[:2] if self._is_in_hook else hooks:
            hook.remove()
        for owner, name, function, was_own, wrapped in reversed(self._before):
            if owner.__dict__.get(name) is not wrapped:
                continue
            if was_own:
                setattr(owner, name, function)
            else:
                delattr(owner, name)
        self._before = []
        self._uncompiled.end()
        self._recorder.phase = OUTSIDE
        self._recorder.part = 0

    # -- forward --

    def _is_mine(self) -> bool:
        """Whether this thread is recorded. A device's backward pass runs in its own thread."""
        return not self._is_over and (
            threading.get_ident() == self._thread or self._recorder.phase == BACKWARD)

    def _forward(self, module: Any, args: Any) -> None:
        if not self._is_mine():
            return
        if not self._parts.is_running and self._ended_without_step():
            return
        # A recomputation within a backward pass counts as backward. Within a step, the optimizer's
        # closure runs the forward pass.
        if self._recorder.phase != BACKWARD:
            self._recorder.phase = FORWARD
        self._parts.enter(module)
        if not self._batch.is_sure and self._parts.in_model:
            self._batch.see(module, args)

    def _forwarded(self, module: Any, *_: Any) -> None:
        if self._is_mine():
            self._parts.leave(module)

    # -- steps --

    def _mark(self) -> None:
        self._recorder.mark(self._name, self._iteration)
        self._iteration += 1

    def _describe(self, tensor: Any, category: int, parameter: Any) -> None:
        """Records a tensor's category and, if `parameter` is one, the parameter's part."""
        likes = plain(parameter)
        like = likes[0] if likes else None
        if like is not None and not self._recorder.part_of(like):
            self._parts.of_missing()
        for inner in plain(tensor):
            self._recorder.describe(inner, category, like)

    def _iterated(self) -> None:
        self._batch.is_sure = True  # further iterations would not show more
        self._mark()
        self._recorder.iterated(self._iteration - 1)

    def _ended_without_step(self) -> bool:
        """Called before a pass begins: ends the iteration of a training without a torch optimizer
        if its parameters were updated. Returns whether the recording is over."""
        recorder = self._recorder
        if self._has_steps:
            return False
        if recorder.was_updated:
            if self._iteration == 1:
                recorder.fact("marks", "the training's own updates of parameters")
            recorder.awaits_update = False
            self._backwards = 0
            self._iterated()
        else:
            recorder.without_iterations(self._backwards)
        return self._is_over

    def _step(self, optimizer: Any, *_: Any) -> None:
        if self._is_over:
            return
        recorder = self._recorder
        self._has_steps = True
        recorder.awaits_update = False
        self._parts.outside()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._describe(parameter, PARAMETER, parameter)
                if parameter.grad is not None:
                    self._describe(parameter.grad, GRADIENT, parameter)
        recorder.phase = OPTIMIZER
        self._is_stepping = True

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if self._is_over:
            return
        self._recorder.phase = OUTSIDE
        for parameter, state in optimizer.state.items():
            # Some optimizers also keep state there that belongs to no parameter.
            for value in state.values() if isinstance(state, dict) else (state,):
                if isinstance(value, torch.Tensor):
                    self._describe(value, OPTIMIZER_STATE, parameter)
        self._is_stepping = False
        self._is_in_hook = True
        try:
            self._iterated()
        finally:
            self._is_in_hook = False

    # -- wrapped functions --

    def _wrap(self, owner: Any, name: str, wrapping: Callable[..., Any]) -> None:
        before = getattr(owner, name)
        wrapped = wrapping(before, name)
        self._before.append((owner, name, before, name in owner.__dict__, wrapped))
        setattr(owner, name, wrapped)

    def _backward_of(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if self._is_over or threading.get_ident() != self._thread:
                return function(*args, **kwargs)
            before = self._recorder.phase
            if before != BACKWARD and not self._is_stepping and self._ended_without_step():
                return function(*args, **kwargs)
            self._recorder.phase = BACKWARD
            try:
                return function(*args, **kwargs)
            finally:
                # The forward pass is over, too: the next operators may prepare the next input.
                if before == FORWARD and (name == "backward" or not kwargs.get("create_graph")):
                    before = OPTIMIZER if self._is_stepping else OUTSIDE
                self._recorder.phase = OUTSIDE if self._is_over else before
                self._backwards += 1
                if before == OUTSIDE and not self._has_steps and not self._recorder.awaits_update:
                    self._recorder.awaits_update = True

        wrapped.__wrapped__ = function  # type: ignore[attr-defined]
        wrapped.__doc__ = function.__doc__
        return wrapped

    def _moving_of(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def wrapped(storage: Any, *args: Any, **kwargs: Any) -> Any:
            result = function(storage, *args, **kwargs)
            if not self._is_over:
                self._recorder.moved(storage)
            return result

        return wrapped
