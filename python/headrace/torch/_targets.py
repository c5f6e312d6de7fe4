"""Targets: the rows of a batch, as the list of dicts that detection models take.

A batch's rows are a few flat tensors, one for each column. :class:`Targets` looks like a list with a
dict for each sample, whose values are views of them; no tensor is made for a sample before it is asked
for.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, overload

import torch
from torch.utils.dlpack import from_dlpack

from .. import _core, _rows


class Targets(Sequence[dict[str, torch.Tensor]]):
    """A dict for each sample of a batch, made when it is asked for.

    Args:
        flat: of each column the values of all samples.
        offsets: sample i has the rows ``offsets[i]`` to ``offsets[i + 1]`` of the columns ``rows``.
        rows: the names of the columns with any number of rows for each sample; of the others
            sample i has element i.

    Attributes:
        flat, offsets: as above. ``flat["boxes"]`` has the boxes of all samples, one after the other.
    """

    def __init__(
        self,
        flat: dict[str, torch.Tensor],
        offsets: torch.Tensor | _core.Array,
        rows: Container[str],
    ) -> None:
        self.flat = flat
        self._offsets = offsets
        self._rows = rows
        self._places: list[int] | None = None

    @property
    def offsets(self) -> torch.Tensor:
        if not isinstance(self._offsets, torch.Tensor):
            self._offsets = _tensor(self._offsets)
        return self._offsets

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_offsets": self.offsets}

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int) -> dict[str, torch.Tensor]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, torch.Tensor]]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._one(i) for i in range(*index.indices(len(self)))]
        if isinstance(index, str):
            raise TypeError(
                f"targets are a list with a dict for each sample: targets[0][{index!r}] has the "
                f"first one's values, targets.flat[{index!r}] those of the whole batch"
            )
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"sample {index} of a batch of {count}")
        return self._one(index % count)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        return map(self._one, range(len(self)))

    def _one(self, index: int) -> dict[str, torch.Tensor]:
        if self._places is None:
            offsets = self._offsets
            is_tensor = isinstance(offsets, torch.Tensor)
            self._places = (offsets if is_tensor else memoryview(offsets)).tolist()
        begin, end = self._places[index], self._places[index + 1]
        return {
            name: values[begin:end] if name in self._rows else values[index]
            for name, values in self.flat.items()
        }

    def to(self, *args: Any, **kwargs: Any) -> Targets:
        """Moves the flat tensors, as ``torch.Tensor.to`` does; the offsets stay in host memory."""
        flat = {name: values.to(*args, **kwargs) for name, values in self.flat.items()}
        return Targets(flat, self._offsets, self._rows)

    def pin_memory(self, *args: Any) -> Targets:
        """Copies the flat tensors to page-locked memory."""
        flat = {name: values.pin_memory(*args) for name, values in self.flat.items()}
        return Targets(flat, self._offsets, self._rows)

    def __repr__(self) -> str:
        return f"headrace.torch.Targets({len(self)} samples of {', '.join(self.flat)})"


def _tensor(values: _core.Array) -> torch.Tensor:
    """Returns a tensor on the array's memory. A capsule costs a quarter of what from_dlpack takes for
    an object; one of booleans needs torch 2.2."""
    if values.dtype == "bool" and values.nbytes:
        return torch.frombuffer(values, dtype=torch.bool).view(values.shape)
    return from_dlpack(values.__dlpack__())


def targets_of(batch: _core.Batch, pin: bool) -> Any:
    """Returns the targets of a batch of a dataset with rows; a tensor if they are one label for each
    sample; None if it has no rows. ``pin``: in page-locked memory."""
    found = batch.rows
    if found is None:
        return None
    columns, rows, offsets = found
    flat = {name: _tensor(values) for name, values in columns.items()}
    if not rows and list(flat) == ["labels"]:
        return flat["labels"].pin_memory() if pin else flat["labels"]
    if offsets is None:
        offsets = torch.zeros(len(batch) + 1, dtype=torch.int64)
    targets = Targets(flat, offsets, rows)
    return targets.pin_memory() if pin else targets


def sample_target(source: _core.Dataset, index: int) -> Any:
    """Returns the target of one sample of a dataset with rows."""
    found = {name: _tensor(values) for name, values in source.rows(index).items()}
    return found["labels"] if _rows.is_label(source) else found
