"""Images of which C makes the first transforms, behind the DataLoader, and Python the rest."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.utils.data as torch_data

import headrace
from conftest import encode, synthetic
from headrace import transforms as T
from headrace.torch import DataLoader
from python_samples import equal_to_torch


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
