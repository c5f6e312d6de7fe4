"""The native order seen from Python: the sampler attribute, a DistributedSampler that the native
order replaces, and batches of indices with the same statistics for measuring.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DistributedSampler


class Order:
    """The ``sampler`` attribute for the native order. ``set_epoch`` and ``count`` (samples of this
    rank per epoch) are methods of the loader, which this does not keep alive."""

    def __init__(self, set_epoch: Callable[[int], None], count: Callable[[], int]) -> None:
        self._set_epoch, self._count = weakref.WeakMethod(set_epoch), weakref.WeakMethod(count)

    def set_epoch(self, epoch: int) -> None:
        """Calls the DataLoader's ``set_epoch``."""
        set_epoch = self._set_epoch()
        if set_epoch is not None:
            set_epoch(epoch)

    def __len__(self) -> int:
        """Samples of this rank per epoch, including padding."""
        count = self._count()
        return 0 if count is None else count()

    def __repr__(self) -> str:
        return "<the native order of a headrace.torch.DataLoader>"


class Dealt:
    """A DistributedSampler that the native order replaces.

    Both distribute an order over the ranks in the same way; only the permutation for a seed
    differs. The loader uses its own order, with the sampler's seed, shuffle, ranks and epochs.
    This applies to DistributedSampler itself, not to subclasses, and only if padding and dropping
    give each rank the same number of samples; others are followed as any sampler.
    """

    def __init__(self, sampler: DistributedSampler[Any]) -> None:
        self.sampler = sampler
        self.part = (int(sampler.rank), int(sampler.num_replicas))
        self.epoch = int(sampler.epoch)  # as it was when it was looked at last

    @classmethod
    def of(
        cls, sampler: Any, *, samples: int, batch_size: int, drop_last: bool, seed: int
    ) -> Dealt | None:
        """Returns None if the sampler cannot be replaced, for example because the loader's own
        ``seed`` is given and differs from the sampler's."""
        if type(sampler) is not DistributedSampler or len(sampler.dataset) != samples:  # type: ignore[arg-type]
            return None
        ranks = int(sampler.num_replicas)
        theirs, ours = len(sampler), -(-samples // ranks)
        if drop_last:
            theirs -= theirs % batch_size
            ours = samples // (batch_size * ranks) * batch_size
        if theirs != ours or not theirs or seed not in (0, int(sampler.seed)):
            return None
        return cls(sampler)

    def moved(self) -> int | None:
        """Returns the epoch if the sampler's set_epoch changed it since the last call."""
        now = int(self.sampler.epoch)
        if now == self.epoch:
            return None
        self.epoch = now
        return now

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)
        self.epoch = epoch

    def say(self) -> None:
        """Logs one line, once per job, if the order differs from torch's."""
        global _said
        if _said or not self.sampler.shuffle or self.part[0]:
            return
        _said = True
        logging.getLogger("headrace").warning(
            "Headrace's own order replaces the DistributedSampler, with its seed %d: ranks get as many "
            "samples as before, each once, in another random order. A subclass of it is not "
            "replaced",
            self.sampler.seed,
        )


_said = False


class OrderedBatches:
    """Batches of indices with the statistics of the native order, another order with each
    ``iter()``: for measuring, where which sample comes when does not matter. ``seed`` None: not
    shuffled."""

    def __init__(self, samples: int, part: tuple[int, int], batch: int, seed: int | None) -> None:
        self._samples, self._part, self._batch, self._seed = samples, part, batch, seed

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.arange(self._samples)
        if self._seed is not None:
            generator = torch.Generator().manual_seed(self._seed)
            order = torch.randperm(self._samples, generator=generator)
            self._seed += 1
        rank, ranks = self._part
        return (batch.tolist() for batch in order[rank::ranks].split(self._batch))
