"""Wraps the loaders of the modules that a measured script imports.

``headrace.stalls.hook`` calls :func:`attach` when a module with loaders is imported. From then on
:mod:`headrace.stalls.loops` observes the iterators of its loaders and the optimizers' steps.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from . import work
from .loops import Probe, ProbedIterator

_probe: Probe | None = None


def the_probe() -> Probe:
    global _probe
    # A child forked from a process that trains is not a rank of the training.
    forked = _probe is not None and _probe.pid != os.getpid()
    if _probe is None or (forked and not _probe.optimizer_steps):
        _probe = Probe()
    return _probe


def _is_worker() -> bool:
    """Whether this process was started by multiprocessing to load data, not to train."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return getattr(worker, "_worker_info", None) is not None


_hooked = False


def hook_training() -> None:
    """Counts the optimizer steps and backward passes of this process."""
    global _hooked
    if _hooked:
        return
    _hooked = True
    import torch.autograd
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def stepped(optimizer: Any, *_: Any) -> None:
        if not _is_worker():
            the_probe().stepped(optimizer)

    register_optimizer_step_post_hook(stepped)

    def counted(original: Any) -> Any:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not _is_worker():
                the_probe().went_backward()
            return original(*args, **kwargs)

        return call

    for name in ("backward", "grad"):
        setattr(torch.autograd, name, counted(getattr(torch.autograd, name)))


def attach(name: str, module: Any) -> None:
    """Wraps the loaders of a module that has just been imported."""
    if name == "torch.optim.optimizer":
        hook_training()
        return
    if name == "torch.utils.data.dataloader":
        import torch.utils.data._utils.fetch as fetch

        work.wrap_fetchers(fetch)
        _wrap_class(module.DataLoader)
        _wrap_subclasses(module.DataLoader)
    elif name.startswith("nvidia.dali.plugin"):
        for kind in list(vars(module).values()):
            if isinstance(kind, type) and "__next__" in dir(kind) and "__iter__" in vars(kind):
                _wrap_class(kind)


def _wrap(loader: Any, kind: type, begin: Callable[[Any], Any]) -> Iterator[Any]:
    hook_training()
    return the_probe().wrap(loader, kind, begin)


def _wrap_class(kind: type) -> None:
    original = kind.__iter__  # type: ignore[attr-defined]
    if getattr(original, "_headrace", False):
        return

    @functools.wraps(original)
    def begin(self: Any) -> Any:
        if getattr(self, "_headrace_measured", False) or _is_worker():
            return original(self)
        return _wrap(self, kind, original)

    begin._headrace = True  # type: ignore[attr-defined]
    kind.__iter__ = begin  # type: ignore[attr-defined]


_followed: set[type] = set()


def _wrap_subclasses(base: type) -> None:
    """Wraps existing and future subclasses that define their own ``__iter__``."""
    kinds: list[type] = base.__subclasses__()
    for kind in kinds:
        if "__iter__" in vars(kind):
            _wrap_class(kind)
        _wrap_subclasses(kind)
    if base in _followed:
        return
    _followed.add(base)
    original = base.__dict__.get("__init_subclass__")

    def init_subclass(cls: Any, **kwargs: Any) -> None:
        if original is not None:
            original.__get__(None, cls)(**kwargs)
        else:
            super(base, cls).__init_subclass__(**kwargs)  # type: ignore[arg-type]
        if "__iter__" in vars(cls):
            _wrap_class(cls)

    base.__init_subclass__ = classmethod(init_subclass)  # type: ignore[arg-type,assignment]


class _Watched:
    """The iterable that :func:`headrace.watch` returns in a measuring run."""

    def __init__(self, loader: Any, batch_size: int | None) -> None:
        self._loader, self._batch_size = loader, batch_size

    def __iter__(self) -> Iterator[Any]:
        iterator = _wrap(self._loader, _Watched, iter)
        if isinstance(iterator, ProbedIterator):
            iterator.state.watched = True
            iterator.state.batch_size = self._batch_size
        return iterator

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def watch(loader: Any, batch_size: int | None) -> Any:
    """See :func:`headrace.stalls.watch`."""
    if getattr(type(loader).__iter__, "_headrace", False):
        state = the_probe().state_of(loader)
        state.watched, state.batch_size = True, batch_size
        return loader
    return _Watched(loader, batch_size)
