"""Image folders and lists: torchvision's attributes, reading, pickling."""

import copy
import itertools
import os
import pickle
import time

import numpy as np
import pytest
import torch
from PIL import Image

import headrace
import headrace.transforms as T
from conftest import CLASSES, COUNT, PER_CLASS, encode, run_python, synthetic
from headrace.prepare import drawn_seed


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


def test_item_is_what_its_seed_makes(dataset, recipe):
    torch.manual_seed(3)
    pixels, label = dataset[7]
    torch.manual_seed(3)
    with open(dataset.samples[7][0], "rb") as file:
        data = file.read()
    expected = headrace.Preparer(recipe)(data, seed=drawn_seed(), index=7)
    np.testing.assert_array_equal(pixels, np.asarray(expected))
    assert pixels.dtype == np.float32 and label == 0
    torch.manual_seed(3)
    with torch.device("meta"):  # as torch.set_default_device
        np.testing.assert_array_equal(dataset[7][0], pixels)
    dataset.transform = T.CenterCrop(5)
    before = torch.get_rng_state()
    assert dataset[7][0].shape == (3, 5, 5)
    assert torch.equal(torch.get_rng_state(), before)


def test_indices_of_other_kinds(folder):
    dataset = headrace.ImageFolder(folder, T.CenterCrop(8))
    for index in (torch.tensor(3), np.int64(3), 3 - COUNT):
        np.testing.assert_array_equal(dataset[index][0], dataset[3][0])
        assert dataset.samples[index] == dataset.samples[3]
    for index in (1.0, "1", torch.tensor(1.5)):
        with pytest.raises(TypeError, match="index must be a whole number"):
            dataset[index]


def test_iterating_a_dataset_ends(dataset):
    assert [label for _, label in dataset] == list(dataset.targets)


def test_pickle_and_copy(dataset, recipe):
    for made in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset), copy.copy(dataset)):
        assert made.samples == dataset.samples
        assert made.transform == dataset.transform
        made.transform = dataset.transform = T.CenterCrop(24)
        np.testing.assert_array_equal(made[3][0], dataset[3][0])
        dataset.transform = recipe
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
    for name in ("loader", "is_valid_file"):
        with pytest.raises(ValueError, match=name):
            headrace.ImageFolder(folder, **{name: len})
    with pytest.raises(TypeError, match="a transform must come from"):
        headrace.ImageFolder(folder, transform=3)
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
        del d  # waits until the index is written
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


def worker_loader(dataset, context="fork", **more):
    return torch.utils.data.DataLoader(
        torch.utils.data.Subset(dataset, range(8)),
        batch_size=4,
        num_workers=2,
        multiprocessing_context=context,
        **more,
    )


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_a_torch_loader_can_read_the_dataset(folder, context):
    """Worker processes, forked and spawned, read through a decoder of their own."""
    dataset = headrace.ImageFolder(folder, T.CenterCrop(24))
    expected = np.stack([dataset[i][0] for i in range(8)])
    images = torch.cat([images for images, _ in worker_loader(dataset, context)])
    np.testing.assert_array_equal(images.numpy(), expected)


# Augmentation outside Headrace's loader


def images_of(loader):
    return torch.cat([torch.as_tensor(images).clone() for images, *_ in loader])


def all_differ(epochs):
    return all(
        not torch.equal(a, b) for one, other in itertools.combinations(epochs, 2)
        for a, b in zip(one, other)
    )  # fmt: skip


@pytest.mark.parametrize("persistent", [False, True])
def test_augmentation_differs_in_every_epoch_of_worker_processes(dataset, persistent):
    loader = worker_loader(dataset, persistent_workers=persistent)
    assert all_differ([images_of(loader) for _ in range(3)])


def test_augmentation_differs_between_worker_processes(folder, recipe):
    """The same file eight times: both workers draw, and no two images are equal."""
    one = headrace.ImageFolder(folder).samples[0]
    pictures = images_of(worker_loader(headrace.ImageList([one] * 8, recipe)))
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(pictures, 2))


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_seed_makes_augmentation_reproducible(dataset, workers):
    def epochs():
        torch.manual_seed(11)
        loader = torch.utils.data.DataLoader(dataset, 8, shuffle=True, num_workers=workers)
        return [images_of(loader) for _ in range(2)]

    first, again = epochs(), epochs()
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert all_differ(first)


def test_augmentation_differs_without_torch(folder):
    code = (
        "import random, sys, headrace, headrace.transforms as T\n"
        "d = headrace.ImageFolder(sys.argv[1], T.RandomResizedCrop(16))\n"
        "p = headrace.Preparer(T.RandomResizedCrop(16))\n"
        "data = open(d.samples[0][0], 'rb').read()\n"
        "def draw():\n"
        "    random.seed(4)\n"
        "    return [bytes(d[0][0]), bytes(d[0][0]), bytes(p(data)), bytes(p(data))]\n"
        "made = draw()\n"
        "assert len(set(made)) == 4 and made == draw()\n"
        "assert bytes(p(data, seed=1)) == bytes(p(data, seed=1))\n"
        "assert bytes(p(data, epoch=1)) != bytes(p(data, epoch=2))\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = run_python(code, str(folder))
    assert done.returncode == 0, done.stderr


def test_augmentation_differs_under_transformers_trainer(dataset, recipe, tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    seen = []

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, pixels, index):
            seen.append((index.clone(), pixels.clone()))
            return {"loss": self.layer(pixels.mean((2, 3))).mean()}

    def collate(rows):
        return {
            "pixels": torch.stack([torch.as_tensor(image) for image, _ in rows]),
            "index": torch.tensor([label for _, label in rows]),
        }

    numbered = headrace.ImageList([(p, i) for i, (p, _) in enumerate(dataset.samples[:8])], recipe)
    options = transformers.TrainingArguments(
        str(tmp_path), num_train_epochs=3, per_device_train_batch_size=4, save_strategy="no",
        report_to=[], use_cpu=True, disable_tqdm=True, dataloader_num_workers=1,
    )  # fmt: skip
    trainer = transformers.Trainer(Model(), options, collate, train_dataset=numbered)
    trainer.train()
    by_index = {}
    for index, pixels in seen:
        for i, picture in zip(index.tolist(), pixels):
            by_index.setdefault(i, []).append(picture)
    assert sorted(by_index) == list(range(8))
    for pictures in by_index.values():
        assert len(pictures) == 3
        assert not any(torch.equal(a, b) for a, b in itertools.combinations(pictures, 2))


def test_an_index_is_any_whole_number(folder):
    torch = pytest.importorskip("torch")
    dataset = headrace.ImageFolder(folder, T.Compose([T.CenterCrop(8)]))
    dataset._dataset.wait_sizes()
    for index in (torch.tensor(3), np.int64(3), np.uint8(3)):
        np.testing.assert_array_equal(dataset[index][0], dataset[3][0])
        assert dataset.samples[index] == dataset.samples[3]
        assert dataset.sample_bytes(index) == dataset.sample_bytes(3)
    for index in (3.0, "3", None):
        with pytest.raises(TypeError):
            dataset[index]
