"""Replays a few kept batches to training.

The batches are copies. Each time training gets a fresh container of fresh tensor objects over
the same memory, so that nothing the script does to a batch outlives its step. Tensors' version
counters show what the script changed in place, and that is restored; NumPy's arrays, which
count nothing, are compared with a copy.

Containers are those that torch's pytree knows, and any object that has tensors or arrays
among its members, or in containers that are its members.
"""

from __future__ import annotations

import collections
import copy
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

DIFFERENT_SHAPES = 8
DEEPEST = 5  # objects within objects
MOST = 10000  # entries of a container within an object: more are no part of a batch
PLAIN = (str, bytes, bool, int, float, complex, type(None), type, torch.dtype, torch.device)


class NotReplayable(Exception):
    """A batch cannot be kept, or not on the device; the text says why."""


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _members(value: Any) -> dict[str, Any]:
    """What an object holds, by name."""
    found = dict(getattr(value, "__dict__", None) or {})
    for kind in type(value).__mro__:
        names = vars(kind).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return found


class _Walk:
    """Applies ``change`` to each tensor and array in a value; ``whole``, where given, to each
    object that holds some, before it is looked into, and may answer ``None``."""

    def __init__(
        self, change: Callable[[Any], Any], whole: Callable[[Any], Any] | None = None
    ) -> None:
        self._change, self._whole = change, whole
        self._path: list[int] = []  # objects that are being looked into

    def of(self, value: Any) -> tuple[Any, bool]:
        """The new value, in fresh containers and shallow copies of objects, and whether there
        was anything in it."""
        if isinstance(value, torch.Tensor) or _is_array(value):
            return self._change(value), True
        if isinstance(value, PLAIN) or callable(value) or id(value) in self._path:
            return value, False
        if self._path and isinstance(value, (list, tuple, dict, set)) and len(value) > MOST:
            return value, False
        if self._whole is not None and callable(getattr(value, "to", None)) and holds(value):
            new = self._whole(value)
            if new is not None:
                return new, True
        leaves, spec = pytree.tree_flatten(value)
        if len(leaves) != 1 or leaves[0] is not value:
            found = [self.of(leaf) for leaf in leaves]
            new = pytree.tree_unflatten([one for one, _ in found], spec)
            return new, any(touched for _, touched in found)
        if len(self._path) == DEEPEST:
            return value, False
        return self._of_object(value)

    def _of_object(self, value: Any) -> tuple[Any, bool]:
        self._path.append(id(value))
        found = {name: self.of(member) for name, member in _members(value).items()}
        self._path.pop()
        if not any(touched for _, touched in found.values()):
            return value, False
        out = copy.copy(value)
        for name, (new, touched) in found.items():
            if touched or new is value:
                object.__setattr__(out, name, out if new is value else new)
        return out, True


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """``value`` with ``change`` applied to each tensor and array in it: fresh containers, and
    shallow copies of the objects that hold some."""
    return _Walk(change).of(value)[0]


def parts_of(value: Any) -> list[Any]:
    """All tensors and arrays in it, in the order of :func:`mapped`."""
    found: list[Any] = []

    def note(part: Any) -> Any:
        found.append(part)
        return part

    mapped(value, note)
    return found


def holds(value: Any) -> bool:
    return bool(parts_of(value))


def signature(batch: Any) -> tuple[Any, ...]:
    """Equal for batches of equal types and shapes."""
    shapes = tuple((tuple(part.shape), str(part.dtype)) for part in parts_of(batch))
    return (type(batch), shapes)


def samples_in(batch: Any) -> int:
    """The first dimension of the first tensor, or the length of a list: samples."""
    for part in parts_of(batch):
        if len(part.shape):
            return int(part.shape[0])
    try:
        return len(batch)
    except TypeError:
        return 1


def _copied(part: Any) -> Any:
    if not isinstance(part, torch.Tensor):
        return part.copy()
    with torch.no_grad():
        out = part.detach().clone()
        if part.device.type == "cpu" and part.is_pinned():
            out = out.pin_memory()
    return out.requires_grad_(part.requires_grad)


def _aliased(part: Any) -> Any:
    if not isinstance(part, torch.Tensor):
        return part.view()
    return part.detach().requires_grad_(part.requires_grad)


