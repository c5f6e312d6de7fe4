"""Image folders and lists: torchvision's attributes, reading, pickling."""

import copy
import os
import pickle
import time

import numpy as np
import pytest
import torch
from PIL import Image

import headrace
import headrace.transforms as T
from conftest import CLASSES, COUNT, PER_CLASS, encode, synthetic


def test_folder_is_torchvisions(folder, torchvision):
    theirs = torchvision.datasets.ImageFolder(folder)
    ours = headrace.ImageFolder(folder)
    assert ours.classes == theirs.classes == CLASSES
    assert ours.class_to_idx == theirs.class_to_idx
    assert ours.samples == theirs.samples
    assert ours.imgs == theirs.imgs
    assert ours.targets == theirs.targets
    assert len(ours) == len(theirs) == COUNT


def test_views_are_sequences_that_cannot_be_changed(folder):
    d = headrace.ImageFolder(folder)
    assert d.targets[0] == 0 and d.targets[-1] == 2
    assert d.targets[PER_CLASS - 1 : PER_CLASS + 1] == [0, 1]
    assert list(d.targets).count(1) == PER_CLASS
    assert d.samples != d.samples[:-1]
    assert np.array_equal(np.asarray(d.targets), list(d.targets))
    assert np.bincount(d.targets).tolist() == [PER_CLASS] * 3
    assert torch.tensor(d.targets).dtype == torch.int64
    with pytest.raises(IndexError):
        d.targets[COUNT]
    with pytest.raises(TypeError):
        d.samples[0] = ("x", 1)
    with pytest.raises(AttributeError):
        d.samples = []
    assert repr(d.targets).startswith("[0, 0, 0, ...]")


def test_item_without_a_transform_is_the_whole_image(folder):
    d = headrace.ImageFolder(folder)
    for i in (0, 5, -1):
        pixels, label = d[i]
        path, expected = d.samples[i]
        assert label == expected
        np.testing.assert_array_equal(
            pixels.transpose(1, 2, 0), np.asarray(Image.open(path).convert("RGB"))
        )
    with pytest.raises(IndexError):
        d[COUNT]


def test_item_is_a_row_of_the_first_epoch(dataset, recipe):
    pixels, label = dataset[7]
    with open(dataset.samples[7][0], "rb") as file:
        expected = headrace.Preparer(recipe)(file.read(), index=7)
    np.testing.assert_array_equal(pixels, np.asarray(expected))
    assert pixels.dtype == np.float32 and label == 0
    dataset.transform = T.CenterCrop(5)
    assert dataset[7][0].shape == (3, 5, 5)


def test_iterating_a_dataset_ends(dataset):
    assert [label for _, label in dataset] == list(dataset.targets)


def test_pickle_and_copy(dataset, folder):
    for made in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset), copy.copy(dataset)):
        assert made.samples == dataset.samples
        assert made.transform == dataset.transform
        np.testing.assert_array_equal(made[3][0], dataset[3][0])
    listed = headrace.ImageList([(p, n) for p, n in dataset.samples], dataset.transform)
    made = pickle.loads(pickle.dumps(listed))
    assert made.samples == listed.samples


def test_pickle_notices_a_changed_folder(tmp_path):
    (tmp_path / "a").mkdir()
    for i in range(2):
        (tmp_path / "a" / f"{i}.png").write_bytes(encode(synthetic(8, 8, i), "PNG"))
    data = pickle.dumps(headrace.ImageFolder(tmp_path, index="none"))
    (tmp_path / "a" / "2.png").write_bytes(encode(synthetic(8, 8, 2), "PNG"))
    with pytest.raises(RuntimeError, match="changed since"):
        pickle.loads(data)


