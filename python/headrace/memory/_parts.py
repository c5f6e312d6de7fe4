"""Follows which part of the model runs, as paths of modules ("layer1.0.conv2").

A model is walked once, at its first forward call; after that each call costs a dictionary lookup.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

PARAMETER = 1  # category
WALKS_MOST = 8  # for parameters that came later (lazy modules)


def plain(tensor: Any) -> tuple[Any, ...]:
    """The tensors that one is made of: itself, or those of a distributed one, a pair, ..."""
    kind = type(tensor)
    if kind is torch.nn.Parameter or kind is torch.Tensor:
        return (tensor,)
    flatten = getattr(kind, "__tensor_flatten__", None)
    if flatten is None:
        return (tensor,) if isinstance(tensor, torch.Tensor) else ()
    try:
        return tuple(part for name in flatten(tensor)[0] for part in plain(getattr(tensor, name)))
    except Exception:  # code that is not ours
        return ()


class Parts:
    """Keeps ``recorder.part`` at the id of the path of the module that runs."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self._ids: dict[int, tuple[Any, int, str]] = {}  # by id(module): reference, name, path
        self._running: list[tuple[int, int, str]] = []  # id(module), part before, path
        self._models: list[Any] = []  # references
        self._prefixes: dict[int, str] = {}  # by id(model)
        self._walks = 0
        self.in_model = False  # what runs belongs to a module that has parameters

    @property
    def is_running(self) -> bool:
        """Whether a module runs."""
        return bool(self._running)

    def enter(self, module: Any) -> None:
        known = self._ids.get(id(module))
        if known is None or known[0]() is not module:
            known = self._met(module)
        if not self._running:
            self.in_model = id(module) in self._prefixes
        recorder = self._recorder
        self._running.append((id(module), recorder.part, known[2]))
        recorder.part = known[1]

    def leave(self, module: Any) -> None:
        # Those that an exception ended beyond our sight go with it.
        mine = id(module)
        for at in range(len(self._running) - 1, -1, -1):
            if self._running[at][0] == mine:
                self._recorder.part = self._running[at][1]
                del self._running[at:]
                return

    def outside(self) -> None:
        """No module runs: what is left was ended by an exception."""
        self._running.clear()
        self._recorder.part = 0

    def of_missing(self) -> None:
        """A parameter is of no part yet: models are walked again, now and then."""
        if self._walks < WALKS_MOST:
            self._walks += 1
            for reference in self._models:
                model = reference()
                if model is not None:
                    self._walk(model)

    # -- names --

    def _note(self, module: Any, path: str) -> tuple[Any, int, str]:
        key = id(module)
        gone = weakref.ref(module, lambda _: self._ids.pop(key, None))
        known = (gone, self._recorder.name(path), path)
        self._ids[key] = known
        return known

    def _met(self, module: Any) -> tuple[Any, int, str]:
        name = type(module).__name__
        if self._running:  # it is of a model, but was not there when that was walked
            parent, path = self._ids.get(self._running[-1][0]), self._running[-1][2]
            owner = parent[0]() if parent else None
            for child, value in owner._modules.items() if owner is not None else ():
                if value is module:
                    name = child
            return self._note(module, f"{path}.{name}")
        has_parameters = any(True for _ in module.parameters())
        if not has_parameters:  # a loss
            return self._note(module, name)
        self._add_model(module)
        return self._ids[id(module)]

    def _add_model(self, model: Any) -> None:
        name = type(model).__name__
        self._models = [r for r in self._models if r() is not None]
        inside = {id(m) for m in model.modules()}
        # Those that were called alone before and are part of this one are no models.
        self._models = [r for r in self._models if id(r()) not in inside]
        others = {self._prefixes.get(id(r())) or type(r()).__name__ for r in self._models}
        prefix, number = name, 1
        while prefix in others:
            number += 1
            prefix = f"{name}#{number}"
        if not self._models:
            prefix = ""
        elif len(self._models) == 1 and not self._prefixes.get(id(self._models[0]())):
            # There are two from now on: the first's paths begin with its name, too.
            first = self._models[0]()
            self._prefixes[id(first)] = type(first).__name__
            self._walk(first)
        self._models.append(weakref.ref(model))
        self._prefixes[id(model)] = prefix
        self._walk(model)

    def _walk(self, model: Any) -> None:
        prefix = self._prefixes[id(model)]
        described: set[int] = set()
        for path, module in model.named_modules():
            path = f"{path}.".replace("_orig_mod.", "").rstrip(".")  # torch.compile's
            full = f"{prefix}.{path}" if prefix and path else prefix or path
            part = self._note(module, full or type(model).__name__)[1]
            own = (*module._parameters.values(), *module._buffers.values())
            for tensor in own:
                if id(tensor) in described:
                    continue
                described.add(id(tensor))
                for inner in plain(tensor):
                    self._recorder.describe(inner, PARAMETER, None, part)
