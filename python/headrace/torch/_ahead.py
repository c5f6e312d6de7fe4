"""Draws the orders of a sampler's coming epochs, for a cache that keeps what is used next.

The user's sampler and the generators stay as they are: a copy of the sampler draws, with generators
of its own that begin in the state that the epoch begins in. That is possible for samplers of which
it is known what they draw from: torch's, and timm's for repeated augmentation.

The epoch that begins is always known. Later ones follow from the state after it, as long as nothing
else draws from the same generator. A sampler's own generator is taken to be its alone. Of torch's
global one, and of a generator that has surprised once, that is only believed after an epoch has
begun in the state in which the one before it had ended.
"""

from __future__ import annotations

import array
import copy
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

_PLAIN = (SequentialSampler, SubsetRandomSampler)
_DRAWING = (RandomSampler, WeightedRandomSampler)
_EPOCHS = 8  # the most that are drawn, with the one that begins
# In how many of the drawn epochs a sample is used on average. Simulated with half of the samples
# cached, the reads are then those of Belady's rule, whose future is the whole run.
_EPOCHS_OF_USE = 1.6


def inner(source: Any) -> Any:
    """Returns the sampler that gives the indices: of a BatchSampler of torch's the one inside."""
    return source.sampler if type(source) is BatchSampler else source


def is_known(source: Any) -> bool:
    """Returns whether the orders of a sampler, or a batch sampler, can be drawn ahead."""
    sampler = inner(source)
    return type(sampler) in (*_PLAIN, *_DRAWING) or _counts_epochs(sampler)


def repeats(source: Any) -> bool:
    """Returns whether a known sampler uses some samples of an epoch several times, or not the same
    ones in every epoch."""
    sampler = inner(source)
    if type(sampler) is RandomSampler:
        return sampler.replacement or sampler.num_samples != len(sampler.data_source)
    if type(sampler) is WeightedRandomSampler:
        return sampler.replacement or sampler.num_samples != len(sampler.weights)
    return _counts_epochs(sampler)


def _counts_epochs(sampler: Any) -> bool:
    """Whether the order follows from the sampler's epoch alone."""
    kind = type(sampler)
    return kind.__name__ == "RepeatAugSampler" and kind.__module__.startswith("timm.")


class Ahead:
    """The coming orders of one sampler.

    Args:
        samples: of the dataset.
        batch_size: if a last batch that is not full is dropped; else 1.
    """

    def __init__(self, samples: int, batch_size: int) -> None:
        self._samples = samples
        self._batch_size = batch_size
        self._number: int | None = None  # the loader's epoch that was drawn last
        self._after: Any = None  # the state in which the next epoch begins if nothing else draws
        self._goes_on = False  # whether nothing else draws
        self._epoch = 0  # of a sampler that counts epochs, as it was drawn last
        self._step = 1  # by which that rises

    def draw(
        self,
        source: Any,
        state: torch.Tensor,
        epoch: int | None,
        *,
        number: int,
        left: int | None = None,
    ) -> list[array.array[int]]:
        """Returns the indices of the epoch that begins and of later ones, as far as they are known.

        Args:
            state: of the generator that the sampler draws from, when the epoch begins.
            epoch: set_epoch's argument, of a sampler that has one.
            number: the loader's epoch. The same one may begin more than once.
            left: epochs of the run, with this one; None: unknown.
        """
        sampler, before, self._number = inner(source), self._number, number
        if _counts_epochs(sampler):
            if before is not None and number == before + 1:
                self._step = (epoch or 0) - self._epoch  # 0 where nobody calls set_epoch
            self._epoch = epoch or 0
            orders = self._by_epoch(sampler)
        elif type(sampler) is SequentialSampler:
            orders = itertools.repeat(array.array("q", sampler))
        else:
            if before is None:
                self._goes_on = sampler.generator is not None
            elif number != before:
                self._goes_on = torch.equal(state, self._after)
            orders = self._by_state(sampler, state)
        most = _EPOCHS if left is None else max(1, min(left, _EPOCHS))
        found: list[array.array[int]] = []
        used = 0
        for order in itertools.islice(orders, most):
            del order[len(order) - len(order) % self._batch_size :]
            if not order:
                break
            seen = torch.zeros(self._samples, dtype=torch.bool)
            indices = torch.frombuffer(order, dtype=torch.int64)
            if not 0 <= int(indices.min()) <= int(indices.max()) < self._samples:
                break  # it fails when the batch is due
            seen[indices] = True
            found.append(order)
            used += int(seen.sum())
            if used >= _EPOCHS_OF_USE * self._samples:
                break
        return found

    def _by_epoch(self, sampler: Any) -> Iterator[array.array[int]]:
        ours = copy.copy(sampler)
        for ours.epoch in itertools.count(self._epoch, self._step):
            yield array.array("q", ours)

    def _by_state(self, sampler: Any, state: torch.Tensor) -> Iterator[array.array[int]]:
        own = sampler.generator
        generator = torch.Generator("cpu" if own is None else own.device)
        generator.set_state(state)
        order = _one_order(sampler, generator)
        self._after = generator.get_state()
        yield order
        while self._goes_on:
            yield _one_order(sampler, generator)


def _one_order(sampler: Any, generator: torch.Generator) -> array.array[int]:
    ours = copy.copy(sampler)
    ours.generator = generator
    if type(sampler) is RandomSampler and sampler.generator is None:
        # It draws the seed of a generator for this epoch.
        seed = int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())
        ours.generator = torch.Generator().manual_seed(seed)
    return array.array("q", ours)