def _moved(value: Any, device: torch.device) -> Any:
    """On the device, by the objects' own ``to`` where they have one."""

    def move(part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            return part.detach().to(device).requires_grad_(part.requires_grad)
        return part

    def of_object(one: Any) -> Any:
        out = one.to(device)
        return one if out is None else out

    # The objects are fresh ones: some change themselves.
    return _Walk(move, of_object).of(mapped(value, _aliased))[0]


def _nbytes(parts: list[Any]) -> int:
    return sum(int(part.nbytes) for part in parts)


class _Kept:
    """One batch: its copy, a pristine copy to restore it from, versions."""

    def __init__(self, batch: Any, samples: int) -> None:
        self.batch, self.samples = batch, samples
        self.pristine: list[Any] = []
        parts = parts_of(batch)
        self.tensors = [part for part in parts if isinstance(part, torch.Tensor)]
        self.arrays = [part for part in parts if not isinstance(part, torch.Tensor)]
        self.versions = [t._version for t in self.tensors]

    @property
    def parts(self) -> list[Any]:
        return [*self.tensors, *self.arrays]

    def preserve(self) -> None:
        self.pristine = [_copied(part) for part in self.parts]

    def give(self) -> Any:
        return mapped(self.batch, _aliased)

    def changed(self) -> bool:
        if any(t._version != v for t, v in zip(self.tensors, self.versions)):
            return True
        originals = self.pristine[len(self.tensors) :]
        return any(a.tobytes() != o.tobytes() for a, o in zip(self.arrays, originals))

    def restore(self) -> None:
        with torch.no_grad():
            for tensor, original in zip(self.tensors, self.pristine):
                tensor.detach().copy_(original)
        for array, original in zip(self.arrays, self.pristine[len(self.tensors) :]):
            array[...] = original
        self.versions = [t._version for t in self.tensors]


class Replay:
    """``keep`` batches as they come; then ``give`` them in turn."""

    def __init__(self, count: int = 2) -> None:
        self._count = count
        self._kept: list[tuple[tuple[Any, ...], _Kept]] = []
        self._sizes: collections.Counter[int] = collections.Counter()
        self._host: list[_Kept] = []
        self._device: list[_Kept] = []
        self._last: _Kept | None = None
        self.in_place = False  # the script changed a batch
        self.restoring_s = 0.0  # spent on restoring, by the host

    def keep(self, batch: Any) -> None:
        """A batch that the script is about to get, on the host or wherever its loader put
        it. Only the first few and the different shapes are kept."""
        key, samples = signature(batch), samples_in(batch)
        self._sizes[samples] += 1
        shapes = {known for known, _ in self._kept}
        if len(self._kept) >= self._count and (
            key in shapes or len(shapes) >= DIFFERENT_SHAPES
        ):
            return
        self._kept.append((key, _Kept(mapped(batch, _copied), samples)))

    def freeze(self) -> None:
        """No more are kept: from now on they are given."""
        kept = [one for _, one in self._kept]
        # The last batch of an epoch may be smaller; real ones are not measured either.
        largest = max(self._sizes)
        if 2 * self._sizes[largest] >= sum(self._sizes.values()):
            kept = [one for one in kept if one.samples == largest] or kept
        for one in kept:
            one.preserve()
        self._host, self._kept = kept, []

    @property
    def on_device(self) -> bool:
        """The loader itself gives batches on an accelerator."""
        return any(t.device.type != "cpu" for kept in self._host for t in kept.tensors)

    def to_device(self, device: torch.device) -> None:
        """Puts the batches on the device too. NotReplayable, or what torch raises."""
        found = []
        for kept in self._host:
            moved = _Kept(_moved(kept.batch, device), kept.samples)
            left = [t for t in moved.tensors if t.device.type != device.type] + moved.arrays
            if 20 * _nbytes(left) > _nbytes(kept.parts) or not moved.tensors:
                kinds = sorted({type(part).__name__ for part in left}) or ["nothing"]
                raise NotReplayable(
                    f"batches cannot be put on the device: {', '.join(kinds)} of "
                    f"{type(kept.batch).__name__} stays where it is"
                )
            if [p.shape for p in moved.parts] == [p.shape for p in kept.parts]:
                moved.pristine = kept.pristine  # on the host: no memory of the device
            else:
                moved.preserve()
            found.append(moved)
        self._device = found

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
        if last is None:
            return
        begin = time.perf_counter()
        if last.changed():
            self.in_place = True
            last.restore()
        self.restoring_s += time.perf_counter() - begin
