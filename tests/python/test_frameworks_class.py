"""The DataLoader as a torch.utils.data.DataLoader: its class, its attributes, and samplers that say
what it reads."""

import gc
import weakref

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
)

import headrace.transforms as T
from conftest import COUNT
from headrace.torch import DataLoader


def indices_of(loader):
    return [batch[2].tolist() for batch in loader]


def test_it_is_torchs_with_all_of_its_attributes(dataset):
    """Whatever attribute torch's class has, ours has with the same type, or None in both."""
    options = {"num_workers": 2, "drop_last": True, "generator": torch.Generator()}
    ours = DataLoader(dataset, 4, **options)
    theirs = torch.utils.data.DataLoader(dataset, 4, **options)
    assert isinstance(ours, torch.utils.data.DataLoader)
    for name in [name for name in vars(theirs) if name not in ("sampler", "_iterator")]:
        assert type(vars(ours)[name]) is type(vars(theirs)[name]), name
    assert ours.multiprocessing_context is None
    assert ours._index_sampler is ours.batch_sampler and ours._auto_collation


@pytest.mark.parametrize("workers", [None, 0, 3])
def test_numbers_are_what_frameworks_expect(dataset, workers):
    loader = DataLoader(dataset, 4, num_workers=workers)
    assert type(loader.num_workers) is int
    assert loader.num_workers == workers if workers is not None else loader.num_workers >= 1
    assert loader.prefetch_factor == (None if workers == 0 else 2)
    if workers is None:
        assert loader.stats()["threads"] == loader.num_workers


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("size", "ranks"), [(4, 1), (4, 3), (3, 2), (1, 5)])
def test_the_samplers_yield_what_the_loader_reads(dataset, shuffle, drop_last, size, ranks):
    for rank in range(ranks):
        loader = DataLoader(
            dataset, size, shuffle, drop_last=drop_last, return_index=True, rank=rank,
            world_size=ranks,
        )  # fmt: skip
        for epoch in (0, 1, 7):
            loader.sampler.set_epoch(epoch)
            planned = list(loader.batch_sampler)
            assert len(planned) == len(loader.batch_sampler) == len(loader)
            assert [i for batch in planned for i in batch] == list(loader.sampler)
            assert (loader.sampler.rank, loader.sampler.num_replicas) == (rank, ranks)
            assert (loader.sampler.epoch, loader.sampler.shuffle) == (epoch, shuffle)
            assert indices_of(loader) == planned


def test_more_ranks_than_samples(dataset):
    dataset = torch.utils.data.Subset(dataset, [5, 7])
    for rank in range(5):
        loader = DataLoader(dataset, 2, return_index=True, rank=rank, world_size=5)
        assert indices_of(loader) == list(loader.batch_sampler) == [[rank % 2]]


def test_a_sampler_that_outlives_its_loader(dataset):
    batches = DataLoader(dataset, 4).batch_sampler
    gc.collect()
    for use in (list, len):
        with pytest.raises(ReferenceError, match="DataLoader of this sampler no longer exists"):
            use(batches)


def test_kinds_of_samplers(dataset):
    """The classes by which frameworks decide what to do with a loader."""
    plain, shuffled = DataLoader(dataset, 4), DataLoader(dataset, 4, shuffle=True)
    for loader in (plain, shuffled):
        assert isinstance(loader.sampler, DistributedSampler)  # it deals to the ranks itself
        assert type(loader.batch_sampler) is BatchSampler
        assert loader.batch_sampler.sampler is loader.sampler
    assert isinstance(plain.sampler, SequentialSampler)
    assert not isinstance(shuffled.sampler, (SequentialSampler, RandomSampler))

    own = RandomSampler(dataset)
    loader = DataLoader(dataset, 4, sampler=own, drop_last=True)
    assert loader.sampler is own and loader.batch_sampler.sampler is own
    assert (loader.batch_size, loader.batch_sampler.drop_last) == (4, True)

    batches = BatchSampler(own, 3, False)
    loader = DataLoader(dataset, batch_sampler=batches)
    assert loader.batch_sampler is batches and loader.batch_size is None

    stream = DataLoader(torch.utils.data.ChainDataset([]), 3)
    theirs = torch.utils.data.DataLoader(torch.utils.data.ChainDataset([]), 3)
    assert type(stream.sampler) is type(theirs.sampler)
    assert type(stream.batch_sampler) is type(theirs.batch_sampler)

    assert DataLoader([1, 2, 3], None).batch_sampler is None


