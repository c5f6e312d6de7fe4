"""Tracks which part of the model is running, as the module's path ("layer1.0.conv2").

The modules of a model are listed at its first forward call. After that, each call of a module costs
one dictionary lookup.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

PARAMETER = 1  # category
WALKS_MOST = 8  # how often models are listed again for parameters added later (lazy modules)


def plain(tensor: Any) -> tuple[Any, ...]:
    """Returns the plain tensors of a tensor: the tensor itself, or the parts of a subclass that is
    composed of others (DTensor and the like)."""
    kind = type(tensor)
    if kind is torch.nn.Parameter or kind is torch.Tensor:
        return (tensor,)
    flatten = getattr(kind, "__tensor_flatten__", None)
    if flatten is None:
        return (tensor,) if isinstance(tensor, torch.Tensor) else ()
    try:
        return tuple(part for name in flatten(tensor)[0] for part in plain(getattr(tensor, name)))
    except Exception:  # __tensor_flatten__ is foreign code
        return ()


class Parts:
    """Sets ``recorder.part`` to the name id of the running module's path."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self._ids: dict[int, tuple[Any, int, str]] = {}  # by id(module): reference, name, path
        self._running: list[tuple[int, int, str]] = []  # id(module), caller's part, path
        self._models: list[Any] = []  # weak references
        self._prefixes: dict[int, str] = {}  # by id(model)
        self._walks = 0
        self.in_model = False  # the outermost running module has parameters

    @property
    def is_running(self) -> bool:
        """Whether any module is running."""
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
        # Modules called by this one that raised without calling our hook are removed, too.
        mine = id(module)
        for at in range(len(self._running) - 1, -1, -1):
            if self._running[at][0] == mine:
                self._recorder.part = self._running[at][1]
                del self._running[at:]
                return

    def outside(self) -> None:
        """Resets the stack of running modules; an exception may have left some on it."""
        self._running.clear()
        self._recorder.part = 0

    def of_missing(self) -> None:
        """Lists the models' parameters again, since one of them belongs to no part yet."""
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
        if self._running:  # a submodule that was added after its model was listed
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
        # A module that was called on its own before and belongs to this model is not a model.
        self._models = [r for r in self._models if id(r()) not in inside]
        others = {self._prefixes.get(id(r())) or type(r()).__name__ for r in self._models}
        prefix, number = name, 1
        while prefix in others:
            number += 1
            prefix = f"{name}#{number}"
        if not self._models:
            prefix = ""
        elif len(self._models) == 1 and not self._prefixes.get(id(self._models[0]())):
            # This is the second model: from now on the first one's paths begin with its name, too.
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
            path = f"{path}.".replace("_orig_mod.", "").rstrip(".")  # added by torch.compile
            full = f"{prefix}.{path}" if prefix and path else prefix or path
            part = self._note(module, full or type(model).__name__)[1]
            own = (*module._parameters.values(), *module._buffers.values())
            for tensor in own:
                if id(tensor) in described:
                    continue
                described.add(id(tensor))
                for inner in plain(tensor):
                    self._recorder.describe(inner, PARAMETER, None, part)
