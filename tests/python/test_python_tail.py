"""Datasets, transforms and functions in Python behind the DataLoader: any script goes on running.

What the loader yields is compared with torch's own DataLoader over the same dataset wherever torch
is deterministic, and with itself for other numbers of workers and after resuming.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.utils.data as torch_data

import forked
import headrace
from agents import wait_until
from conftest import encode, run_forked, synthetic
from headrace import transforms as T
from headrace.torch import DataLoader

Point = namedtuple("Point", "x y")


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


class Sometimes(Drawing):
    """Some samples are bad."""

    def __getitem__(self, index):
        if index in (3, 11):
            raise ValueError(f"number {index} is broken")
        return super().__getitem__(index)


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


# The same as torch's DataLoader


class Kinds:
    """Targets and samples of every kind."""

    SAMPLES = {
        "float": lambda i: (torch.ones(2), i / 3),
        "vector": lambda i: (torch.ones(2), torch.arange(3) + i),
        "array": lambda i: (np.ones(3000, np.float32) * i, np.int16(i)),
        "text": lambda i: {"image": torch.ones(9000), "name": f"a{i}"},
        "nested": lambda i: {"a": [torch.ones(2), (i, i)], "b": {"c": torch.tensor(i > 2)}},
        "named": lambda i: Point(torch.ones(1), i),
        "tensor": lambda i: torch.full((70, 90), i, dtype=torch.bfloat16),
        "complex": lambda i: torch.full((9000,), complex(i, 1)),
        "empty": lambda i: torch.ones(0, 3),
        "number": lambda i: i,
    }

    def __init__(self, kind):
        self.kind = kind

    def __len__(self):
        return 7

    def __getitem__(self, index):
        return self.SAMPLES[self.kind](index)


@pytest.mark.parametrize("kind", Kinds.SAMPLES)
def test_samples_of_any_kind(kind):
    equal_to_torch(Kinds(kind), batch_size=3, num_workers=1)
    equal_to_torch(Kinds(kind), batch_size=3)


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 4, "drop_last": True, "num_workers": 2},
        {"batch_size": None},
        {"batch_size": None, "num_workers": 2},
        {"batch_size": 4, "sampler": [5, 3, 3, 22, 1, 0], "num_workers": 2},
        {"batch_sampler": [[1, 2], [3], [4, 5, 6, 7, 8]], "num_workers": 2},
        {"batch_size": 4, "num_workers": 3, "prefetch_factor": 1, "persistent_workers": True},
        {"batch_size": 4, "num_workers": 1, "multiprocessing_context": "spawn"},
        {"batch_size": 4, "num_workers": 1, "timeout": 60, "in_order": True},
        {"batch_size": 4, "num_workers": 2, "collate_fn": len},
    ],
)
def test_arguments_mean_what_they_mean_in_torch(arguments):
    equal_to_torch(Numbers(), **arguments)


def test_a_plain_list_and_torchs_own_datasets():
    equal_to_torch([1, 2, 3], batch_size=2)
    equal_to_torch(torch_data.TensorDataset(torch.arange(9), torch.ones(9, 2)), batch_size=2)
    both = torch_data.ConcatDataset([Numbers(), Numbers(5)])
    equal_to_torch(both, batch_size=6, num_workers=2)
    equal_to_torch(torch_data.Subset(both, [3, 1, 27]), batch_size=6)


def test_keys_of_a_samplers_own(tmp_path):
    class Words(dict):
        pass

    words = Words(a=1, b=2, c=3)
    loader = DataLoader(words, batch_size=2, sampler=["c", "a", "b"])
    assert [batch.tolist() for batch in loader] == [[3, 1], [2]]
    sized = DataLoader(Sized(), batch_sampler=[[(0, 8), (1, 8)], [(2, 4)]], num_workers=1)
    assert [tuple(batch.shape) for batch in sized] == [(2, 8), (1, 4)]


class Sized:
    """Its indices are pairs: a number and a size."""

    def __getitem__(self, key):
        return torch.full((key[1],), key[0])


class Batched(Numbers):
    def __getitems__(self, indices):
        return [(torch.ones(2) * i, "many") for i in indices]


def test_getitems_is_used():
    loader = DataLoader(Batched(), batch_size=4, num_workers=1)
    assert all(set(names) == {"many"} for _, names in loader)
    equal_to_torch(Batched(), batch_size=4)


class SometimesBatched(Batched):
    def __getitems__(self, indices):
        return [self[i] for i in indices]

    def __getitem__(self, i):
        if i == 5:
            raise ValueError("number 5 is broken")
        return torch.ones(2) * i, "one"


def test_getitems_of_a_bad_sample():
    loader = DataLoader(SometimesBatched(), 4, on_error="skip", max_bad_share=0.5)
    made = list(loader)
    assert sum(len(names) for _, names in made) == len(SometimesBatched())
    assert [one.index for one in loader.skipped()] == [5]
    with pytest.raises(ValueError, match="number 5"):
        list(DataLoader(SometimesBatched(), 4))


def test_ragged_batches_of_an_own_collate_fn():
    def collate(samples):
        return [torch.ones(i + 1, 700) * i for _, i in samples], [i for _, i in samples]

    for workers in (0, 2):
        equal_to_torch(Numbers(), batch_size=5, collate_fn=collate, num_workers=workers)


def test_iterable_datasets():
    for workers in (0, 1, 3):
        ours = DataLoader(Stream(), batch_size=4, num_workers=workers)
        theirs = torch_data.DataLoader(Stream(), batch_size=4, num_workers=workers)
        assert len(ours) == len(theirs)
        for (a, _), (b, _) in itertools.zip_longest(ours, theirs):
            assert torch.equal(a, b)
    equal_to_torch(StreamOfNumbers(), batch_size=4, num_workers=2, drop_last=True)
    equal_to_torch(StreamOfNumbers(), batch_size=None, num_workers=2)
    equal_to_torch(StreamOfNumbers(), batch_size=4, num_workers=2, persistent_workers=True)
    with pytest.raises(ValueError, match="unspecified shuffle option"):
        DataLoader(Stream(), shuffle=True)
    with pytest.raises(ValueError, match="unspecified sampler option"):
        DataLoader(Stream(), sampler=[1])


class StreamOfNumbers(torch_data.IterableDataset):
    def __iter__(self):
        return iter(torch.full((5000,), i) for i in range(11))


def test_streams_without_batches_come_through_slots():
    """After an epoch that was left early, and beside another stream in this process."""
    next(iter(DataLoader(StreamOfNumbers(), batch_size=4)))
    loader = DataLoader(
        StreamOfNumbers(), batch_size=None, num_workers=2, persistent_workers=True
    )
    expected = [i for i in range(11) for _ in range(2)]
    for epoch in range(4):
        if epoch == 2:
            for _, batch in zip(range(3), loader):
                assert batch.shape == (5000,)
            continue
        assert [int(batch[0]) for batch in loader] == expected
    held = list(itertools.islice(loader, 4))
    assert [int(x.max()) for x in held] == expected[:4]
    assert all("headrace-batches" in mapping_of(x) for x in held)
    loader.close()


def test_samples_of_any_strides_are_stacked_in_slots():
    """Images made of PIL's have their channels last, whatever their shape says."""

    class Images(Numbers):
        def __getitem__(self, index):
            side = 40 if self.elements else 3
            image = torch.full((side, side, 3), index, dtype=torch.uint8).permute(2, 0, 1)
            return image, image.half().transpose(1, 2)

    for elements in (0, 1):
        dataset = Images(20, elements)
        equal_to_torch(dataset, batch_size=5, num_workers=2)
        loader = DataLoader(dataset, batch_size=5, num_workers=2, persistent_workers=True)
        for _ in range(2):  # slots are made when the first batch was seen
            for batch in loader:
                assert all(x.is_contiguous() for x in batch)
        assert ("headrace-batches" in mapping_of(batch[0])) == bool(elements)
        loader.close()


