"""Packs as datasets: attributes, items, batches, pickling, damage."""

import copy
import os
import pickle
import resource

import numpy as np
import pytest
import torch
from torch.utils.data import Subset

import handmade_pack
import headrace
import headrace.transforms as T
from headrace.torch import DataLoader

RECIPE = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor()])


def pack_of(folder, path, **options):
    """Makes a pack of an image folder by hand."""
    source = headrace.ImageFolder(folder)
    samples = [
        (os.path.relpath(name, folder), label, open(name, "rb").read())
        for name, label in source.samples
    ]
    offsets = handmade_pack.write(path, source.classes, samples, **options)
    return source, offsets


@pytest.fixture(scope="module")
def made(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("packs") / "sample.hrpack"
    source, offsets = pack_of(folder, path)
    return path, source, offsets


def test_attributes_are_those_of_the_folder(made, folder):
    path, source, _ = made
    pack = headrace.Pack(path)
    assert len(pack) == len(source)
    assert pack.classes == source.classes
    assert pack.class_to_idx == source.class_to_idx
    assert pack.targets == source.targets
    assert pack.keys == [os.path.relpath(name, folder) for name, _ in source.samples]
    assert pack.samples[5] == (f"{path}:{pack.keys[5]}", source.targets[5])
    assert pack.sample_bytes(3) == os.path.getsize(source.samples[3][0])
    assert pack.path == str(path)
    assert repr(pack) == f"headrace.Pack({str(path)!r}, samples={len(pack)}, classes=3, transform=None)"
    assert pack.verify() == []


def drawn(dataset, index):
    """Returns the image, with random parameters drawn from one seed."""
    torch.manual_seed(7)
    return dataset[index][0]


def test_items_are_those_of_the_folder(made):
    path, source, _ = made
    pack = headrace.Pack(path)
    for i in (0, 7, -1):
        ours, theirs = pack[i], source[i]
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1] == theirs[1]
    pack = headrace.Pack(path, RECIPE)
    theirs = headrace.ImageFolder(source.root, RECIPE)
    np.testing.assert_array_equal(drawn(pack, 4), drawn(theirs, 4))


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_are_those_of_the_folder(made, workers):
    path, source, _ = made
    theirs = headrace.ImageFolder(source.root, RECIPE)
    arguments = {"batch_size": 8, "shuffle": True, "num_workers": workers}
    for pack, folder in (
        (headrace.Pack(path, RECIPE), theirs),
        (Subset(headrace.Pack(path, RECIPE), [9, 2, 2, 17]), Subset(theirs, [9, 2, 2, 17])),
    ):
        a, b = DataLoader(pack, **arguments), DataLoader(folder, **arguments)
        for _ in range(2):
            count = 0
            for (x, y), (u, v) in zip(a, b, strict=True):
                assert torch.equal(x, u) and torch.equal(y, v)
                count += len(y)
            assert count == len(pack)


def test_pickle_and_copy(made, tmp_path):
    path, source, _ = made
    pack = headrace.Pack(path, RECIPE)
    for other in (pickle.loads(pickle.dumps(pack)), copy.copy(pack), copy.deepcopy(pack)):
        assert other.samples == pack.samples and other.classes == pack.classes
        np.testing.assert_array_equal(drawn(other, 1), drawn(pack, 1))
    moved = tmp_path / "moved.hrpack"
    moved.write_bytes(path.read_bytes())
    text = pickle.dumps(headrace.Pack(moved))
    handmade_pack.write(moved, ["a"], [("a/1.jpg", 0, b"x")])
    with pytest.raises(RuntimeError, match="has been replaced since this Pack was pickled"):
        pickle.loads(text)


def test_other_files_are_refused(made, folder, tmp_path):
    path, source, _ = made
    with pytest.raises(FileNotFoundError, match="No such file"):
        headrace.Pack(tmp_path / "none.hrpack")
    with pytest.raises(ValueError, match="is not a pack"):
        headrace.Pack(source.samples[0][0])
    with pytest.raises(IsADirectoryError):
        headrace.Pack(folder)
    cut = tmp_path / "cut.hrpack"
    cut.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="it was cut; copy it again"):
        headrace.Pack(cut)
    pack_of(folder, tmp_path / "begun", state=handmade_pack.WRITING)
    with pytest.raises(RuntimeError, match="has not been finished"):
        headrace.Pack(tmp_path / "begun")


def test_damage_is_a_bad_sample(made, tmp_path):
    path, source, offsets = made
    data = bytearray(path.read_bytes())
    data[offsets[6] + 300] ^= 1
    damaged = tmp_path / "damaged.hrpack"
    damaged.write_bytes(data)
    pack = headrace.Pack(damaged, RECIPE)
    with pytest.raises(headrace.SampleError, match="its checksum differs") as caught:
        pack[6]
    assert caught.value.index == 6 and caught.value.path == pack.samples[6][0]
    assert caught.value.reason.startswith("its checksum differs")
    with pytest.raises(headrace.SampleError, match="its checksum differs"):
        for _ in DataLoader(pack, batch_size=8):
            pass
    assert [bad.index for bad in pack.verify()] == [6]
    loader = DataLoader(pack, batch_size=8, on_error="skip", max_bad_share=0.5)
    assert sum(len(y) for _, y in loader) == len(pack)
    assert [bad.index for bad in loader.skipped()] == [6]


def test_no_descriptors_is_an_os_error(folder):
    loader = DataLoader(headrace.ImageFolder(folder, RECIPE), batch_size=4, num_workers=2)
    iter(loader)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    it = iter(loader)
    next(it)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="ulimit -n") as caught:
            while True:
                next(it)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert not isinstance(caught.value, headrace.SampleError)


def test_a_pack_of_a_list_has_no_classes(tmp_path):
    path = tmp_path / "list.hrpack"
    handmade_pack.write(path, [], [("/a.jpg", 1 << 40, b"x"), ("b.jpg", -3, b"")])
    pack = headrace.Pack(path)
    assert pack.classes == [] and pack.class_to_idx == {}
    assert pack.targets == [1 << 40, -3]
    assert pack.keys == ["/a.jpg", "b.jpg"]
    with pytest.raises(headrace.SampleError):
        pack[1]
