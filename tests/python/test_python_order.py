"""Samples in Python: their seeds and their order, and resuming."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import torch
import torch.utils.data as torch_data

import headrace
from headrace import transforms as T
from headrace.torch import DataLoader
from python_samples import Drawing, Numbers, Stream, StreamOfNumbers, batches, same


def test_results_do_not_depend_on_workers():
    expected = batches(DataLoader(Drawing(), 4, shuffle=True, seed=5))
    for arguments in (
        {"num_workers": 1},
        {"num_workers": 3},
        {"num_workers": 2, "persistent_workers": True},
    ):
        loader = DataLoader(Drawing(), 4, shuffle=True, seed=5, **arguments)
        first, second = batches(loader), batches(loader)
        assert same(first, expected)
        assert not same(first, second)
        loader.set_epoch(0)
        assert same(batches(loader), expected)
    other = batches(DataLoader(Drawing(), 4, shuffle=True, seed=6))
    assert not same(other, expected)
    # Other batch sizes have the same samples.
    singles = [one for batch in DataLoader(Drawing(), 1, shuffle=True, seed=5) for one in batch[0]]
    assert torch.equal(torch.stack(singles), torch.cat([batch[0] for batch in expected]))


class Rarely(Numbers):
    """Only some samples draw."""

    def __getitem__(self, index):
        drawn = random.random() if index in (9, 17, 20) else 0.0
        return torch.full((10,), float(index)), drawn


def test_samples_that_rarely_draw():
    """Samples are not seeded one by one until one of them has drawn a random number."""
    expected = {}
    for batch_size, workers in ((1, 0), (8, 0), (8, 2), (23, 1), (10, 1)):
        loader = DataLoader(Rarely(), batch_size, shuffle=True, num_workers=workers)
        for _ in range(2):
            drawn = {int(x[0]): float(d) for xs, ds in loader for x, d in zip(xs, ds)}
            assert len(drawn) == 23 and len(set(drawn.values())) == 4
            assert expected.setdefault(len(expected) % 2, drawn) is not None
        first = {int(x[0]): float(d) for xs, ds in epoch_of(loader, 0) for x, d in zip(xs, ds)}
        assert first == expected[0]


def epoch_of(loader, epoch):
    loader.set_epoch(epoch)
    return loader


def test_random_parts_behind_a_cache():
    cached = headrace.CachedDataset(Numbers(), "64MiB", after=noisy)
    loaders = [DataLoader(cached, size, num_workers=n) for size, n in ((4, 0), (3, 2))]
    first, second = (torch.cat([numbers for _, numbers in loader]) for loader in loaders)
    assert torch.equal(first, second) and len(set(first.tolist())) == 23
    assert len({n % 1 for n in first.tolist()}) > 20


def noisy(sample):
    return sample[0], sample[1] + random.random()


def test_the_scripts_own_random_numbers_are_left_alone():
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    expected = torch.rand(2), random.random(), np.random.rand()
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    list(DataLoader(Drawing(), 4, shuffle=True))
    assert torch.equal(torch.rand(2), expected[0])
    assert (random.random(), np.random.rand()) == expected[1:]


def test_the_order_is_the_native_loaders(folder, torchvision, v2):
    transform = v2.Compose([v2.CenterCrop(8), v2.ToImage()])
    native = DataLoader(headrace.ImageFolder(folder, T.CenterCrop(8)), 4, shuffle=True, seed=3)
    indices = [index for *_, index in DataLoader(
        native.dataset, 4, shuffle=True, seed=3, return_index=True)]
    count = len(native.dataset)
    for drop_last, ranks in ((False, 1), (True, 1), (False, 3), (True, 3)):
        for rank in range(ranks):
            options = {"shuffle": True, "seed": 3, "drop_last": drop_last, "return_index": True}
            part = {"rank": rank, "world_size": ranks}
            theirs = DataLoader(native.dataset, 4, **options, **part)
            ours = DataLoader(Numbers(count), 4, **options, **part)
            assert len(ours) == len(theirs)
            for (*_, a), (_, number, b) in zip(theirs, ours, strict=True):
                assert torch.equal(a, b) and torch.equal(b, number)
    assert sum(map(len, indices)) == count and transform


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("own_sampler", [False, True])
def test_resuming_is_exact(workers, own_sampler):
    def make():
        arguments = {"num_workers": workers, "seed": 9}
        if own_sampler:
            generator = torch.Generator().manual_seed(4)
            arguments["sampler"] = torch_data.RandomSampler(range(23), generator=generator)
        else:
            arguments["shuffle"] = True
        return DataLoader(Drawing(), 4, **arguments)

    whole = make()
    batches(whole)
    iterator = iter(whole)
    for _ in range(2):
        next(iterator)
    state = whole.state_dict()
    expected = batches(iterator) + batches(whole)
    again = make()
    again.load_state_dict(state)
    assert same(batches(again) + batches(again), expected)


def test_resuming_a_stream_and_another_dataset():
    loader = DataLoader(Stream(), 3, num_workers=2)
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    expected = batches(iterator)
    again = DataLoader(Stream(), 3, num_workers=2)
    again.load_state_dict(state)
    assert same(batches(again), expected) and expected
    with pytest.raises(ValueError, match="another dataset|a dataset of"):
        DataLoader(StreamOfNumbers(), 3).load_state_dict(state)


def test_epochs_left_early_cost_no_slots():
    for persistent in (False, True):
        loader = DataLoader(Numbers(60, 9000), 4, num_workers=2, persistent_workers=persistent)
        for _ in range(6):
            for batch, _ in itertools.islice(loader, 5):
                assert batch.shape == (4, 9000)
        assert 0 < loader.stats()["slots"] <= 8
        assert [int(x[0, 0]) for x, _ in loader] == list(range(0, 60, 4))