def mapping_of(tensor):
    """The line of /proc/self/maps that has the tensor's memory."""
    at = tensor.data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, end = (int(part, 16) for part in line.split()[0].split("-"))
        if first <= at < end:
            return line
    return ""


def test_worker_init_fn_and_worker_info():
    def begin(worker):
        info = torch_data.get_worker_info()
        assert isinstance(info.dataset, Numbers) and info.id == worker
        info.dataset.elements = 5000 + worker

    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, worker_init_fn=begin)
    assert [len(x[0]) for x, _ in loader] == [5000, 5001] * 3


def test_persistent_workers_stay_and_others_end():
    def pids(loader):
        return {int(pid) for batch in loader for pid in batch}

    class Pid(Numbers):
        def __getitem__(self, index):
            return os.getpid()

    kept = DataLoader(Pid(), 4, num_workers=2, persistent_workers=True)
    assert pids(kept) == pids(kept) and os.getpid() not in pids(kept)
    fresh = DataLoader(Pid(), 4, num_workers=2)
    assert not pids(fresh) & pids(fresh)


# Images: C does the head


def test_native_head_and_python_tail(folder, torchvision, v2):
    seen = []

    def look(image):
        seen.append(image)
        return image

    steps = [v2.RandomResizedCrop(24), v2.RandomHorizontalFlip(), look]
    steps += [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5], [0.5])]
    tail = torchvision.datasets.ImageFolder(folder, v2.Compose(steps))
    steps = [step for step in steps if step is not look]
    native = torchvision.datasets.ImageFolder(folder, v2.Compose(steps))
    options = {"batch_size": 8, "shuffle": True, "seed": 7}
    expected = list(DataLoader(native, **options))
    for workers in (0, 2):
        loader = DataLoader(tail, num_workers=workers, **options)
        assert not loader.is_native
        for (a, x), (b, y) in zip(loader, expected, strict=True):
            assert torch.equal(x, y)
            assert (a - b).abs().max() < 0.51 / 255 / 0.5  # the tail's images are rounded
    assert seen and all(one.mode == "RGB" and one.size == (24, 24) for one in seen)
    text = loader.explain()
    assert "In C: reading, decoding, RandomResizedCrop, RandomHorizontalFlip" in text
    assert "look, ToImage, ToDtype, Normalize" in text and "ms in C" in text


