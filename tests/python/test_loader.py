"""The DataLoader's behaviour: torch's arguments, batches, epochs, iterators."""

import pickle
import re
import warnings

import pytest
import torch

import headrace
import headrace.transforms as T
from conftest import CLASSES, COUNT
from headrace.torch import DataLoader


def rows(dataset, recipe, indices, *, seed=0, epoch=0, dtype=None):
    """Returns the expected samples of the loader, made one by one."""
    preparer = headrace.Preparer(recipe, dtype=dtype)
    out = []
    for i in indices:
        with open(dataset.samples[i][0], "rb") as file:
            made = preparer(file.read(), seed=seed, epoch=epoch, index=i)
        out.append(torch.from_dlpack(made).clone())
    return torch.stack(out)


def indices_of(loader):
    return [i for batch in loader for i in batch[2].tolist()]


def test_batches_are_the_dataset_in_order(dataset, recipe):
    loader = DataLoader(dataset, batch_size=5)
    seen = 0
    for images, labels in loader:
        assert images.shape == (min(5, COUNT - seen), 3, 32, 32)
        assert images.dtype == torch.float32 and labels.dtype == torch.int64
        assert torch.equal(images, rows(dataset, recipe, range(seen, seen + len(images))))
        assert labels.tolist() == dataset.targets[seen : seen + len(images)]
        seen += len(images)
    assert seen == COUNT and len(loader) == 8


def test_threads_change_nothing(dataset):
    expected = None
    for workers in (None, 0, 1, 2, 5):
        loader = DataLoader(dataset, 7, shuffle=True, num_workers=workers, seed=5)
        batches = [(i.clone(), l.clone()) for _ in range(2) for i, l in loader]
        assert loader.stats()["threads"] == max(1, workers or loader.stats()["threads"])
        if expected is None:
            expected = batches
        assert all(torch.equal(a, b) for x, y in zip(batches, expected) for a, b in zip(x, y))


def test_shuffle_is_a_permutation_that_seed_and_epoch_decide(dataset, recipe):
    loader = DataLoader(dataset, 8, shuffle=True, seed=3, return_index=True)
    orders = []
    for epoch in range(3):
        order = []
        for images, labels, index in loader:
            assert labels.tolist() == [dataset.targets[i] for i in index]
            assert torch.equal(
                images, rows(dataset, recipe, index.tolist(), seed=3, epoch=epoch)
            )
            order += index.tolist()
        orders.append(order)
        assert sorted(order) == list(range(COUNT)) and order != sorted(order)
    assert orders[0] != orders[1] != orders[2]
    again = DataLoader(dataset, 13, shuffle=True, seed=3, return_index=True)
    assert indices_of(again) == orders[0]
    other = DataLoader(dataset, 8, shuffle=True, seed=4, return_index=True)
    assert indices_of(other) != orders[0]


def test_epochs_advance_by_themselves_and_on_request(dataset):
    loader = DataLoader(dataset, 8, shuffle=True, return_index=True)
    orders = [indices_of(loader) for _ in range(4)]
    loader.set_epoch(1)
    assert indices_of(loader) == orders[1]
    assert indices_of(loader) == orders[2]
    loader.set_epoch(0)
    next(iter(loader))  # left early: the next one is a new epoch nevertheless
    assert indices_of(loader) == orders[1]
    loader.sampler.set_epoch(3)
    assert indices_of(loader) == orders[3]
    with pytest.raises(ValueError):
        loader.set_epoch(-1)


def test_augmentation_differs_between_epochs(dataset):
    loader = DataLoader(dataset, 4)
    first = next(iter(loader))[0].clone()
    assert not torch.equal(next(iter(loader))[0], first)


