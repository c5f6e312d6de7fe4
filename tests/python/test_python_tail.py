"""Datasets and functions in Python behind the DataLoader: any script goes on running.

What the loader yields is compared with torch's own DataLoader over the same dataset.
"""

from __future__ import annotations

import itertools
import os
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.utils.data as torch_data

import headrace
from conftest import run_forked
from headrace import transforms as T
from headrace.torch import DataLoader
from python_samples import Numbers, Sized, Stream, StreamOfNumbers, equal_to_torch

Point = namedtuple("Point", "x y")


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
        pytest.param({"batch_size": 4, "num_workers": 1, "multiprocessing_context": "spawn"},
                     marks=pytest.mark.long),
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