def test_the_tail_gets_what_torchvision_would_give(folder, torchvision, v1, v2):
    from torchvision import tv_tensors

    def tails(*steps, workers=0):
        seen = []
        dataset = torchvision.datasets.ImageFolder(
            folder, v2.Compose([v2.CenterCrop(20), *steps, lambda x: seen.append(x) or 1])
        )
        list(DataLoader(dataset, 8))
        return dataset, seen

    for steps, kind in (
        ([v2.ToImage()], tv_tensors.Image),
        ([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)], tv_tensors.Image),
        ([v1.PILToTensor()], torch.Tensor),
        ([v1.ToTensor()], torch.Tensor),
        ([v2.ToImage(), v2.ToPureTensor()], torch.Tensor),
    ):
        dataset, seen = tails(*steps)
        theirs = []
        dataset.transform.transforms[-1] = lambda x: theirs.append(x) or 1
        list(torch_data.DataLoader(dataset, 8))
        assert len(seen) == len(theirs) > 0
        for a, b in zip(seen, theirs):
            assert type(a) is type(b) is kind and a.dtype == b.dtype and torch.allclose(a, b)


def test_only_decoding_is_native(folder, torchvision, v1):
    """Without a head of one size all of the transform is the tail."""

    def halve(image):
        return image.resize((16, 16))

    dataset = torchvision.datasets.ImageFolder(
        folder, v1.Compose([v1.Resize(30), halve, v1.ToTensor()])
    )
    equal_to_torch(dataset, batch_size=8, num_workers=2)
    loader = DataLoader(dataset, batch_size=8)
    assert "In C: reading, decoding" in loader.explain()
    # One image a batch needs no size at all.
    equal_to_torch(torchvision.datasets.ImageFolder(folder, v1.ToTensor()), batch_size=1)


