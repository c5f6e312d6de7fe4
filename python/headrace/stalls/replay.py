"""Replays a few kept batches to the training loop.

The batches are copies. Each time, training gets a new container of new tensor objects over the same
memory, so that changes of the script to a batch end with its step. Changes in place are detected by
the tensors' version counters and undone. NumPy arrays have no such counters, so they are compared
with a copy.

Containers are those of torch's pytree, and any object that has tensors or arrays among its members
or in containers that are its members.
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
DEEPEST = 5  # levels of objects within objects
MOST = 10000  # a container with more entries, within an object, is not part of a batch
PLAIN = (str, bytes, bool, int, float, complex, type(None), type, torch.dtype, torch.device)


class NotReplayable(Exception):
    """A batch cannot be kept, or not on the device; the message says why."""


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _members(value: Any) -> dict[str, Any]:
    """Returns an object's members, by name."""
    found = dict(getattr(value, "__dict__", None) or {})
    for kind in type(value).__mro__:
        names = vars(kind).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return found


class _Walk:
    """Applies ``change`` to each tensor and array in a value. ``whole``, if given, is applied first
    to each object that holds some; if it returns ``None``, the object's members are changed."""

    def __init__(
        self, change: Callable[[Any], Any], whole: Callable[[Any], Any] | None = None
    ) -> None:
        self._change, self._whole = change, whole
        self._path: list[int] = []  # objects being traversed

    def of(self, value: Any) -> tuple[Any, bool]:
        """Returns the new value, in new containers and shallow copies of objects, and whether it
        contains any tensor or array."""
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
    """Returns ``value`` with ``change`` applied to each tensor and array in it, in new containers
    and shallow copies of the objects that hold some."""
    return _Walk(change).of(value)[0]


def parts_of(value: Any) -> list[Any]:
    """Lists all tensors and arrays in a value, in the order of :func:`mapped`."""
    found: list[Any] = []

    def note(part: Any) -> Any:
        found.append(part)
        return part

    mapped(value, note)
    return found


def holds(value: Any) -> bool:
    return bool(parts_of(value))


def signature(batch: Any) -> tuple[Any, ...]:
    """Returns a key that is equal for batches of equal types and shapes."""
    shapes = tuple((tuple(part.shape), str(part.dtype)) for part in parts_of(batch))
    return (type(batch), shapes)


def samples_in(batch: Any) -> int:
    """Returns the number of samples in a batch: the first dimension of its first tensor, or the
    length of a list."""
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
    """Moves a value to the device, by the objects' own ``to`` method if they have one."""

    def move(part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            return part.detach().to(device).requires_grad_(part.requires_grad)
        return part

    def of_object(one: Any) -> Any:
        out = one.to(device)
        return one if out is None else out

    # Pass copies of the objects: some `to` methods change the object itself.
    return _Walk(move, of_object).of(mapped(value, _aliased))[0]


def _nbytes(parts: list[Any]) -> int:
    return sum(int(part.nbytes) for part in parts)


class _Kept:
    """One kept batch: its copy, a second copy to restore it from, and the tensors' versions."""

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
    """Keeps batches as they arrive (``keep``), and later returns them in turn (``give``)."""

    def __init__(self, count: int = 2) -> None:
        self._count = count
        self._kept: list[tuple[tuple[Any, ...], _Kept]] = []
        self._sizes: collections.Counter[int] = collections.Counter()
        self._host: list[_Kept] = []
        self._device: list[_Kept] = []
        self._last: _Kept | None = None
        self.in_place = False  # the script changed a batch
        self.restoring_s = 0.0  # host seconds spent on restoring

    def keep(self, batch: Any) -> None:
        """Copies a batch that the script is about to get, on the device where its loader put it.
        Only the first few, and those of other shapes, are kept."""
        key, samples = signature(batch), samples_in(batch)
        self._sizes[samples] += 1
        shapes = {known for known, _ in self._kept}
        if len(self._kept) >= self._count and (
            key in shapes or len(shapes) >= DIFFERENT_SHAPES
        ):
            return
        self._kept.append((key, _Kept(mapped(batch, _copied), samples)))

    def freeze(self) -> None:
        """Ends keeping: from now on the kept batches are replayed."""
        kept = [one for _, one in self._kept]
        # Drop smaller batches, such as the last one of an epoch: those are not measured either.
        largest = max(self._sizes)
        if 2 * self._sizes[largest] >= sum(self._sizes.values()):
            kept = [one for one in kept if one.samples == largest] or kept
        for one in kept:
            one.preserve()
        self._host, self._kept = kept, []

    @property
    def on_device(self) -> bool:
        """Whether the loader itself yields batches on an accelerator."""
        return any(t.device.type != "cpu" for kept in self._host for t in kept.tensors)

    def to_device(self, device: torch.device) -> None:
        """Copies the batches to the device, too. Raises NotReplayable, or torch's error."""
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
                moved.pristine = kept.pristine  # stays on the host, to save device memory
            else:
                moved.preserve()
            found.append(moved)
        self._device = found

    def samples(self, start: int, count: int, device: bool) -> int:
        """Returns the number of samples in ``count`` batches from number ``start`` on."""
        batches = self._batches(device)
        return sum(batches[k % len(batches)].samples for k in range(start, start + count))

    def give(self, number: int, device: bool) -> Any:
        """Returns the batch of this number. Undoes the script's changes to the previous one; on the
        device that is left to :meth:`settle`, so that no work enters the device's queue."""
        if not device:
            self._undo()
        batches = self._batches(device)
        self._last = batches[number % len(batches)]
        return self._last.give()

    def _batches(self, device: bool) -> list[_Kept]:
        return self._device if device and self._device else self._host

    def settle(self) -> None:
        """Restores all batches; called outside the timed segments."""
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
