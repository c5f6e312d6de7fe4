"""What stands for the native order in Python: torch's sampler attribute, and batches of
indices with the same statistics for measuring.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ._loader import DataLoader


class Order:
    """Stands where torch has a sampler when none was given: the native order."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = weakref.ref(loader)

    def set_epoch(self, epoch: int) -> None:
        """As ``DistributedSampler.set_epoch``; the DataLoader's."""
        loader = self._loader()
        if loader is not None:
            loader.set_epoch(epoch)

    def __len__(self) -> int:
        """Samples of this rank in an epoch, padding included."""
        loader = self._loader()
        if loader is None:
            return 0
        ranks, samples = loader.world_size, len(loader._source)
        if loader.drop_last:
            return len(loader) * (loader.batch_size or 1)
        return -(-samples // ranks)

    def __repr__(self) -> str:
        return "<the native order of a headrace.torch.DataLoader>"


class OrderedBatches:
    """Batches of indices with the statistics of the native order: for measuring, where
    which sample comes when does not matter."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._epoch = 0

    def __iter__(self) -> Iterator[list[int]]:
        loader, samples = self._loader, len(self._loader._source)
        if loader.shuffle:
            generator = torch.Generator().manual_seed(loader.seed + self._epoch)
            order = torch.randperm(samples, generator=generator)
        else:
            order = torch.arange(samples)
        self._epoch += 1
        own = order[loader.rank :: loader.world_size]
        return (batch.tolist() for batch in own.split(loader._capacity))
