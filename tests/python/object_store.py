"""A bucket of images for tests, and epochs over it that are compared with those of the same files."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging

import numpy as np
import pytest
from PIL import Image

from buckets import Proxy, rclone_server
from headrace import ImageFolder
from headrace import transforms as T
from headrace.torch import DataLoader


def picture(number):
    pixels = np.random.default_rng(number).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    return file.getvalue()


def write(folder, names):
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A server of one bucket, "birds"; (its folder, its port)."""
    folder = tmp_path_factory.mktemp("store")
    write(folder / "birds/train",
          [f"{c}/{n:03}.jpg" for c in ("cat", "ant", "dog") for n in range(20)]
          + ["cat/sub/x.jpg", "cat/sub-/y.jpg", "cat/z/deep/er.JPEG", "ant/notes.txt"])
    with rclone_server(folder) as port:
        yield folder / "birds", port


@pytest.fixture
def proxy(store):
    one = Proxy(store[1])
    yield one
    one.close()


def load(root, **options):
    """The digests and labels of all samples of an epoch, by index, and the loader."""
    dataset = ImageFolder(root, transform=T.Compose([T.Resize((32, 32)), T.ToTensor()]))
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2, **options)
    found = {}
    for images, labels in loader:
        for image, label in zip(images.numpy(), labels.tolist()):
            digest = hashlib.sha256(image.tobytes()).hexdigest()
            found[digest, label] = found.get((digest, label), 0) + 1
    return found, loader, dataset


@contextlib.contextmanager
def logged(level=logging.INFO):
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("headrace")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def same_as_on_disk(store, url="s3://birds/train", **options):
    expected, _, there = load(str(store[0] / "train"))
    found, loader, dataset = load(url, **options)
    assert found == expected
    assert dataset.classes == there.classes == ["ant", "cat", "dog"]
    assert dataset.targets == there.targets
    assert [p.removeprefix(url.rstrip("/")) for p, _ in dataset.samples] == \
        [p.removeprefix(str(store[0] / "train")) for p, _ in there.samples]
    return loader
