"""Batches that are handed to training again and again.

They are copies, so that nothing the script does to a batch outlives its step: each time a
fresh container of fresh tensor objects over the same memory is given. What the script
changed in place is noticed by the tensors' version counters and restored.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import torch
from torch.utils import _pytree as pytree

DIFFERENT_SHAPES = 8


class NotReplayable(Exception):
    """A batch cannot be kept, or not on the device; the text says why."""


def _leaf_tensors(leaf: Any) -> dict[str, torch.Tensor]:
    """The tensors of an object that pytree does not look into."""
    members = getattr(leaf, "__dict__", None)
    if not isinstance(members, dict):
        return {}
    return {name: value for name, value in members.items() if isinstance(value, torch.Tensor)}


def signature(batch: Any) -> tuple[Any, ...]:
    """What tells batches of different shapes apart."""
    leaves, spec = pytree.tree_flatten(batch)
    shapes = tuple(
        (tuple(leaf.shape), leaf.dtype) if isinstance(leaf, torch.Tensor) else type(leaf)
        for leaf in leaves
    )
    return (str(spec), shapes)


def samples_in(batch: Any) -> int:
    """The first dimension of the first tensor, or the length of a list: samples."""
    for leaf in pytree.tree_leaves(batch):
        if isinstance(leaf, torch.Tensor) and leaf.dim():
            return int(leaf.shape[0])
        for tensor in _leaf_tensors(leaf).values():
            if tensor.dim():
                return int(tensor.shape[0])
    try:
        return len(batch)
    except TypeError:
        return 1


def device_of(batch: Any) -> torch.device | None:
    """Where the first tensor lies."""
    for leaf in pytree.tree_leaves(batch):
        if isinstance(leaf, torch.Tensor):
            return leaf.device
        for tensor in _leaf_tensors(leaf).values():
            return tensor.device
    return None


def _copy_tensor(tensor: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        out = tensor.detach().clone()
        return out.pin_memory() if tensor.device.type == "cpu" and tensor.is_pinned() else out


def _copy_leaf(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return _copy_tensor(leaf)
    tensors = _leaf_tensors(leaf)
    if not tensors:
        return leaf
    out = copy.copy(leaf)
    for name, tensor in tensors.items():
        out.__dict__[name] = _copy_tensor(tensor)
    return out


def _move_leaf(leaf: Any, device: torch.device) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.to(device)
    if not _leaf_tensors(leaf):
        return leaf
    if not callable(getattr(leaf, "to", None)):
        raise NotReplayable(
            f"batches hold {type(leaf).__name__} objects, which have no .to(device)"
        )
    return _copy_leaf(leaf).to(device)


def _alias_leaf(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.detach()
    tensors = _leaf_tensors(leaf)
    if not tensors:
        return leaf
    out = copy.copy(leaf)
    for name, tensor in tensors.items():
        out.__dict__[name] = tensor.detach()
    return out


class _Kept:
    """One batch: its copy, a pristine copy to restore it from, versions."""

    def __init__(self, leaves: list[Any], spec: Any, samples: int) -> None:
        self.leaves, self.spec, self.samples = leaves, spec, samples
        self.pristine: list[Any] | None = None
        self.tensors = [t for leaf in leaves for t in self._tensors(leaf)]
        self.versions = [t._version for t in self.tensors]

    @staticmethod
    def _tensors(leaf: Any) -> list[torch.Tensor]:
        if isinstance(leaf, torch.Tensor):
            return [leaf]
        return list(_leaf_tensors(leaf).values())

    def give(self) -> Any:
        return pytree.tree_unflatten([_alias_leaf(leaf) for leaf in self.leaves], self.spec)

    def changed(self) -> bool:
        return any(t._version != v for t, v in zip(self.tensors, self.versions))

    def restore(self) -> None:
        assert self.pristine is not None
        originals = [t for leaf in self.pristine for t in self._tensors(leaf)]
        with torch.no_grad():
            for tensor, original in zip(self.tensors, originals):
                tensor.copy_(original)
        self.versions = [t._version for t in self.tensors]


class Replay:
    """``keep`` batches as they come; then ``give`` them in turn."""

    def __init__(self, count: int = 2) -> None:
        self._count = count
        self._seen: dict[tuple[Any, ...], _Kept] = {}
        self._newest: list[_Kept] = []
        self._host: list[_Kept] = []
        self._device: list[_Kept] = []
        self._last: _Kept | None = None
        self.in_place = False  # the script changed a batch
        self.restoring_s = 0.0  # spent on restoring, by the host

    def keep(self, batch: Any) -> None:
        """A batch that the script is about to get, on the host or wherever its loader put
        it. Only the last few and the different shapes are kept."""
        key = signature(batch)
        leaves, spec = pytree.tree_flatten(batch)
        if key in self._seen and len(self._newest) >= self._count:
            return
        kept = _Kept([_copy_leaf(leaf) for leaf in leaves], spec, samples_in(batch))
        if key not in self._seen and len(self._seen) < DIFFERENT_SHAPES:
            self._seen[key] = kept
        if len(self._newest) < self._count:
            self._newest.append(kept)

    def freeze(self) -> None:
        """No more are kept: from now on they are given."""
        self._host = list(self._seen.values())
        for kept in self._newest:
            if len(self._host) < self._count and kept not in self._host:
                self._host.append(kept)
        for kept in self._host:
            kept.pristine = [_copy_leaf(leaf) for leaf in kept.leaves]
        self._seen, self._newest = {}, []

    @property
    def on_device(self) -> bool:
        """The loader itself gives batches on an accelerator."""
        return any(t.device.type != "cpu" for kept in self._host for t in kept.tensors)

    def to_device(self, device: torch.device) -> None:
        """Puts the batches on the device too. NotReplayable, or what torch raises."""
        self._device = []
        for kept in self._host:
            leaves = [_move_leaf(leaf, device) for leaf in kept.leaves]
            moved = _Kept(leaves, kept.spec, kept.samples)
            moved.pristine = kept.pristine
            self._device.append(moved)

    def samples(self, start: int, count: int, device: bool) -> int:
        """In ``count`` batches from number ``start`` on."""
        batches = self._batches(device)
        return sum(batches[k % len(batches)].samples for k in range(start, start + count))

    def give(self, number: int, device: bool) -> Any:
        """The batch of this number. What the script did to the one before is undone; on
        the device only by :meth:`settle`, so that no work is put into its queue."""
        if not device:
            self._undo()
        batches = self._batches(device)
        self._last = batches[number % len(batches)]
        return self._last.give()

    def _batches(self, device: bool) -> list[_Kept]:
        return self._device if device and self._device else self._host

    def settle(self) -> None:
        """Restores everything, outside what is timed."""
        for kept in self._host + self._device:
            if kept.changed():
                self.in_place = True
                kept.restore()
        self._last = None

    def _undo(self) -> None:
        last = self._last
        if last is not None and last.changed():
            begin = time.perf_counter()
            self.in_place = True
            last.restore()
            self.restoring_s += time.perf_counter() - begin