def test_timms_image_dataset_is_native(folder, v1, tmp_path):
    """Samples, labels and order are timm's, which sorts c2 before c10."""
    create = pytest.importorskip("timm.data").create_dataset
    for number in (10, 2, 1):
        (tmp_path / f"c{number}").mkdir()
        for i in (11, 2):
            synthetic(30, 40, number + i).save(tmp_path / f"c{number}" / f"{i}.jpg")
    transform = v1.Compose([v1.CenterCrop(24), v1.ToTensor()])
    for root, class_map in ((folder, ""), (tmp_path, ""), (tmp_path, {"c1": 7, "c10": 3})):
        theirs = create("", str(root), class_map=class_map, transform=transform)
        ours = DataLoader(theirs, 4, return_path=True)
        assert ours.is_native
        rows = [row for images, labels, paths in ours for row in zip(images, labels, paths)]
        assert len(rows) == len(theirs)
        for (image, label, path), (expected, target), (file, _) in zip(
            rows, theirs, theirs.reader.samples, strict=True
        ):
            assert path == file and label == target
            assert (image - expected).abs().max() <= 1.01 / 255
        part = DataLoader(torch_data.Subset(theirs, [2, 0]), 2)
        assert part.is_native and next(iter(part))[1].tolist() == [rows[2][1], rows[0][1]]
        tail = create("", str(root), class_map=class_map, transform=v1.Compose([halved, v1.ToTensor()]))
        equal_to_torch(tail, batch_size=3, num_workers=1)

    class Mine(type(theirs)):
        def __getitem__(self, index):
            return super().__getitem__(index)

    for other in (
        Mine(str(tmp_path), transform=transform),
        create("", str(tmp_path), transform=transform, input_img_mode="L"),
        create("", str(tmp_path), transform=v1.Compose([len]), load_bytes=True),
    ):
        assert not DataLoader(other, 2).is_native


def test_explain_suggests_mix(folder, v2):
    dataset = headrace.ImageFolder(folder, [T.CenterCrop(20), T.ToTensor()])
    mix = v2.RandomChoice([v2.CutMix(num_classes=9), v2.MixUp(num_classes=9)])

    def collate(samples):
        return mix(*torch_data.default_collate(samples))

    class Collate:
        def __init__(self):
            self.mix = v2.MixUp(num_classes=9)

        def __call__(self, samples):
            return self.mix(*torch_data.default_collate(samples))

    for function, name in ((collate, "CutMix and MixUp"), (Collate(), "MixUp")):
        text = headrace.explain(DataLoader(dataset, 4, collate_fn=function))
        assert f"uses {name}: if it does nothing else" in text and "mix=" in text
    others = (lambda samples: samples, torch_data.default_convert, print)
    for function in others:
        assert "mix=" not in headrace.explain(DataLoader(dataset, 4, collate_fn=function))
    # not where Python has to run anyway
    dataset = headrace.ImageFolder(folder, [T.CenterCrop(20), T.ToTensor()], target_transform=abs)
    assert "mix=" not in headrace.explain(DataLoader(dataset, 4, collate_fn=collate))


def test_target_transform_and_collate_fn_with_native_images(folder, torchvision, v2):
    transform = v2.Compose([v2.CenterCrop(20), v2.ToImage()])
    dataset = torchvision.datasets.ImageFolder(folder, transform, lambda label: label / 2)
    equal_to_torch(dataset, batch_size=8, num_workers=1)
    plain = torchvision.datasets.ImageFolder(folder, transform)
    collate = lambda samples: {"x": torch.stack([x for x, _ in samples]), "n": len(samples)}  # noqa: E731
    equal_to_torch(plain, batch_size=8, collate_fn=collate, num_workers=1)
    assert "CenterCrop" in DataLoader(plain, 8, collate_fn=collate).explain()
    ours = headrace.ImageFolder(folder, T.CenterCrop(20), target_transform=str)
    images, labels = next(iter(DataLoader(ours, 4)))
    assert images.shape == (4, 3, 20, 20) and labels == ("0",) * 4
    assert ours[0][1] == "0"


def halved(image):
    return image.resize((12, 12))


def as_tensor(image):
    return torch.from_numpy(np.array(image))


def test_spawned_workers_make_the_head(folder):
    dataset = headrace.ImageFolder(folder, [T.CenterCrop(24), halved, as_tensor])
    subset = torch_data.Subset(dataset, range(5, 20))
    equal_to_torch(subset, batch_size=4, num_workers=1, multiprocessing_context="spawn")


def test_formats_that_only_pillow_reads(tmp_path, torchvision, v2):
    (tmp_path / "a").mkdir()
    for i, kind in enumerate(("JPEG", "PNG", "TIFF", "BMP")):
        (tmp_path / "a" / f"{i}.{kind.lower()}").write_bytes(encode(synthetic(40, 30, i), kind))
    steps = [v2.CenterCrop(20), lambda image: image, v2.ToImage()]
    found = torchvision.datasets.DatasetFolder(
        tmp_path,
        torchvision.datasets.folder.default_loader,
        (".jpeg", ".png", ".tiff", ".bmp"),
        v2.Compose(steps),
    )
    equal_to_torch(found, batch_size=5)


