"""How a sample of a dataset of one's own lies in a fixed number of bytes.

Jobs that share a dataset through an agent exchange bytes, never pickles. The first sample gives the
:class:`Layout`: the containers and parts of a sample, and where each part lies. Every other sample
must have the same. A batch's parts are views of the agent's memory.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import torch

from ._ring import is_small

_ALIGN = 16  # of a part in its sample: the largest element
_LINE = 64  # samples of several parts are multiples of it
_MOST = 1 << 30  # bytes of a sample
_LABEL = -1  # the offset of the part that travels beside the bytes
_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64}
_WAY_OUT = (
    "With an agent, samples are tensors, NumPy arrays and numbers, in tuples, lists and dicts: let "
    "the dataset return these, or leave the agent out"
)


@dataclass(frozen=True)
class Part:
    """A tensor, array or number of each sample."""

    path: str  # where it is, for messages
    kind: type  # torch.Tensor or a tv_tensor, numpy.ndarray, numpy.generic, bool, int or float
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int = _LABEL

    @property
    def nbytes(self) -> int:
        size = self.dtype.itemsize
        for length in self.shape:
            size *= length
        return size

    def fits(self, other: Part) -> bool:
        return (self.kind, self.dtype, self.shape) == (other.kind, other.dtype, other.shape)

    def __str__(self) -> str:
        what = self.kind.__name__
        if self.kind in _NUMBERS:
            return f"{self.path} is {what}"
        return f"{self.path} is {what} of shape {self.shape} and {self.dtype}"


@dataclass
class Layout:
    """The parts of each sample, and the containers they are in.

    ``tree`` is a part's number, or ``(type, keys, trees)``: tuple, list or dict. ``size``: bytes of a
    sample.
    """

    tree: Any
    parts: list[Part]
    size: int = field(default=0)

    @classmethod
    def of(cls, sample: Any) -> Layout:
        """Returns the layout of this sample and all like it. Raises TypeError that names a part that
        has no fixed size."""
        found: list[tuple[Part, Any]] = []
        tree = _walk(sample, "the sample", found)
        if not found:
            raise TypeError(f"the sample has no tensor, array or number. {_WAY_OUT}")
        layout = cls(tree, [part for part, _ in found])
        layout._place()
        if layout.size > _MOST:
            raise ValueError(f"a sample has {layout.size:,} bytes: an agent takes up to {_MOST:,}")
        return layout

    def _place(self) -> None:
        """Decides where each part lies. The largest comes first. A second one of up to 8 bytes, a
        label, travels beside the bytes: then the batch's tensors are contiguous."""
        order = sorted(range(len(self.parts)), key=lambda i: -self.parts[i].nbytes)
        label = order[1] if len(order) == 2 and self.parts[order[1]].nbytes <= 8 else None
        offset = 0
        for i in order:
            part = self.parts[i]
            at = _LABEL if i == label else offset
            self.parts[i] = Part(part.path, part.kind, part.dtype, part.shape, at)
            if i != label:
                offset += -(-part.nbytes // _ALIGN) * _ALIGN
        alone = len(order) == 1 or label is not None
        largest = self.parts[order[0]].nbytes
        self.size = max(1, largest if alone else -(-offset // _LINE) * _LINE)

    def digest(self) -> bytes:
        text = repr((self.tree, self.parts, self.size))
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    # A worker process

    def slot(self, memory: torch.Tensor) -> Slot:
        """Returns where to write a sample: in these bytes."""
        return Slot(self, memory)

    # A job

    def columns(self, rows: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
        """Returns the parts of a batch, stacked: views of ``rows``, uint8 of shape (samples, size).
        Small ones are copies, so that keeping labels does not keep the batch."""
        return [self._column(part, rows, labels) for part in self.parts]

    def _column(self, part: Part, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        count = len(rows)
        if not part.nbytes:
            return torch.empty((count, *part.shape), dtype=part.dtype)
        if part.offset == _LABEL:
            flat = labels.view(torch.uint8).view(count, 8)[:, : part.nbytes].contiguous()
        else:
            flat = rows[:, part.offset : part.offset + part.nbytes]
            if is_small(part.nbytes * count):
                flat = flat.clone(memory_format=torch.contiguous_format)
        return flat.view(part.dtype).view(count, *part.shape)

    def build(self, values: list[Any], *, collated: bool) -> Any:
        """Puts parts into the sample's containers; ``collated``: as torch's default_collate, which
        makes a list of a tuple."""
        return _build(self.tree, values, collated)

    def samples(self, columns: list[torch.Tensor]) -> list[Any]:
        """Returns the samples of a batch one by one, as the dataset returned them."""
        return [
            self.build([_one(p, c[i]) for p, c in zip(self.parts, columns)], collated=False)
            for i in range(len(columns[0]))
        ]


class Slot:
    """Memory for one sample."""

    def __init__(self, layout: Layout, memory: torch.Tensor) -> None:
        self._layout = layout
        self._memory = memory[: layout.size]
        self._label = torch.zeros(1, dtype=torch.int64)
        self._targets = [self._target(part) for part in layout.parts]

    def _target(self, part: Part) -> torch.Tensor:
        if part.offset == _LABEL:
            flat = self._label.view(torch.uint8)[: part.nbytes]
        else:
            flat = self._memory[part.offset : part.offset + part.nbytes]
        return flat.view(part.dtype).view(part.shape)

    def write(self, sample: Any) -> int:
        """Writes a sample; returns the label. Raises ValueError if it is not like the first."""
        layout, found = self._layout, []
        tree = _walk(sample, "the sample", found)
        if tree != layout.tree:
            raise ValueError(
                "the sample's containers, or their lengths or keys, are not those of the dataset's "
                "first sample, as an agent needs"
            )
        self._label.zero_()
        for target, part, (own, value) in zip(self._targets, layout.parts, found):
            if not own.fits(part):
                raise ValueError(
                    f"{own}, but the dataset's first sample: {part}. With an agent all samples have "
                    "one size and type: resize, crop or pad in the dataset's transform"
                )
            if part.kind in _NUMBERS:
                target.fill_(value)
            elif part.nbytes:
                target.copy_(_tensor(value))
        return int(self._label)

    def content(self) -> bytes:
        """Returns the bytes of the sample written last, without its label."""
        return self._memory.numpy().tobytes()


def _walk(value: Any, path: str, found: list[tuple[Part, Any]]) -> Any:
    kind = type(value)
    if kind is dict:
        keys = tuple(value)
        if not all(type(key) in (str, int, bool) for key in keys):
            raise TypeError(f"{path} has keys that are neither texts nor whole numbers. {_WAY_OUT}")
        trees = tuple(_walk(value[key], f"{path}[{key!r}]", found) for key in keys)
        return "dict", keys, trees
    if kind in (tuple, list):
        trees = tuple(_walk(one, f"{path}[{i}]", found) for i, one in enumerate(value))
        return kind.__name__, None, trees
    found.append((_part(value, path), value))
    return len(found) - 1


def _part(value: Any, path: str) -> Part:
    kind = type(value)
    if kind in _NUMBERS:
        return Part(path, kind, _NUMBERS[kind], ())
    if kind is torch.Tensor or _is_tv_tensor(kind):
        if value.device.type != "cpu" or value.layout is not torch.strided or value.is_quantized:
            raise TypeError(
                f"{path} is a tensor that is not dense in host memory ({value.device}, "
                f"{value.layout}). {_WAY_OUT}"
            )
        return Part(path, kind, value.dtype, tuple(value.shape))
    if kind.__module__ == "numpy":
        import numpy

        base = numpy.ndarray if kind is numpy.ndarray else numpy.generic
        if isinstance(value, base):
            try:
                dtype = _tensor(value).dtype
            except (TypeError, ValueError) as error:
                raise TypeError(f"{path}: {error}. {_WAY_OUT}") from None
            return Part(path, base, dtype, tuple(value.shape))
    raise TypeError(f"{path} is {kind.__module__}.{kind.__qualname__}. {_WAY_OUT}")


def _is_tv_tensor(kind: type) -> bool:
    """Returns whether this is a tensor with another class and nothing else."""
    names = ("Image", "Mask", "Video")
    return kind.__module__.startswith("torchvision.tv_tensors") and kind.__name__ in names


def _tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach().as_subclass(torch.Tensor)
    import numpy

    return torch.from_numpy(numpy.require(value, requirements=("C", "W"))).view(value.shape)


def _build(tree: Any, values: list[Any], collated: bool) -> Any:
    if isinstance(tree, int):
        return values[tree]
    kind, keys, trees = tree
    items = [_build(one, values, collated) for one in trees]
    if kind == "dict":
        return dict(zip(keys, items))
    return tuple(items) if kind == "tuple" and not collated else items


def _one(part: Part, value: torch.Tensor) -> Any:
    """Returns a part of one sample as the dataset returned it."""
    if part.kind in _NUMBERS:
        return value.item()
    if issubclass(part.kind, torch.Tensor):
        return value if part.kind is torch.Tensor else value.as_subclass(part.kind)
    array = value.numpy()
    return array if part.kind.__name__ == "ndarray" else array[()]
