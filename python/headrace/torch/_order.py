"""The native order seen from Python: the sampler attribute, a DistributedSampler that the native
order replaces, and batches of indices with the same statistics for measuring.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DistributedSampler, SequentialSampler

from ._worker import order


class Order(DistributedSampler[Any]):
    """The ``sampler`` attribute of a loader with the native order.

    It yields the samples of the loader's next epoch, so that ``loader.batch_sampler`` yields the
    indices of its batches. It is a DistributedSampler because the loader deals its samples to the
    ranks itself: frameworks leave such loaders as they are.

    Args:
        loader: the DataLoader, which this does not keep alive.
        part: rank and number of ranks. None: the loader's, which may change until its first epoch.
        padded: whether ranks with fewer samples repeat some from the start of the order.
    """

    # DistributedSampler's __init__ would fix rank and number of ranks.
    def __init__(
        self, loader: Any, part: tuple[int, int] | None = None, padded: bool = True
    ) -> None:
        self._find_loader = weakref.ref(loader)
        self._part, self._padded = part, padded
        self._counted_from = 0

    @property
    def _loader(self) -> Any:
        loader = self._find_loader()
        if loader is None:
            raise ReferenceError(
                "the DataLoader of this sampler no longer exists, and its order is the loader's: "
                "keep the loader as long as its sampler or batch_sampler"
            )
        return loader

    @property
    def dataset(self) -> Any:  # type: ignore[override]
        return self._loader.dataset

    @property
    def rank(self) -> int:  # type: ignore[override]
        return self._now()[0]

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        return self._now()[1]

    @property
    def shuffle(self) -> bool:  # type: ignore[override]
        return bool(self._loader.shuffle)

    @property
    def seed(self) -> int:  # type: ignore[override]
        return int(self._loader.seed)

    @property
    def drop_last(self) -> bool:  # type: ignore[override]
        return bool(self._loader.drop_last)

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """The number of the loader's next epoch."""
        return int(self._loader._next_epoch)

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """Samples of this rank per epoch, including padding."""
        samples, (rank, ranks) = len(self._loader._source), self._now()
        if self.drop_last:
            size = self._loader.batch_size or 1
            return int(samples // (size * ranks) * size)
        return -(-samples // ranks) if self._padded else len(range(rank, samples, ranks))

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """Samples of all ranks per epoch, including padding."""
        return self.num_samples * self.num_replicas

    def set_epoch(self, epoch: int) -> None:
        """Calls the DataLoader's ``set_epoch``. Epoch 0 after a state of a later epoch was loaded is
        that one, and later ones follow it: Fabric counts from 0 in every process."""
        resumed = self._loader._resume
        if resumed is not None:
            self._counted_from = 0 if epoch else resumed["epoch"] - self._loader._ahead
        self._loader.set_epoch(epoch + self._counted_from)

    def __iter__(self) -> Iterator[int]:
        samples, (rank, ranks) = len(self._loader._source), self._now()
        indices = order(samples, self.shuffle, self.seed, self.epoch)
        return (indices[(rank + i * ranks) % samples] for i in range(self.num_samples))

    def __len__(self) -> int:
        """Samples of this rank per epoch, including padding."""
        return self.num_samples

    def __repr__(self) -> str:
        return "<the native order of a headrace.torch.DataLoader>"

    def _now(self) -> tuple[int, int]:
        return self._part or self._loader._part.now()


class InOrder(Order, SequentialSampler):
    """The same for a loader that does not shuffle, which frameworks find out by the class."""


def adopt(batch_sampler: Any, loader: Any) -> int | None:
    """Makes ``loader`` the owner of the native order inside a batch sampler that a framework made
    from another loader's. Returns the epoch to begin at; None if there is no such order.

    Accelerate wraps that to deal batches to the ranks itself, so it gets the order of all samples.
    Lightning wraps it to predict, and then ranks may differ in length instead of repeating samples.
    """
    wrapper = type(batch_sampler).__name__
    name = {"BatchSamplerShard": "batch_sampler", "_IndexBatchSamplerWrapper": "_batch_sampler"}
    inner: Any = getattr(batch_sampler, name.get(wrapper, ""), None)
    theirs = getattr(inner, "sampler", None)
    if not isinstance(theirs, Order):
        return None
    predicts = wrapper == "_IndexBatchSamplerWrapper"
    ours = type(theirs)(loader, theirs._now() if predicts else (0, 1), padded=not predicts)
    setattr(batch_sampler, name[wrapper], BatchSampler(ours, inner.batch_size, inner.drop_last))
    if "sampler" in vars(batch_sampler):
        batch_sampler.sampler = ours
    loader.shuffle, loader.seed = theirs.shuffle, theirs.seed
    return theirs.epoch


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
        indices = torch.arange(self._samples)
        if self._seed is not None:
            generator = torch.Generator().manual_seed(self._seed)
            indices = torch.randperm(self._samples, generator=generator)
            self._seed += 1
        rank, ranks = self._part
        return (batch.tolist() for batch in indices[rank::ranks].split(self._batch))