def test_folders_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        headrace.ImageFolder(tmp_path / "nowhere")
    assert caught.value.filename == str(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        headrace.ImageFolder(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError):
        headrace.ImageFolder(tmp_path / "file")


def test_empty_class(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "0.png").write_bytes(encode(synthetic(8, 8, 0), "PNG"))
    with pytest.raises(FileNotFoundError, match="empty"):
        headrace.ImageFolder(tmp_path)
    d = headrace.ImageFolder(tmp_path, allow_empty=True)
    assert d.classes == ["empty", "full"] and d.targets == [1]


def test_functions_are_refused_by_name(folder):
    for name in ("target_transform", "loader", "is_valid_file"):
        with pytest.raises(ValueError, match=name):
            headrace.ImageFolder(folder, **{name: len})
    with pytest.raises(ValueError, match="cannot be translated"):
        headrace.ImageFolder(folder, transform=lambda x: x)
    with pytest.raises(ValueError, match="index"):
        headrace.ImageFolder(folder, index="somewhere")


def test_index_file_is_where_it_is_asked_for(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.png").write_bytes(encode(synthetic(8, 8, 0), "PNG"))
    headrace.ImageFolder(tmp_path, index="none")
    assert os.listdir(tmp_path) == ["a"]
    end = time.monotonic() + 600
    while time.monotonic() < end:  # directories that just changed are not trusted yet
        d = headrace.ImageFolder(tmp_path, index="beside")
        assert d.classes == ["a"] and len(d) == 1
        if d._dataset.info()["from_index"]:
            break
        d._dataset.wait_sizes()
        del d  # waits for the index to be written
        time.sleep(0.5)
    assert d._dataset.info()["from_index"]
    assert any(name.startswith(".headrace") for name in os.listdir(tmp_path))


def test_names_that_are_not_utf8(tmp_path):
    root = os.fsencode(tmp_path)
    os.mkdir(root + b"/caf\xe9")
    with open(root + b"/caf\xe9/\xff.png", "wb") as file:
        file.write(encode(synthetic(8, 8, 0), "PNG"))
    d = headrace.ImageFolder(tmp_path)
    assert d.classes == ["caf\udce9"]
    assert os.fsencode(d.samples[0][0]) == root + b"/caf\xe9/\xff.png"
    assert d[0][0].shape == (3, 8, 8)
    assert headrace.ImageFolder(root, T.CenterCrop(4))[0][0].shape == (3, 4, 4)


def test_links_and_loops(tmp_path):
    (tmp_path / "root" / "a").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "0.png").write_bytes(encode(synthetic(8, 8, 0), "PNG"))
    (tmp_path / "root" / "a" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "root" / "a" / "loop").symlink_to(tmp_path / "root" / "a")
    d = headrace.ImageFolder(tmp_path / "root")
    assert [os.path.basename(p) for p, _ in d.samples] == ["0.png"]


def test_lists(tmp_path, folder):
    samples = headrace.ImageFolder(folder).samples
    as_pairs = headrace.ImageList((p, n + 10) for p, n in samples)
    assert as_pairs.targets == [n + 10 for n in headrace.ImageFolder(folder).targets]
    text = "# a comment\n\n" + "".join(f"{p} {n}\n" for p, n in samples)
    (tmp_path / "list.txt").write_text(text)
    from_file = headrace.ImageList(tmp_path / "list.txt")
    assert from_file.samples == samples
    assert "ImageList(samples=39" in repr(from_file)


def test_lists_that_are_wrong(tmp_path):
    for wrong in (["a.jpg"], [("a.jpg", "x")], [("a.jpg", 1, 2)], [("a.jpg", 2**70)]):
        with pytest.raises(ValueError, match="sample 0"):
            headrace.ImageList(wrong)
    with pytest.raises(TypeError):
        headrace.ImageList([(3, 1)])
    with pytest.raises(FileNotFoundError):
        headrace.ImageList(tmp_path / "nowhere.txt")
    (tmp_path / "list.txt").write_text("a.jpg 0\nb.jpg\n")
    with pytest.raises(ValueError, match="2"):
        headrace.ImageList(tmp_path / "list.txt")


def test_verify_lists_the_bad_ones(tmp_path):
    (tmp_path / "a").mkdir()
    good = encode(synthetic(64, 48, 0))
    for name, data in {"0.jpg": good, "1.jpg": good[:900], "2.jpg": b"", "3.jpg": b"text"}.items():
        (tmp_path / "a" / name).write_bytes(data)
    d = headrace.ImageFolder(tmp_path)
    bad = d.verify(threads=2)
    assert [b.index for b in bad] == [1, 2, 3]
    assert all(b.path == d.samples[b.index][0] and b.reason for b in bad)
    with pytest.raises(headrace.SampleError) as caught:
        d[1]
    assert caught.value.index == 1 and caught.value.path == d.samples[1][0]


def test_sizes_come_in_the_background(folder):
    d = headrace.ImageFolder(folder)
    d._dataset.wait_sizes()
    assert d.sample_bytes(0) == os.path.getsize(d.samples[0][0])
    assert d._dataset.info()["directories"] >= 3


def test_a_torch_loader_can_read_the_dataset(dataset):
    """Worker processes, forked and spawned, read through their own decoder."""
    expected = np.stack([dataset[i][0] for i in range(8)])
    for context in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(
            torch.utils.data.Subset(dataset, range(8)),
            batch_size=4,
            num_workers=1,
            multiprocessing_context=context,
        )
        images = torch.cat([images for images, _ in loader])
        np.testing.assert_array_equal(images.numpy(), expected)
