"""Headrace's cost of one sample, measured on real images, in all forms, with the script's own
transform if it can be translated."""

import io
import itertools
import os
import re
import time
import types
from pathlib import Path

import pytest
from PIL import Image

from conftest import IMAGENET, synthetic
from headrace import transforms
from headrace.stalls import cost
from headrace.stalls.cost import headrace_cost
from headrace.stalls.replaceable import obstacle

USUAL = transforms.Compose(
    [
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToDtype("float32", scale=True),
        transforms.Normalize(**IMAGENET),
    ]
)


def save(path, image, **options):
    image.save(path, **options)
    return path


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    found = [p for p in Path(os.environ.get("HEADRACE_DATA", "/nonexistent")).rglob("*.jpg")]
    if len(found) >= 50:
        return sorted(found)[:400]
    folder = tmp_path_factory.mktemp("jpegs")
    return [
        save(folder / f"{i}.jpg", synthetic(500, 375, i), quality=92, subsampling=2)
        for i in range(60)
    ]


def by_form(found):
    return {one["form"]: one for one in found["forms"]}


def test_forms_of_photographs(photographs):
    found = headrace_cost(photographs, USUAL, seconds=1.0)
    assert found["recipe"].startswith("RandomResizedCrop(") and "Normalize(" in found["recipe"]
    forms = by_form(found)
    assert list(forms) == ["encoded", "coefficients", "planes", "indexed"]
    assert all(form["cpu_s"] > 0 for form in forms.values())
    assert forms["encoded"]["bytes"] < forms["coefficients"]["bytes"] < forms["planes"]["bytes"]
    # The bytes are those of all files, though only some were converted.
    mean = sum(p.stat().st_size for p in photographs) / len(photographs)
    assert forms["encoded"]["bytes"] == pytest.approx(mean)


def test_seconds_are_kept(photographs, monkeypatch):
    """With a clock that advances 0.05 s at each reading: half of the time is for converting."""
    reads, converted = itertools.count(), []
    real = cost.Converter()

    class Counting:
        def convert(self, image, form):
            converted.append(form)
            return real.convert(image, form)

    clock = types.SimpleNamespace(perf_counter=lambda: 0.05 * next(reads), thread_time=time.thread_time)
    monkeypatch.setattr(cost, "time", clock)
    monkeypatch.setattr(cost, "Converter", Counting)
    assert by_form(headrace_cost(photographs, USUAL, seconds=0.4))["planes"]["cpu_s"] > 0
    assert 3 <= len(converted) <= 3 * 6


def test_own_transform_is_used(photographs, monkeypatch):
    few, shapes, prepare = photographs[:20], [], cost._prepare

    def watched(forms, preparer, until):
        shapes.append(tuple(preparer(forms[-1].items[0]).shape))
        prepare(forms, preparer, until)

    monkeypatch.setattr(cost, "_prepare", watched)
    small = headrace_cost(few, transforms.RandomResizedCrop(32), seconds=0.2)
    large = headrace_cost(few, [transforms.Resize((1024, 1024))], seconds=0.2)
    assert small["recipe"].startswith("RandomResizedCrop(size=(32, 32)")
    assert large["recipe"].startswith("Resize(size=(1024, 1024)")
    assert by_form(large)["planes"]["cpu_s"] > 0 and by_form(small)["planes"]["cpu_s"] > 0
    assert shapes == [(3, 32, 32), (3, 1024, 1024)]


def test_torchvision_transform(photographs, v1, v2, torchvision):
    import torch

    script = v1.Compose([v1.RandomResizedCrop(64), v1.ToTensor(), v1.Normalize(**IMAGENET)])
    assert "Normalize(" in headrace_cost(photographs[:5], script, seconds=0.1)["recipe"]
    modern = v2.Compose([v2.ToImage(), v2.Resize((64, 64)), v2.ToDtype(torch.float32, scale=True)])
    found = headrace_cost(photographs[:5], modern, seconds=0.1)
    assert found["recipe"].startswith("Resize(size=(64, 64)")


def torch_loader(dataset, **options):
    import torch

    return torch.utils.data.DataLoader(dataset, batch_size=2, **options)


def test_what_headrace_can_replace(tmp_path, v1, torchvision):
    """Anything that is not known to be the same prevents the replacement."""
    import torch

    save((tmp_path / "a").mkdir() or tmp_path / "a" / "0.jpg", synthetic(80, 60, 1))
    usual = v1.Compose([v1.RandomResizedCrop(64), v1.ToTensor()])

    def folder(kind=torchvision.datasets.ImageFolder, transform=usual, **options):
        return kind(tmp_path, transform=transform, **options)

    class Own(torchvision.datasets.ImageFolder):
        def __getitem__(self, index):
            return super().__getitem__(index)

    class Renamed(torchvision.datasets.ImageFolder):
        pass

    for loader in (
        torch_loader(folder()),
        torch_loader(torch.utils.data.Subset(folder(Renamed), [0])),
    ):
        assert obstacle(loader) == ""
    strange = v1.Compose([v1.RandomResizedCrop(64), v1.Lambda(lambda x: x), v1.ToTensor()])
    for loader, words in [
        (iter(()), "is not torch's DataLoader"),
        (torch_loader(folder(Own)), "Own, has a __getitem__ of its own"),
        (torch_loader([1, 2, 3]), "Headrace cannot read the dataset, builtins.list"),
        (torch_loader(folder(), collate_fn=list), "a collate_fn of its own"),
        (torch.utils.data.DataLoader(folder(), batch_size=None), "does not collate samples"),
        (torch_loader(folder(target_transform=int)), "a target_transform"),
        (torch_loader(folder(loader=open)), "opens files with a function of its own"),
        (torch_loader(folder(transform=None)), "has no transform"),
        (torch_loader(folder(transform=strange)), "Headrace does not have its transform: "),
        (torch_loader(folder(transform=lambda x: x)), "Headrace does not have its transform"),
    ]:
        assert words in obstacle(loader)


def test_long_recipes_are_cut(photographs):
    found = headrace_cost(
        photographs[:3],
        [transforms.RandomHorizontalFlip(i / 20) for i in range(20)] + [transforms.Resize((8, 8))],
        seconds=0.05,
    )
    assert len(found["recipe"]) == 250 and found["recipe"].endswith("...")


def test_png_has_planes_only(tmp_path, photographs):
    png = [save(tmp_path / f"{i}.png", synthetic(60, 40, i)) for i in range(4)]
    assert list(by_form(headrace_cost(png, USUAL, seconds=0.1))) == ["encoded", "planes"]
    mixed = headrace_cost(png + [os.fsencode(p) for p in photographs[:4]], USUAL, seconds=0.1)
    assert list(by_form(mixed)) == ["encoded", "coefficients", "planes", "indexed"]


def test_other_files_give_a_reason(tmp_path):
    text = tmp_path / "a text"
    text.write_text("no image")
    tiff = io.BytesIO()
    Image.new("RGB", (8, 8)).save(tiff, "TIFF")
    other = tmp_path / "b.tiff"
    other.write_bytes(tiff.getvalue())
    good = save(tmp_path / "c.jpg", synthetic(80, 60, 1))
    for paths, expected in [
        ([], "there are no files"),
        ([text], "1 of 1 files cannot be prepared: .*a text"),
        ([text, other, good], "2 of 3 files cannot be prepared"),
        ([tmp_path / "missing"], "No such file"),
    ]:
        found = headrace_cost(paths, USUAL, seconds=0.05)
        assert set(found) == {"reason"}
        assert re.search(expected, found["reason"])
    assert "forms" in headrace_cost([good, text], USUAL, seconds=0.05)