def test_our_datasets_take_transforms_with_a_tail(folder, v2):
    dataset = headrace.ImageFolder(folder, v2.Compose([v2.CenterCrop(20), lambda x: x, v2.ToImage()]))
    image, label = dataset[2]
    assert image.shape == (3, 20, 20)
    images, labels = next(iter(DataLoader(dataset, 4, num_workers=1)))
    assert torch.equal(images[2], image) and labels[2] == label
    with pytest.raises(ValueError, match="headrace.transforms cannot follow"):
        headrace.ImageFolder(folder, [lambda x: x, T.CenterCrop(8)])


# Seeds, order, resuming


def batches(loader):
    return [copied(batch) for batch in loader]


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


# Memory


def test_tensors_stay_valid_and_slots_come_back():
    loader = DataLoader(Numbers(200, 9000), 4, num_workers=2)
    kept = list(loader)  # more than there are slots: the rest goes torch's way
    assert [int(x[0, 0]) for x, _ in kept] == list(range(0, 200, 4))
    assert all(torch.equal(x[:, 1].long(), numbers) for x, numbers in kept)
    views = [x[2, 5:9] for x, _ in kept]
    kept[3][0].add_(1)
    del kept
    for number, view in enumerate(views):
        assert set(view.tolist()) == {number * 4 + 2 + (number == 3)}
    del views
    for x, numbers in loader:
        assert torch.equal(x[:, 1].long(), numbers)
        x.mul_(-1)  # it is the consumer's


def test_a_batch_of_an_abandoned_task_takes_no_slot():
    """As when torch's thread that pins takes a message while an epoch is left."""
    from headrace.torch._ring import Ring, Window

    ring = Ring(2)
    window = Window(ring)
    window.open(None)
    assert ring.unpack(0, window.pack(torch.zeros(9000)), window.need) is not None
    window.open(ring.take(1))
    data = window.pack(torch.ones(9000))
    slots = ring.abandon()
    assert len(slots) == 1 and ring.unpack(1, data, window.need) is None
    ring.give_back(slots)
    window.open(ring.take(2))
    assert torch.equal(ring.unpack(2, window.pack(torch.ones(9000)), window.need), torch.ones(9000))
    assert ring.abandon() == [] and ring.stats()["slots"] == 1


def test_a_forked_child_keeps_its_batches():
    loader = DataLoader(Numbers(200, 9000), 4, num_workers=1)
    iterator = iter(loader)
    held = [next(iterator) for _ in range(4)]
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.read(ready, 1)  # until the parent has used its slots again
        right = all(torch.equal(x[:, 7].long(), numbers) for x, numbers in held)
        os._exit(0 if right else 1)
    os.close(ready)
    held[3][0].add_(1)  # not the child's
    assert all(torch.equal(x[:, 7].long(), numbers) for x, numbers in held[:3])
    last = held[3][0][2, 5:9]
    del held
    rest = [int(x[0, 0]) for x, _ in iterator]
    os.close(go)
    assert os.waitpid(pid, 0)[1] == 0
    assert rest == list(range(16, 200, 4)) and set(last.tolist()) == {15.0}
    assert loader.stats()["slots"] <= 8


def test_labels_keep_no_images():
    """Small tensors have memory of their own."""
    loader = DataLoader(Numbers(400, 9000), 4, num_workers=1)
    labels = [numbers for _, numbers in loader]
    assert torch.cat(labels).tolist() == list(range(400))
    assert loader.stats()["slots"] <= 4


def test_batches_that_grow():
    sizes = [[0] * n for n in (1, 1, 1, 40, 2, 80, 80, 80, 80, 1, 80)]
    loader = DataLoader(Numbers(1, 9000), batch_sampler=sizes, num_workers=1)
    for _ in range(3):
        assert [len(x) for x, _ in loader] == list(map(len, sizes))


def test_no_file_is_left_and_descriptors_stay_few():
    pids = {os.getpid()}

    class Noted(Numbers):
        def __getitem__(self, index):
            return os.getpid(), super().__getitem__(index)

    loader = DataLoader(Noted(400, 9000), 4, num_workers=2, persistent_workers=True)
    list(itertools.islice(loader, 20))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        for numbers, _ in loader:
            pids |= set(numbers.tolist())
    assert len(os.listdir("/proc/self/fd")) <= before + 8
    loader.close()
    assert len(pids) == 3
    mine = re.compile(f"torch_({'|'.join(map(str, pids))})_")
    assert not list(filter(mine.match, os.listdir("/dev/shm")))