def test_a_loaded_state_moves_the_sampler(dataset):
    loader = DataLoader(dataset, 4, shuffle=True, seed=5, return_index=True)
    indices_of(loader)
    again = DataLoader(dataset, 4, shuffle=True, return_index=True)
    again.load_state_dict(loader.state_dict())
    assert (again.sampler.seed, again.sampler.epoch) == (5, 1)
    assert list(again.batch_sampler) == indices_of(loader)


def test_a_counter_that_begins_anew_after_a_state_was_loaded(dataset):
    """Fabric sets epoch 0, 1, ... on the sampler in each process."""
    whole = DataLoader(dataset, 4, shuffle=True, return_index=True)
    epochs = [indices_of(whole) for _ in range(5)]
    left = DataLoader(dataset, 4, shuffle=True, return_index=True)
    left.set_epoch(2)
    for _ in zip(range(3), left):
        pass
    again = DataLoader(dataset, 4, shuffle=True, return_index=True)
    again.load_state_dict(left.state_dict())
    again.sampler.set_epoch(0)
    assert indices_of(again) == epochs[2][3:]
    again.sampler.set_epoch(1)
    assert indices_of(again) == epochs[3]
    again.load_state_dict(left.state_dict())
    again.set_epoch(0)  # of the loader it is always the epoch itself
    assert indices_of(again) == epochs[0]


def test_state_dict_at_any_time(dataset):
    loader = DataLoader(dataset, 4, shuffle=True, return_index=True)
    assert loader.state_dict()["position"] == 0
    iterator = iter(loader)
    assert loader.state_dict()["position"] == 0
    next(iterator)
    assert loader.state_dict()["position"] == 4
    for _ in iterator:
        pass
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 0)
    loader.close()
    assert loader.state_dict()["epoch"] == 1


def test_generator_and_shuffle_of_torch_are_kept(dataset):
    generator = torch.Generator().manual_seed(11)
    loader = DataLoader(dataset, 4, shuffle=True, generator=generator)
    assert loader.generator is generator and loader.sampler.seed == 11


def test_arguments_that_torch_refuses_without_workers(dataset):
    """They have no effect on threads, so they are accepted."""
    loader = DataLoader(
        dataset, 4, num_workers=0, persistent_workers=True, multiprocessing_context="spawn",
        prefetch_factor=3,
    )  # fmt: skip
    assert loader.persistent_workers and loader.prefetch_factor == 3
    assert loader.multiprocessing_context is None
    with pytest.raises(ValueError, match="timeout option should be non-negative"):
        DataLoader(dataset, timeout=-1)


def test_a_loader_is_freed_without_a_garbage_collection(dataset):
    gc.disable()
    try:
        loader = DataLoader(dataset, 4)
        next(iter(loader))
        sampler, gone = loader.sampler, weakref.ref(loader)
        del loader
        assert gone() is None
        with pytest.raises(ReferenceError):
            len(sampler)
    finally:
        gc.enable()


def test_what_python_makes(dataset):
    """The samplers of a loader that runs Python are its order, too."""
    loader = DataLoader(list(range(10)), 4, shuffle=True)
    for _ in range(2):
        planned = list(loader.batch_sampler)
        assert [batch.tolist() for batch in loader] == planned


def test_an_order_of_torchs_loader_over_the_samplers(folder):
    """A framework that makes a loader of torch's from dataset and batch sampler reads the same
    samples."""
    import headrace

    data = headrace.ImageFolder(folder, T.Compose([T.Resize((8, 8)), T.ToTensor()]))
    ours = DataLoader(data, 4, shuffle=True)
    theirs = torch.utils.data.DataLoader(data, batch_sampler=ours.batch_sampler)
    for (a, x), (b, y) in zip(theirs, ours, strict=True):
        assert torch.equal(a, b) and torch.equal(x, y)
    assert sum(len(x) for _, x in theirs) == COUNT
