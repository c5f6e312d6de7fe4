"""Detects the batch size of a training.

A tensor does not show which of its dimensions is the batch. Two sources do: `batch_first` of
sequence modules, and a loader whose `batch_size` equals one dimension of the model's input.
Without either, the first dimension is assumed, and the record says so.
"""

from __future__ import annotations

import gc
from typing import Any

import torch

ASSUMED, LOADED, STATED = 1, 2, 3  # how reliable the source is


class Batch:
    """Inspects the inputs of a model's modules until the batch size is known."""

    def __init__(self, recorder: Any, batch_size: int | None) -> None:
        self._recorder = recorder
        self._sure = 0
        self.is_sure = batch_size is not None

    def see(self, module: Any, args: Any) -> None:
        """Inspects the positional arguments of one call of a module."""
        for value in args:
            if isinstance(value, torch.nn.utils.rnn.PackedSequence):
                self._is(int(value.batch_sizes[0]), STATED, "of a packed sequence")
            elif isinstance(value, torch.Tensor) and value.dim():
                self._see_tensor(module, value)
            else:
                continue
            return

    def _see_tensor(self, module: Any, value: torch.Tensor) -> None:
        first = getattr(module, "batch_first", None)
        if isinstance(first, bool) and value.dim() == 3:
            at = 0 if first else 1
            self._is(int(value.shape[at]), STATED,
                     f"of {type(module).__name__} with batch_first={first}")
        elif not self._sure:
            self._see_first(value)

    def _see_first(self, value: torch.Tensor) -> None:
        shape = [int(size) for size in value.shape]
        sizes = _loaders()
        if shape[0] in sizes:
            self._is(shape[0], LOADED, "of the loader")
        elif len(found := sizes.intersection(shape[1:])) == 1:
            self._is(found.pop(), LOADED, "of the loader")
        else:
            self._is(shape[0], ASSUMED,
                     "assumed, the first dimension of the model's input; --batch-size sets it")

    def _is(self, size: int, sure: int, how: str) -> None:
        if sure <= self._sure:
            return
        self._sure = sure
        self.is_sure = sure == STATED
        self._recorder.fact("batch size", str(size))
        self._recorder.fact("batch size from", how)


def _loaders() -> set[int]:
    """Returns the batch sizes of all existing loaders."""
    sizes = set()
    for thing in gc.get_objects():
        if issubclass(type(thing), torch.utils.data.DataLoader):
            size = getattr(thing, "batch_size", None)
            if isinstance(size, int) and not isinstance(size, bool):
                sizes.add(size)
    return sizes