def test_pinned_memory_is_copied_once(monkeypatch):
    """Where there is an accelerator, torch's thread pins; here a stand-in for it."""
    from headrace.torch import _worker

    monkeypatch.setattr(
        torch_data._utils.pin_memory, "pin_memory", lambda data, device=None: ("pinned", data)
    )
    message = _worker.Message(data=[torch.ones(2)])
    assert message.pin_memory() is message and message.data[0] == "pinned"


# Errors


def test_an_error_names_the_sample_and_keeps_the_traceback():
    for workers in (0, 2):
        loader = DataLoader(Sometimes(), 4, num_workers=workers)
        with pytest.raises(headrace.SampleError, match="number 3 is broken") as caught:
            list(loader)
        error = caught.value
        assert error.index == 3 and "Sometimes[3]" in str(error)
        assert "test_python_tail.py" in error.reason and "__getitem__" in error.reason
        assert isinstance(error.__cause__, ValueError)
        assert "__getitem__" in str(error.__cause__)
        with pytest.raises(headrace.SampleError):  # another epoch begins again
            list(loader)


def test_bad_samples_are_replaced_the_same_way():
    options = {"shuffle": True, "on_error": "skip", "max_bad_share": 0.5, "seed": 2}
    expected = batches(DataLoader(Sometimes(), 4, **options))
    loader = DataLoader(Sometimes(), 4, num_workers=3, **options)
    assert same(batches(loader), expected)
    assert {one.index for one in loader.skipped()} == {3, 11}
    assert all("is broken" in one.reason for one in loader.skipped())
    assert loader.stats()["bad_samples"] == 2
    numbers = sorted(int(n) for batch in expected for n in batch[1])
    assert len(numbers) == 23 and not {3, 11} & set(numbers)
    with pytest.raises(headrace.TooManyBadSamples, match="max_bad_share") as caught:
        list(DataLoader(Sometimes(), 4, on_error="skip"))
    assert {one.index for one in caught.value.skipped} == {3, 11}


