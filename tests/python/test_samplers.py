"""Samplers of the user: torch's, endless, faulty, with batches of any size."""

import itertools
import random
import signal

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from conftest import COUNT
from headrace.torch import DataLoader
from test_loader import rows


def batches_of(loader, count=None):
    return [index.tolist() for *_, index in itertools.islice(loader, count)]


class Followed(DistributedSampler):
    """Every class except DistributedSampler itself is followed index by index."""


def flat(batches):
    return [i for batch in batches for i in batch]


def test_torch_samplers_are_followed_exactly(dataset):
    def samplers():
        g = torch.Generator().manual_seed(1)
        yield RandomSampler(dataset, generator=g)
        yield SubsetRandomSampler(range(5, 25), generator=g)
        yield WeightedRandomSampler(np.arange(1, COUNT + 1), 50, generator=g)
        yield Followed(dataset, 3, 1, seed=4)
        yield SequentialSampler(dataset)

    for ours, theirs in zip(samplers(), samplers()):
        loader = DataLoader(dataset, 4, sampler=ours, return_index=True)
        stock = torch.utils.data.DataLoader(range(COUNT), 4, sampler=theirs)
        assert len(loader) == len(stock)
        for _ in range(2):
            assert batches_of(loader) == [b.tolist() for b in stock]


def test_rows_are_the_samples_asked_for(dataset, recipe):
    order = [7, 0, 30, 12, 5]
    loader = DataLoader(dataset, 3, sampler=order, return_index=True)
    assert [labels.tolist() for _, labels, _ in loader] == [
        [dataset.targets[i] for i in order[:3]],
        [dataset.targets[i] for i in order[3:]],
    ]
    plain = DataLoader(dataset, COUNT, sampler=order, transform=recipe)
    position = [len(order) and p for p in range(len(order))]
    expected = torch.cat(
        [rows(dataset, recipe, [i], epoch=p << 32) for i, p in zip(order, position)]
    )
    assert torch.equal(next(iter(plain))[0], expected)


def test_repeats_are_different_pictures(dataset):
    loader = DataLoader(dataset, 2, sampler=[3, 3, 3, 3])
    pictures = [row for images, _ in loader for row in images.clone()]
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(pictures, 2))


def test_ranks_draw_differently(dataset, monkeypatch):
    """Also if the rank is known only when the first epoch begins."""

    def pictures(loader):
        return [row for images, _ in loader for row in images.clone()]

    def make(**options):
        return DataLoader(dataset, 2, sampler=[3, 3, 4, 3, 4], **options)

    alone, late = pictures(make()), make()
    given = [pictures(make(rank=rank, world_size=2)) for rank in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(alone, given[0], strict=True))
    assert not any(torch.equal(a, b) for a, b in itertools.product(*given))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert all(torch.equal(a, b) for a, b in zip(pictures(late), given[1], strict=True))
    again = make()
    again.load_state_dict({**late.state_dict(), "epoch": 0})
    assert all(torch.equal(a, b) for a, b in zip(pictures(again), given[1], strict=True))