def test_drop_last_and_lengths(dataset):
    for size in (1, 4, 39, 13):
        for drop in (False, True):
            loader = DataLoader(dataset, size, drop_last=drop)
            batches = [len(labels) for _, labels in loader]
            assert len(batches) == len(loader) == (COUNT // size if drop else -(-COUNT // size))
            assert len(iter(loader)) == len(loader)
            assert sum(batches) == (COUNT // size * size if drop else COUNT)
            assert len(loader.sampler) == sum(batches)


def test_batch_larger_than_the_dataset(dataset):
    assert [len(labels) for _, labels in DataLoader(dataset, 100)] == [COUNT]
    with pytest.raises(ValueError, match="drop_last"):
        DataLoader(dataset, 100, drop_last=True)


def test_index_and_path(dataset):
    loader = DataLoader(dataset, 6, shuffle=True, return_index=True, return_path=True)
    for _, _, index, paths in loader:
        assert index.dtype == torch.int64
        assert paths == [dataset.samples[i][0] for i in index]
    _, _, only_paths = next(iter(DataLoader(dataset, 2, return_path=True)))
    assert only_paths == [p for p, _ in dataset.samples[:2]]


def test_types_and_layouts(dataset, recipe):
    exact = next(iter(DataLoader(dataset, 3)))[0]
    nhwc = next(iter(DataLoader(dataset, 3, layout="NHWC")))[0]
    assert nhwc.shape == (3, 32, 32, 3) and torch.equal(nhwc.permute(0, 3, 1, 2), exact)
    last = next(iter(DataLoader(dataset, 3, layout="channels_last")))[0]
    assert last.shape == exact.shape and torch.equal(last, exact)
    assert last.is_contiguous(memory_format=torch.channels_last)
    for dtype in (torch.float16, torch.bfloat16):
        made = next(iter(DataLoader(dataset, 3, dtype=dtype)))[0]
        assert torch.equal(made, exact.to(dtype))
    raw = next(iter(DataLoader(dataset, 3, transform=T.RandomResizedCrop(16))))[0]
    assert raw.dtype == torch.uint8 and raw.shape == (3, 3, 16, 16)
    with pytest.raises(ValueError, match="layout"):
        DataLoader(dataset, layout="HWCN")


def test_transform_of_the_loader_replaces_the_datasets(dataset, v2):
    theirs = v2.Compose([v2.CenterCrop(9), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    images, _ = next(iter(DataLoader(dataset, 2, transform=theirs)))
    assert images.shape == (2, 3, 9, 9)


def test_no_transform_or_no_fixed_size_names_the_remedy(folder):
    with pytest.raises(ValueError, match="CenterCrop"):
        DataLoader(headrace.ImageFolder(folder))
    with pytest.raises(ValueError, match="CenterCrop"):
        DataLoader(headrace.ImageFolder(folder, T.Resize(64)))


def test_batches_may_be_kept_and_changed(dataset, caplog):
    loader = DataLoader(dataset, 4, num_workers=2)
    kept = list(loader)
    copies = [images.clone() for images, _ in kept]
    for images, _ in kept:
        images.mul_(-1)
    again = [images.clone() for images, _ in loader]
    assert len(again) == len(kept)
    assert all(torch.equal(a, -b) for (a, _), b in zip(kept, copies))
    assert loader.stats()["grown_slots"] > 0
    warned = [r for r in caplog.records if r.name == "headrace" and r.levelname == "WARNING"]
    assert len(warned) == 1


def test_a_new_iterator_ends_the_one_before(dataset):
    loader = DataLoader(dataset, 4)
    old = iter(loader)
    next(old)
    new = iter(loader)
    with pytest.raises(RuntimeError, match="two DataLoaders"):
        next(old)
    assert len(list(new)) == 10
    with pytest.raises(StopIteration):
        next(new)
    with pytest.raises(StopIteration):
        next(new)


def test_two_loaders_side_by_side(dataset):
    a, b = DataLoader(dataset, 4), DataLoader(dataset, 4)
    for (x, _), (y, _) in zip(a, b):
        assert torch.equal(x, y)


def test_break_and_exceptions_leave_the_loader_usable(dataset):
    loader = DataLoader(dataset, 4, num_workers=2)
    for _ in range(5):
        for _batch in loader:
            break
    with pytest.raises(ZeroDivisionError):
        for _batch in loader:
            1 / 0
    assert len(list(loader)) == 10


def test_close_and_context_manager(dataset):
    with DataLoader(dataset, 4) as loader:
        kept = next(iter(loader))[0]
        copy = kept.clone()
        live = iter(loader)
    loader.close()
    assert torch.equal(kept, copy)
    for use in (lambda: iter(loader), lambda: len(loader), loader.stats, lambda: next(live)):
        with pytest.raises(RuntimeError, match="closed"):
            use()


def test_stats_add_up(dataset):
    loader = DataLoader(dataset, 4)
    assert loader.stats()["samples"] == 0
    list(loader)
    stats = loader.stats()
    assert stats["samples"] == COUNT and stats["batches"] == 10
    assert stats["prepare"]["count"] == stats["fetch"]["count"] == COUNT
    assert sum(stats["prepare"]["buckets"]) == COUNT
    dataset._dataset.wait_sizes()
    assert stats["bytes_read"] == sum(dataset.sample_bytes(i) for i in range(COUNT))
    assert stats["bad_samples"] == stats["padded_samples"] == 0
    assert loader.skipped() == []


def test_attributes_are_torchs(dataset):
    loader = DataLoader(dataset, 4, drop_last=True, num_workers=2, prefetch_factor=3)
    assert loader.dataset is dataset
    assert (loader.batch_size, loader.drop_last, loader.num_workers) == (4, True, 2)
    assert (loader.prefetch_factor, loader.pin_memory, loader.timeout) == (3, False, 0)
    assert loader.batch_sampler.sampler is loader.sampler and loader.generator is None
    assert loader.collate_fn is torch.utils.data.default_collate
    assert repr(loader).startswith("headrace.torch.DataLoader(39 samples, batch_size=4, ")


def test_arguments_accepted_without_effect(dataset):
    loader = DataLoader(
        dataset,
        4,
        collate_fn=torch.utils.data.default_collate,
        multiprocessing_context="spawn",
        persistent_workers=True,
        pin_memory_device="",
        in_order=False,
        direct_io=True,
        io_uring=False,
        staging_bytes=1 << 20,
    )
    assert torch.equal(next(iter(loader))[0], next(iter(DataLoader(dataset, 4)))[0])
    assert loader.stats()["io_uring"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"timeout": -1}, "timeout"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"batch_size": 2**31}, "batch_size must be at most 2147483647, got 2147483648"),
        ({"num_workers": 2**31}, "num_workers must be at most"),
        ({"prefetch_factor": 2**40}, "prefetch_factor must be at most"),
        ({"staging_bytes": 2**64}, "staging_bytes must be at most"),
        ({"max_pixels": -1}, "max_pixels must be a whole number of at least 1, got -1"),
        ({"max_pixels": 2**64}, "max_pixels must be a whole number of at most"),
        ({"num_workers": -1}, "num_workers"),
        ({"prefetch_factor": 0}, "prefetch_factor"),
        ({"sampler": [0], "shuffle": True}, "exclusive"),
        ({"batch_sampler": [[0]], "batch_size": 4}, "exclusive"),
        ({"batch_sampler": [[0]], "drop_last": True}, "exclusive"),
        ({"sampler": 3}, "iterable"),
        ({"on_error": "ignore"}, "on_error"),
        ({"max_bad_share": 2.0, "on_error": "skip"}, "max_bad_share"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"seed": 1, "generator": torch.Generator()}, "seed or generator"),
        ({"rank": 0}, "world_size"),
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"staging_bytes": 0}, "staging_bytes"),
        ({"dtype": torch.float64}, "float64"),
    ],
)
def test_arguments_that_are_refused_by_name(dataset, arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        DataLoader(dataset, **arguments)


def test_generator_gives_the_seed(dataset):
    generator = torch.Generator().manual_seed(77)
    a = DataLoader(dataset, 4, shuffle=True, generator=generator, return_index=True)
    b = DataLoader(dataset, 4, shuffle=True, seed=77, return_index=True)
    assert indices_of(a) == indices_of(b)
    assert a.seed == 77


def test_pin_memory_without_cuda_warns_as_torch_does(dataset):
    if torch.cuda.is_available():
        pytest.skip("there is CUDA")
    with pytest.warns(UserWarning, match="pin_memory.*no accelerator"):
        loader = DataLoader(dataset, 4, pin_memory=True)
    assert len(list(loader)) == 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DataLoader(dataset, 4)


def test_pin_memory_where_slots_cannot_be_pinned(dataset, monkeypatch):
    """torch reports CUDA but there is no driver: every batch is copied into torch's own pinned
    memory, which a stand-in replaces here."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("HEADRACE_CUDA_LIBRARY", "/nowhere/libcuda.so.1")
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda t: pinned.append(t) or t.clone())
    loader = DataLoader(dataset, 4, pin_memory=True)
    plain = DataLoader(dataset, 4)
    for (a, x), (b, y) in zip(loader, plain, strict=True):
        assert torch.equal(a, b) and torch.equal(x, y)
    assert len(pinned) == 2 * len(loader)


def test_loaders_are_not_pickled(dataset):
    with pytest.raises(TypeError, match="state_dict"):
        pickle.dumps(DataLoader(dataset))


# Datasets


def test_torchvision_folder_and_subsets(folder, torchvision, v2):
    transform = v2.Compose([v2.CenterCrop(20), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    theirs = torchvision.datasets.ImageFolder(folder, transform)
    stock = torch.utils.data.DataLoader(theirs, 8)
    for (a, x), (b, y) in zip(DataLoader(theirs, 8), stock, strict=True):
        assert torch.equal(x, y)
        assert torch.allclose(a, b, atol=1e-6)
    generic = torchvision.datasets.DatasetFolder(
        folder, torchvision.datasets.folder.default_loader, (".jpg", ".png"), transform
    )
    assert len(list(DataLoader(generic, 8))) == 5

    inner = torch.utils.data.Subset(theirs, list(range(30, 0, -1)))
    outer = torch.utils.data.Subset(inner, torch.tensor([3, 1, 1, 20]))
    images, labels, index, paths = next(
        iter(DataLoader(outer, 8, return_index=True, return_path=True))
    )
    assert index.tolist() == [0, 1, 2, 3]
    assert paths == [theirs.samples[i][0] for i in (27, 29, 29, 10)]
    assert labels.tolist() == [theirs.targets[i] for i in (27, 29, 29, 10)]


def test_random_split(dataset):
    train, val = torch.utils.data.random_split(dataset, [0.8, 0.2])
    seen = []
    for part in (train, val):
        for *_, paths in DataLoader(part, 4, shuffle=True, return_path=True):
            seen += paths
    assert sorted(seen) == sorted(p for p, _ in dataset.samples)


def test_lists_of_files(dataset, recipe):
    pairs = headrace.ImageList([(p, n + 5) for p, n in dataset.samples], recipe)
    images, labels = next(iter(DataLoader(pairs, COUNT)))
    assert labels.tolist() == [n + 5 for n in dataset.targets]
    assert torch.equal(images, rows(dataset, recipe, range(COUNT)))


def test_datasets_that_make_their_samples_themselves(dataset, folder, torchvision):
    class Noisy(headrace.ImageFolder):
        def __getitem__(self, index):
            return super().__getitem__(index)

    class Mine(torchvision.datasets.ImageFolder):
        def __getitem__(self, index):
            return super().__getitem__(index)

    class Renamed(torchvision.datasets.ImageFolder):
        """Only the name differs: read natively."""

    class Shorter(torchvision.datasets.ImageFolder):
        def __len__(self):
            return 20

    class Part(torch.utils.data.Subset):
        def __len__(self):
            return 3

    class Ours(headrace.ImageFolder):
        def __len__(self):
            return 20

    class Turned(headrace.ImageFolder):
        def __iter__(self):
            return reversed(list(super().__iter__()))

    transform = T.CenterCrop(8)
    own = [
        (Noisy(folder, transform), "Noisy.* has its own __getitem__"),
        (Mine(folder, transform), "Mine.* has its own __getitem__"),
        (Shorter(folder, transform), "Shorter.* has its own __len__"),
        (torch.utils.data.Subset(Shorter(folder, transform), [1]), "Shorter.* has its own __len__"),
        (Part(dataset, range(9)), "Part.* has its own __len__"),
        (Ours(folder, transform), "Ours.* has its own __len__"),
        (Turned(folder, transform), "Turned.* has its own __iter__"),
        ([1, 2, 3], "builtins.list"),
        (torch.utils.data.TensorDataset(torch.zeros(3)), "TensorDataset"),
        (torch.utils.data.ConcatDataset([dataset]), "ConcatDataset"),
        (torchvision.datasets.ImageFolder(folder, transform, loader=open), "the dataset's loader"),
    ]
    for made, words in own:
        loader = DataLoader(made)
        assert not loader.is_native and re.search(words, headrace.explain(loader))
        assert len(loader) == len(made)
        with pytest.raises(ValueError, match="transform=.*give it to the dataset"):
            DataLoader(made, transform=transform)
    assert len(DataLoader(Renamed(folder), 8, transform=transform)) == 5


def test_empty_subset(dataset):
    with pytest.raises(ValueError, match="no samples"):
        DataLoader(torch.utils.data.Subset(dataset, []))
    with pytest.raises(IndexError):
        DataLoader(torch.utils.data.Subset(dataset, [COUNT]))


# Ranks


def test_ranks_share_an_epoch(dataset):
    for world in (2, 3, 4):
        for drop in (False, True):
            loaders = [
                DataLoader(
                    dataset,
                    4,
                    shuffle=True,
                    drop_last=drop,
                    rank=rank,
                    world_size=world,
                    return_index=True,
                )
                for rank in range(world)
            ]
            seen = [indices_of(loader) for loader in loaders]
            assert len({len(s) for s in seen}) == 1
            assert len({len(loader) for loader in loaders}) == 1
            flat = [i for s in seen for i in s]
            if drop:
                assert len(set(flat)) == len(flat) == COUNT // (4 * world) * 4 * world
            else:
                assert set(flat) == set(range(COUNT))
                assert len(flat) == -(-COUNT // world) * world
            assert all(len(loader.sampler) == len(s) for loader, s in zip(loaders, seen))
            padded = sum(loader.stats()["padded_samples"] for loader in loaders)
            assert padded == len(flat) - len(set(flat))


def test_ranks_come_from_the_environment(dataset, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    loader = DataLoader(dataset, 4, return_index=True)
    assert (loader.rank, loader.world_size) == (1, 3)
    assert indices_of(loader)[:4] == [1, 4, 7, 10]
    single = DataLoader(dataset, 4, rank=0, world_size=1, return_index=True)
    assert indices_of(single) == list(range(COUNT))
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(ValueError, match="RANK"):
        DataLoader(dataset, 4)


def test_ranks_come_from_torch_distributed(dataset, tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        loader = DataLoader(dataset, 4)
        assert (loader.rank, loader.world_size) == (0, 1)
    finally:
        torch.distributed.destroy_process_group()


def test_a_deal_is_distributed_samplers(dataset):
    """Unshuffled, the ranks' samples are those that torch would assign."""
    for rank in range(4):
        theirs = torch.utils.data.DistributedSampler(dataset, 4, rank, shuffle=False)
        ours = DataLoader(dataset, 1, rank=rank, world_size=4, return_index=True)
        assert indices_of(ours) == list(theirs)


def test_classes_reach_the_labels(dataset):
    counts = torch.bincount(torch.cat([labels for _, labels in DataLoader(dataset, 6)]))
    assert counts.tolist() == [13] * len(CLASSES)


@pytest.mark.parametrize("name", ["batch_size", "sampler", "dataset", "drop_last", "rank"])
def test_what_cannot_take_effect_any_more_is_refused(dataset, name):
    loader = DataLoader(dataset, 4)
    before = getattr(loader, name)
    with pytest.raises(ValueError, match=f"{name} cannot be changed"):
        setattr(loader, name, 2)
    assert getattr(loader, name) is before


def test_a_transform_that_was_replaced_is_noticed(folder, recipe):
    dataset = headrace.ImageFolder(folder, recipe)
    loader = DataLoader(torch.utils.data.Subset(dataset, range(8)), 4)
    assert len(list(loader)) == 2
    dataset.transform = headrace.transforms.Compose(recipe.transforms)
    with pytest.raises(RuntimeError, match="transform was replaced"):
        iter(loader)
    assert len(list(DataLoader(dataset, 4, transform=recipe))) == 10


def test_messages_name_the_arguments_of_python(dataset):
    with pytest.raises(ValueError, match=r"^prefetch_factor = 1000000000: must be from 1 to"):
        DataLoader(dataset, prefetch_factor=1_000_000_000)
    with pytest.raises(ValueError, match=r"^num_workers = 1000000: must be from 0 to"):
        DataLoader(dataset, num_workers=1_000_000)
    huge = headrace.ImageList(dataset.samples, headrace.transforms.Resize((20000, 20000)))
    with pytest.raises((MemoryError, ValueError)) as caught:
        next(iter(DataLoader(huge, 1_000_000)))
    assert "batches_ahead" not in str(caught.value)