def test_stand_ins_are_the_native_loaders(tmp_path, torchvision, v2):
    (tmp_path / "a").mkdir()
    for i in range(12):
        good = encode(synthetic(20, 20, i), "PNG")
        (tmp_path / "a" / f"{i:02}.png").write_bytes(good[:60] if i in (2, 7) else good)
    options = {"shuffle": True, "on_error": "skip", "max_bad_share": 0.5, "return_index": True}
    steps = [v2.CenterCrop(8), v2.ToImage()]
    tail = torchvision.datasets.ImageFolder(tmp_path, v2.Compose([*steps, lambda x: x]))
    native = torchvision.datasets.ImageFolder(tmp_path, v2.Compose(steps))
    ours = DataLoader(tail, 4, num_workers=1, **options)
    theirs = DataLoader(native, 4, **options)
    for a, b in zip(ours, theirs, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert [s.index for s in ours.skipped()] == [s.index for s in theirs.skipped()]


def test_errors_of_other_functions_keep_their_type():
    class Own(Exception):
        pass

    def collate(samples):
        raise Own("cannot collate")

    for workers in (0, 1):
        with pytest.raises((Own, RuntimeError), match="cannot collate"):
            list(DataLoader(Numbers(), 4, collate_fn=collate, num_workers=workers))
    with pytest.raises(RuntimeError, match="equal size"):
        list(DataLoader(Sized(), batch_sampler=[[(0, 3), (0, 4)]], num_workers=1))
    unsent = DataLoader(Numbers(), 4, collate_fn=lambda s: (lambda: s), num_workers=1)
    with pytest.raises(Exception, match="[Pp]ickle"):
        list(unsent)


@pytest.mark.parametrize("workers", [0, 1])
def test_ctrl_c_ends_no_epoch_silently(workers):
    # What the consumer does, for the worker: 1 while it takes a batch, 2 once it was interrupted.
    does = multiprocessing.RawValue("i")

    class Pressed(Numbers):
        def __getitem__(self, index):
            if index == 9:
                wait_until(lambda: does.value == 1, "the consumer's next()")
                os.kill(consumer, signal.SIGINT)
                wait_until(lambda: does.value == 2, "its interrupt")
            return super().__getitem__(index)

    def interrupt(*_):
        does.value = 2
        raise KeyboardInterrupt

    consumer = os.getpid()
    loader = DataLoader(Pressed(), 4, num_workers=workers, prefetch_factor=1 if workers else None)
    iterator, seen = iter(loader), []
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            while True:
                does.value = len(seen) >= 8
                batch = next(iterator)
                does.value = 0
                seen += batch[1].tolist()
    finally:
        signal.signal(signal.SIGINT, before)
    state = loader.state_dict()
    with pytest.raises(RuntimeError, match="stopped by KeyboardInterrupt"):
        next(iterator)
    again = DataLoader(Numbers(), 4)
    again.load_state_dict({**state, "dataset": again.state_dict()["dataset"]})
    seen += [int(n) for _, numbers in again for n in numbers]
    assert seen == list(range(23))


def test_a_killed_worker_is_reported():
    class Killed(Numbers):
        def __getitem__(self, index):
            if index == 9:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__getitem__(index)

    with pytest.raises(RuntimeError, match="killed by signal|exited unexpectedly"):
        list(DataLoader(Killed(), 4, num_workers=1))


def test_workers_end_when_the_script_is_killed(tmp_path):
    script = textwrap.dedent("""
        import os, time, torch
        from headrace.torch import DataLoader
        class Slow:
            def __len__(self): return 10000
            def __getitem__(self, i):
                open(f"%s/{os.getpid()}", "w").close()
                return torch.ones(9000)
        for batch in DataLoader(Slow(), 4, num_workers=2, persistent_workers=True):
            print("ready", flush=True)
            time.sleep(0.05)
    """) % tmp_path
    with forked.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        for _ in range(20):
            process.stdout.readline()
        process.kill()
    pids = [int(name) for name in os.listdir(tmp_path)]
    assert len(pids) == 2
    end = time.monotonic() + 120
    while any(Path(f"/proc/{pid}").exists() and not is_zombie(pid) for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.2)


def is_zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# What is said, and what is refused


def test_one_line_says_what_runs_where(folder, capfd):
    DataLoader(headrace.ImageFolder(folder, T.CenterCrop(8)), verbose=1, worker_init_fn=len)
    line = capfd.readouterr().err
    assert line.count("\n") == 1
    assert "native threads do everything: reading, decoding, CenterCrop" in line
    assert "worker_init_fn has no effect" in line
    loader = DataLoader(Numbers(), num_workers=2, verbose=1)
    line = capfd.readouterr().err
    assert "2 worker processes" in line and "Numbers" in line and line.count("\n") == 1
    assert headrace.explain(loader) in line
    with pytest.raises(TypeError, match="headrace.torch.DataLoader"):
        headrace.explain(torch_data.DataLoader(Numbers()))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"cache": "1GiB"}, "CachedDataset"),
        ({"stream": "s"}, "needs an agent"),
        ({"staging_bytes": 5}, "staging_bytes"),
        ({"dtype": "uint8"}, "dtype='uint8' goes with what Headrace runs natively"),
        ({"transform": T.CenterCrop(3)}, "give it to the dataset"),
        ({"layout": "NHWC"}, "layout"),
        ({"damaged": "accept"}, "damaged"),
        ({"batch_size": None, "drop_last": True}, "mutually exclusive with drop_last"),
        ({"timeout": -1}, "non-negative"),
        ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
        ({"on_error": "ignore"}, "on_error"),
        ({"max_bad_share": 2.0}, "max_bad_share"),
        ({"names": ("a", "a")}, "different"),
        ({"names": "ab"}, "texts"),
    ],
)
def test_what_does_not_apply_is_refused_by_name(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        DataLoader(Numbers(), **arguments)


def test_named_fields(folder):
    names = ("pixel_values", "labels")
    native = DataLoader(headrace.ImageFolder(folder, T.CenterCrop(8)), 4, names=names)
    python = DataLoader(Numbers(), 4, names=names, num_workers=1)
    for loader in (native, python):
        batch = next(iter(loader))
        assert type(batch) is dict and list(batch) == list(names)
        assert len(batch["labels"]) == 4
    three = DataLoader(Numbers(), 4, names=(*names, "index"), return_index=True)
    assert torch.equal(next(iter(three))["index"], torch.arange(4))
    with pytest.raises(ValueError, match="a batch has 2 fields"):
        next(iter(DataLoader(Numbers(), 4, names=("x",))))
    dicts = [{"x": 1, "path": "a"}] * 4
    with pytest.raises(ValueError, match="dicts already, with .'x', 'path'.: leave it out"):
        next(iter(DataLoader(dicts, 4, names=("x", "y"))))
    with pytest.raises(ValueError, match="adds a field 'path', but the batches have one"):
        next(iter(DataLoader(dicts, 4, return_path=True)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "int8"}, "^ToDtype: dtype must be"),
        ({"damaged": "perhaps"}, "^damaged must be"),
        ({"max_pixels": 0}, "^max_pixels must be"),
    ],
)
def test_wrong_options_are_named_before_anything_else(folder, v2, options, words):
    with pytest.raises(ValueError, match=words):
        DataLoader(headrace.ImageFolder(folder, v2.CenterCrop(8)), **options)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "channels_last"])
