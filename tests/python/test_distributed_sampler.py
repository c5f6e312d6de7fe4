"""The loader's own order replaces torch's DistributedSampler and assigns samples in the same way:
the samples of each rank, padding, epochs; and such a loader supports everything that needs its own
order."""

import itertools
import warnings

import pytest
import torch
from torch.utils.data import DistributedSampler

import headrace
import headrace.transforms as T
from agents import Agent
from conftest import COUNT
from headrace.torch import DataLoader, _order


@pytest.fixture(autouse=True)
def unsaid(monkeypatch):
    monkeypatch.setattr(_order, "_said", False)


def batches_of(loader):
    return [index.tolist() for *_, index in loader]


def flat(batches):
    return list(itertools.chain.from_iterable(batches))


def loaders(dataset, ranks, size=4, drop_last=False, sampler=None, **options):
    samplers = [DistributedSampler(dataset, ranks, r, **(sampler or {})) for r in range(ranks)]
    return [
        DataLoader(dataset, size, sampler=s, drop_last=drop_last, return_index=True, **options)
        for s in samplers
    ]


def torchs(dataset, ranks, size, drop_last, sampler):
    return [
        [b.tolist() for b in torch.utils.data.DataLoader(
            range(len(dataset)), size, drop_last=drop_last,
            sampler=DistributedSampler(dataset, ranks, rank, **sampler),
        )]
        for rank in range(ranks)
    ]  # fmt: skip


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("sampler_drops", [False, True])
@pytest.mark.parametrize("size", [1, 3, 13])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_it_deals_as_torch_does(folder, ranks, size, sampler_drops, drop_last):
    """Unshuffled, batch by batch, with all ways to drop and pad, replaced or followed."""
    for count in (COUNT, 30):
        dataset = torch.utils.data.Subset(
            headrace.ImageFolder(folder, T.CenterCrop(8)), range(count)
        )
        options = {"shuffle": False, "drop_last": sampler_drops}
        ours = loaders(dataset, ranks, size, drop_last, sampler=options, num_workers=0)
        expected = torchs(dataset, ranks, size, drop_last, options)
        assert [batches_of(loader) for loader in ours] == expected
        assert [len(loader) for loader in ours] == [len(batches) for batches in expected]


def test_shuffled_each_sample_comes_once_over_the_ranks(dataset):
    ours = loaders(dataset, 3, sampler={"seed": 7})
    assert all(loader.seed == 7 and loader.shuffle for loader in ours)
    assert [(loader.rank, loader.world_size) for loader in ours] == [(0, 3), (1, 3), (2, 3)]
    epochs = [[flat(batches_of(loader)) for loader in ours] for _ in range(3)]
    for epoch in epochs:
        assert sorted(flat(epoch)) == list(range(COUNT))
    assert epochs[0] != epochs[1] != epochs[2]  # also if the script never calls set_epoch
    own = DataLoader(dataset, 4, shuffle=True, seed=7, rank=1, world_size=3, return_index=True)
    assert [flat(batches_of(own)) for _ in range(3)] == [epoch[1] for epoch in epochs]


def test_set_epoch_of_the_sampler_is_followed(dataset):
    whole = DataLoader(dataset, 4, shuffle=True, return_index=True)
    epochs = [batches_of(whole) for _ in range(6)]
    sampler = DistributedSampler(dataset, 1, 0)
    loader = DataLoader(dataset, 4, sampler=sampler, return_index=True)
    assert loader.sampler is sampler
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert batches_of(loader) == epochs[epoch]
    sampler.set_epoch(5)
    assert loader.state_dict()["epoch"] == 5
    assert batches_of(loader) == epochs[5]
    begun = iter(loader)
    sampler.set_epoch(1)  # after iter(), before the first batch
    assert [index.tolist() for *_, index in begun] == epochs[1]
    loader.set_epoch(4)
    assert sampler.epoch == 4 and batches_of(loader) == epochs[4]
    sampler.set_epoch(2)
    again = DataLoader(dataset, 4, sampler=sampler, return_index=True)
    assert batches_of(again) == epochs[2]


def test_resuming_with_another_number_of_ranks(dataset):
    """As scripts do it: they load the state, then call set_epoch with its epoch."""
    ours = loaders(dataset, 3)
    seen = []
    for loader in ours:
        loader.sampler.set_epoch(2)
        seen += flat(index.tolist() for *_, index in itertools.islice(loader, 2))
    state = ours[0].state_dict()
    assert state["epoch"] == 2 and state["position"] == len(seen) == 24
    for loader in loaders(dataset, 2):
        loader.load_state_dict(state)
        loader.sampler.set_epoch(2)
        seen += flat(batches_of(loader))
    assert set(seen) == set(range(COUNT)) and len(seen) <= COUNT + 1


def test_it_is_logged_once(dataset, caplog):
    for loader in loaders(dataset, 2, sampler={"seed": 3}) + loaders(dataset, 2):
        iter(loader)
    said = [r.message for r in caplog.records if "DistributedSampler" in r.message]
    assert len(said) == 1 and "with its seed 3" in said[0]
    caplog.clear()
    iter(loaders(dataset, 1, sampler={"shuffle": False})[0])
    assert not caplog.records


def test_what_is_followed_as_any_sampler(dataset):
    class Mine(DistributedSampler):
        pass

    other = DistributedSampler(range(COUNT + 1), 2, 0)
    for sampler, more in (
        (Mine(dataset, 2, 0), {}),
        (DistributedSampler(dataset, 2, 0, seed=1), {"seed": 2}),
        (DistributedSampler(dataset, 2, 0), {"generator": torch.Generator().manual_seed(2)}),
        (DistributedSampler(dataset, 2, 0, drop_last=True), {}),
    ):
        loader = DataLoader(dataset, 4, sampler=sampler, return_index=True, **more)
        assert flat(batches_of(loader)) == list(sampler) == flat(batches_of(loader))
        assert loader.state_dict()["external"]
    with pytest.raises(IndexError, match=f"no sample {COUNT}"):
        list(DataLoader(dataset, 1, sampler=other))
    equal = DistributedSampler(dataset, 2, 0, seed=5)
    assert not DataLoader(dataset, 4, sampler=equal, seed=5).state_dict()["external"]


def test_a_state_of_when_it_was_followed_is_refused(dataset):
    class Mine(DistributedSampler):
        pass

    loader = DataLoader(dataset, 4, sampler=Mine(dataset, 2, 0))
    next(iter(loader))
    with pytest.raises(ValueError, match="a subclass of it is followed"):
        DataLoader(dataset, 4, sampler=DistributedSampler(dataset, 2, 0)).load_state_dict(
            loader.state_dict()
        )


def test_an_agent_prepares_for_it(dataset):
    with Agent() as agent, warnings.catch_warnings():
        warnings.simplefilter("error")
        seen = []
        for plain, loader in zip(loaders(dataset, 2), loaders(dataset, 2, agent=agent.socket)):
            for (a, b, x), (c, d, y) in zip(plain, loader, strict=True):
                assert torch.equal(a, c) and torch.equal(b, d) and torch.equal(x, y)
                seen += y.tolist()
            assert agent.subscribers()
            loader.close()
        assert set(seen) == set(range(COUNT))
