"""Datasets whose samples Python makes, and comparisons of what the DataLoader gives of them."""

from __future__ import annotations

import itertools
import random

import numpy as np
import torch
import torch.utils.data as torch_data

from headrace.torch import DataLoader


class Numbers(torch_data.Dataset):
    """Deterministic samples: (tensor, number)."""

    def __init__(self, count=23, elements=3000):
        self.count, self.elements = count, elements

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((self.elements,), float(index)), index


class Drawing(Numbers):
    """Samples that draw from all three generators."""

    def __getitem__(self, index):
        if not 0 <= index < self.count:
            raise IndexError(index)
        image = torch.rand(50, 100)
        return image, index, random.random(), np.random.rand(2)


class Stream(torch_data.IterableDataset):
    """Numbers, divided among workers; each with a random number."""

    def __init__(self, count=20):
        self.count = count

    def __iter__(self):
        info = torch_data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, self.count, step):
            yield torch.full((2000,), float(index)), float(torch.rand(()))

    def __len__(self):
        return self.count


def same(a, b):
    """Whether two batches are equal in structure, types and values."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return type(a) is type(b) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def copied(batch):
    """A copy that does not keep the loader's memory."""
    if isinstance(batch, torch.Tensor):
        return batch.clone()
    if isinstance(batch, (list, tuple)):
        return [copied(one) for one in batch]
    return batch


def equal_to_torch(dataset, **arguments):
    ours = DataLoader(dataset, **arguments)
    theirs = torch_data.DataLoader(dataset, **arguments)
    assert not ours.is_native
    try:
        assert len(ours) == len(theirs)
    except TypeError:
        pass
    pairs = list(itertools.zip_longest(ours, theirs))
    assert pairs and all(same(a, b) for a, b in pairs)
    ours.close()


class Sized:
    """Its indices are pairs: a number and a size."""

    def __getitem__(self, key):
        return torch.full((key[1],), key[0])


class StreamOfNumbers(torch_data.IterableDataset):
    def __iter__(self):
        return iter(torch.full((5000,), i) for i in range(11))


def batches(loader):
    return [copied(batch) for batch in loader]