def test_drop_last_cuts_a_sampler(dataset):
    loader = DataLoader(dataset, 4, sampler=range(10), drop_last=True, return_index=True)
    assert len(loader) == 2 and batches_of(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_endless_sampler_is_asked_a_few_batches_ahead(dataset):
    taken = []

    class Endless:
        def __iter__(self):
            for i in itertools.count():
                taken.append(i)
                yield i % COUNT

    loader = DataLoader(dataset, 4, sampler=Endless(), prefetch_factor=2, return_index=True)
    with pytest.raises(TypeError):
        len(loader)
    assert flat(batches_of(loader, 30)) == [i % COUNT for i in range(120)]
    assert len(taken) <= 120 + 3 * 4
    assert flat(batches_of(loader, 2)) == list(range(8))


def test_batch_sampler_of_torch(dataset):
    sampler = BatchSampler(SequentialSampler(dataset), 5, drop_last=False)
    loader = DataLoader(dataset, batch_sampler=sampler, return_index=True)
    assert len(loader) == 8 and loader.batch_size is None
    assert loader.batch_sampler is sampler
    assert flat(batches_of(loader)) == list(range(COUNT))
    assert loader.stats()["slot_bytes"] > 0


def test_batches_of_any_size(dataset):
    """Batches larger than any before make the loader grow, with no other effect."""
    sizes = [1, 1, 3, 2, 9, 1, 4, 17, 30, 2]
    order = iter(itertools.cycle(range(COUNT)))
    batches = [[next(order) for _ in range(n)] for n in sizes]
    loader = DataLoader(dataset, batch_sampler=batches, return_index=True)
    expected = DataLoader(dataset, sampler=flat(batches))
    for _ in range(2):
        made = [(i.clone(), x.tolist()) for i, _, x in loader]
        assert [x for _, x in made] == batches
        assert torch.equal(torch.cat([i for i, _ in made]), torch.cat([i for i, _ in expected]))
    assert loader.stats()["samples"] >= 2 * sum(sizes)
    assert loader.stats()["batches"] == 2 * len(sizes)


def test_indices_of_other_kinds(dataset):
    for batches in ([torch.tensor([1, 2]), np.array([3])], [(np.int64(1), 2), range(3, 4)]):
        loader = DataLoader(dataset, batch_sampler=batches, return_index=True)
        assert batches_of(loader) == [[1, 2], [3]]


def test_what_a_sampler_raises_comes_at_its_turn(dataset):
    class Broken:
        def __iter__(self):
            yield from range(6)
            raise KeyError("broken")

    loader = DataLoader(dataset, 2, sampler=Broken(), return_index=True)
    for _ in range(2):
        epoch = iter(loader)
        assert [next(epoch)[2].tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
        with pytest.raises(KeyError, match="broken"):
            next(epoch)
        with pytest.raises(StopIteration):
            next(epoch)


class Interrupted:
    """Raises KeyboardInterrupt once, at its tenth index."""

    def __init__(self):
        self.left = 1

    def __iter__(self):
        for i in range(20):
            if i == 9 and self.left:
                self.left -= 1
                signal.raise_signal(signal.SIGINT)
            yield (i * 7) % COUNT


@pytest.mark.parametrize("batched", [False, True])
def test_ctrl_c_in_a_sampler_is_no_end_of_the_epoch(dataset, batched):
    def make():
        sampler = Interrupted()
        if batched:
            return DataLoader(dataset, batch_sampler=BatchSampler(sampler, 2, False), return_index=True)
        return DataLoader(dataset, 2, sampler=sampler, return_index=True)

    whole = [[(i * 7) % COUNT, ((i + 1) * 7) % COUNT] for i in range(0, 20, 2)]
    loader, seen = make(), []
    epoch = iter(loader)
    with pytest.raises(KeyboardInterrupt):
        for *_, index in epoch:
            seen.append(index.tolist())
    state = loader.state_dict()
    assert seen == whole[: len(seen)] and len(seen) < 4
    with pytest.raises(RuntimeError, match="stopped by KeyboardInterrupt"):
        for *_, index in epoch:  # indices taken before the exception still come
            seen.append(index.tolist())
    assert seen == whole[:4]
    with pytest.raises(StopIteration):
        next(epoch)
    loader.load_state_dict(state)
    assert batches_of(loader) == whole[state["position"] // 2 :]
    assert batches_of(loader) == whole


def test_ctrl_c_when_a_sampler_begins(dataset):
    class Late(Interrupted):
        def __iter__(self):
            if self.left:
                self.left -= 1
                signal.raise_signal(signal.SIGINT)
            yield from range(6)

    loader = DataLoader(dataset, 2, sampler=Late(), return_index=True)
    with pytest.raises(KeyboardInterrupt):
        iter(loader)
    assert loader.state_dict()["epoch"] == 0
    assert batches_of(loader) == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("sampler", "error"),
    [([0, COUNT], IndexError), ([0, -1], IndexError), (["a"], TypeError), ([1.5], TypeError)],
)
def test_indices_that_are_none(dataset, sampler, error):
    with pytest.raises(error) as caught:
        list(DataLoader(dataset, 1, sampler=sampler))
    if error is IndexError:
        assert str(caught.value) == f"there is no sample {sampler[1]}: the dataset has {COUNT}, from 0 on"


def test_empty_batches_and_empty_samplers(dataset):
    assert list(DataLoader(dataset, 2, sampler=[])) == []
    with pytest.raises(ValueError, match="empty batch"):
        list(DataLoader(dataset, batch_sampler=[[1], []]))


def test_set_epoch_reaches_the_sampler(dataset):
    sampler = Followed(dataset, 2, 0)
    loader = DataLoader(dataset, 4, sampler=sampler, return_index=True)
    first = batches_of(loader)
    assert batches_of(loader) == first  # as with torch: unless the script numbers them
    loader.set_epoch(1)
    assert sampler.epoch == 1 and batches_of(loader) != first
    begun = iter(loader)
    sampler.set_epoch(0)  # after iter(), before the first batch
    assert [index.tolist() for *_, index in begun] == first
    inside = DataLoader(dataset, batch_sampler=BatchSampler(sampler, 4, False))
    inside.set_epoch(5)
    assert sampler.epoch == 5


@pytest.mark.parametrize("when", ["before the loader", "before iter", "after iter"])
def test_draws_follow_the_samplers_epoch(dataset, when):
    """A run that begins at a later epoch draws what is drawn there, by a script that knows the sampler
    alone."""

    def images(loader):
        return torch.cat([batch for batch, *_ in loader])

    sampler = Followed(dataset, 2, 0)
    loader = DataLoader(dataset, 4, sampler=sampler)
    whole = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        whole.append(images(loader))
    sampler.set_epoch(1)  # back: the order is that of epoch 1, and what is drawn is new
    state = loader.state_dict()
    assert state["epoch"] == 3 and not torch.equal(images(loader), whole[1])

    later = Followed(dataset, 2, 0)
    if when == "before the loader":
        later.set_epoch(1)
    again = DataLoader(dataset, 4, sampler=later)
    begun = iter(again) if when == "after iter" else again
    later.set_epoch(1)
    assert again.state_dict()["epoch"] == 1
    assert torch.equal(images(begun), whole[1])
    later.set_epoch(2)
    assert again.state_dict()["epoch"] == 2
    assert torch.equal(images(again), whole[2])
    assert not torch.equal(images(again), whole[2])  # nobody says which epoch this is


# Resuming with a sampler


def resume_everywhere(make, steps=3):
    """Resumes at every batch: the following batches are the same as without it."""
    import json

    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    loader = make()
    states, made = [], []
    for _ in range(2):
        for images, _, index in loader:
            made.append((images.clone(), index.tolist()))
            states.append(json.loads(json.dumps(loader.state_dict())))
            torch.rand(3), random.random(), np.random.rand()  # training draws random numbers, too
    per_epoch = len(made) // 2
    for at in range(0, per_epoch, steps):
        torch.manual_seed(99 + at)
        again = make()
        again.load_state_dict(states[at])
        before = torch.get_rng_state(), random.getstate()
        rest = [(i.clone(), x.tolist()) for i, _, x in again]
        assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]
        expected = made[at + 1 : per_epoch]
        assert [x for _, x in rest] == [x for _, x in expected]
        assert all(torch.equal(a, b) for (a, _), (b, _) in zip(rest, expected))


def test_resume_replays_torchs_samplers(dataset):
    def loader(sampler=None, **more):
        return DataLoader(dataset, 4, sampler=sampler, return_index=True, **more)

    resume_everywhere(lambda: loader(RandomSampler(dataset)))
    resume_everywhere(lambda: loader(RandomSampler(dataset, generator=torch.Generator())))
    resume_everywhere(lambda: loader(WeightedRandomSampler([1.0] * COUNT, 30)))

    def distributed():
        sampler = Followed(dataset, 2, 1)
        sampler.set_epoch(3)
        return loader(sampler)

    resume_everywhere(distributed)
    resume_everywhere(
        lambda: DataLoader(
            dataset,
            batch_sampler=BatchSampler(RandomSampler(dataset), 7, True),
            return_index=True,
        ),
        steps=1,
    )


def test_resume_restores_the_samplers_epoch(dataset):
    sampler = Followed(dataset, 2, 0)
    sampler.set_epoch(5)
    loader = DataLoader(dataset, 4, sampler=sampler, return_index=True)
    epoch = iter(loader)
    next(epoch)
    state = loader.state_dict()
    rest = [x.tolist() for *_, x in epoch]
    other = DataLoader(
        dataset, 4, sampler=Followed(dataset, 2, 0), return_index=True
    )
    other.load_state_dict(state)
    assert batches_of(other) == rest


class Stateful:
    """Shuffles with a generator that it draws from continuously; keeps its own state."""

    def __init__(self, count):
        self.count, self.random, self.given = count, random.Random(3), 0

    def __iter__(self):
        while self.given < self.count:
            self.given += 1
            yield self.random.randrange(COUNT)
        self.given = 0

    def state_dict(self):
        return {"random": self.random.getstate(), "given": self.given}

    def load_state_dict(self, state):
        version, words, gauss = state["random"]
        self.random.setstate((version, tuple(words), gauss))
        self.given = state["given"]


def test_resume_uses_a_samplers_own_state(dataset):
    def make():
        return DataLoader(dataset, 4, sampler=Stateful(30), return_index=True)

    resume_everywhere(make, steps=1)
    fresh = make()
    state = fresh.state_dict()
    first = batches_of(fresh)
    other = make()
    other.load_state_dict(state)
    assert batches_of(other) == first


class StatefulIterator:
    def __init__(self):
        self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= 20:
            raise StopIteration
        self.at += 1
        return (self.at * 7) % COUNT

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class WithStatefulIterator:
    def __iter__(self):
        return StatefulIterator()


def test_resume_uses_an_iterators_own_state(dataset):
    resume_everywhere(
        lambda: DataLoader(dataset, 3, sampler=WithStatefulIterator(), return_index=True), steps=1
    )


def test_state_before_the_first_batch_with_a_sampler(dataset):
    loader = DataLoader(dataset, 4, sampler=RandomSampler(dataset), return_index=True)
    epoch = iter(loader)
    state = loader.state_dict()
    expected = [x.tolist() for *_, x in epoch]
    again = DataLoader(dataset, 4, sampler=RandomSampler(dataset), return_index=True)
    again.load_state_dict(state)
    assert batches_of(again) == expected


def test_resume_far_into_an_endless_sampler(dataset):
    class Endless:
        def __iter__(self):
            return (i * i % COUNT for i in itertools.count())

    def make():
        return DataLoader(dataset, 4, sampler=Endless(), return_index=True)

    loader = make()
    epoch = iter(loader)
    for _ in range(50):
        next(epoch)
    state = loader.state_dict()
    assert state["position"] == 200 > COUNT
    again = make()
    again.load_state_dict(state)
    for (a, _, x), (b, _, y) in itertools.islice(zip(epoch, again), 5):
        assert torch.equal(a, b) and torch.equal(x, y)


def test_resume_notices_another_sampler(dataset):
    loader = DataLoader(dataset, 4, sampler=range(30))
    for _ in zip(range(5), loader):
        pass
    state = loader.state_dict()
    other = DataLoader(dataset, 4, sampler=range(9))
    other.load_state_dict(state)
    with pytest.raises(ValueError, match="ended after 9 of 20"):
        iter(other)
    with pytest.raises(ValueError, match="with a sampler"):
        DataLoader(dataset, 4).load_state_dict(state)