def test_normalize_equals_the_native_one(folder, dtype, layout):
    from headrace.torch import Normalize

    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    crop, last = T.CenterCrop(20), [T.ToDtype(dtype, scale=True), T.Normalize(mean, std)]
    dataset = headrace.ImageFolder(folder)
    native = DataLoader(dataset, 8, transform=[crop, *last], layout=layout)
    bytes_ = DataLoader(dataset, 8, transform=[crop], dtype="uint8", layout=layout)
    normalize = Normalize(mean, std, dtype, layout="NHWC" if layout == "NHWC" else "NCHW")
    for (expected, _), (pixels, _) in zip(native, bytes_, strict=True):
        assert pixels.dtype == torch.uint8
        out = normalize.half()(pixels)
        assert out.dtype == expected.dtype and torch.equal(out, expected)
        assert out.stride() == expected.stride()
        assert torch.equal(normalize(pixels[0]), expected[0])
    assert not normalize.state_dict()


def test_normalize_refuses_what_it_cannot_do():
    from headrace.torch import Normalize

    with pytest.raises(TypeError, match="dtype='uint8'"):
        Normalize(0.5, 0.5)(torch.zeros(1, 3, 4, 4))
    with pytest.raises(ValueError, match="RGB"):
        Normalize(0.5, 0.5)(torch.zeros(1, 4, 4, 3, dtype=torch.uint8))
    for mean, std, dtype in ((0.5, 0, "float32"), (0.5, -1, "float32"), (0.5, 1, "uint8")):
        with pytest.raises(ValueError, match="Normalize"):
            Normalize(mean, std, dtype)


def test_ranks_of_torch_distributed_samplers():
    """A DistributedSampler is replaced as in the native loader."""
    sampler = torch_data.DistributedSampler(Numbers(), num_replicas=2, rank=1, seed=5)
    loader = DataLoader(Numbers(), 4, sampler=sampler, num_workers=1)
    seen = [int(n) for _, numbers in loader for n in numbers]
    other = torch_data.DistributedSampler(Numbers(), num_replicas=2, rank=0, seed=5)
    seen += [int(n) for _, numbers in DataLoader(Numbers(), 4, sampler=other) for n in numbers]
    assert sorted(set(seen)) == list(range(23)) and len(seen) == 24


def test_the_loader_works_in_a_forked_child():
    loader = DataLoader(Numbers(), 4, num_workers=1)
    iterator = iter(loader)
    next(iterator)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if len(list(loader)) == 6 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(list(iterator)) == 5


def test_scripts_end_without_a_word():
    done = run_forked(
        "import torch\n"
        "from headrace.torch import DataLoader\n"
        "class A:\n"
        "    def __len__(self): return 100\n"
        "    def __getitem__(self, i): return torch.ones(9000)\n"
        "if __name__ == '__main__':\n"
        "    kept = [next(iter(DataLoader(A(), 4, num_workers=2, persistent_workers=p)))\n"
        "            for p in (False, True)]\n"
        "    loader = DataLoader(A(), 4, num_workers=2, persistent_workers=True)\n"
        "    iterator = iter(loader)\n"
        "    next(iterator)\n"
    )
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr
