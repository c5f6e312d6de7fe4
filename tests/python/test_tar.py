"""Tar files as datasets, written by GNU tar and by Python's tarfile."""

import io
import json
import os
import pickle
import subprocess
import tarfile

import pytest
import torch
from agents import Agent
from conftest import CLASSES, COUNT, encode, synthetic

import headrace
import headrace.transforms as T
from headrace.torch import DataLoader


def add(tar, name, data, **more):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in more.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(data))


@pytest.fixture(scope="module")
def images():
    return [encode(synthetic(40 + i, 50, i)) for i in range(9)]


@pytest.fixture(scope="module")
def shards(tmp_path_factory, images):
    """Three shards of three samples each, in WebDataset's layout."""
    root = tmp_path_factory.mktemp("shards")
    for s in range(3):
        with tarfile.open(root / f"train-{s:03}.tar", "w") as tar:
            for i in range(3 * s, 3 * s + 3):
                add(tar, f"a/b.c/{i:06}.jpg", images[i])
                add(tar, f"a/b.c/{i:06}.json", b"{}")
                add(tar, f"a/b.c/{i:06}.cls", b"%d\n" % (10 * i))
    return root


def data_of(dataset):
    return [dataset._dataset.read(i) for i in range(len(dataset))]


@pytest.mark.parametrize("pattern", ["train-{000..002}.tar", "train-00{0,1,2}.tar"])
def test_shards(shards, images, pattern):
    dataset = headrace.TarDataset(shards / pattern)
    assert dataset.targets == [10 * i for i in range(9)]
    assert list(dataset.keys) == [f"a/b.c/{i:06}.jpg" for i in range(9)]
    assert dataset.classes == []
    assert data_of(dataset) == images
    assert dataset.samples[4][0] == f"{shards}/train-001.tar:a/b.c/000004.jpg"


@pytest.mark.parametrize("options", [[], ["--format=posix"], ["--format=ustar"], ["--format=gnu"]])
def test_an_image_folder_in_a_tar(folder, recipe, tmp_path, options):
    """GNU tar in the folder's order: the same dataset and the same batches."""
    ours = headrace.ImageFolder(folder, recipe)
    names = [os.path.relpath(path, folder) for path, _ in ours.samples]
    tar = tmp_path / "x.tar"
    subprocess.run(["tar", "cf", tar, *options, "-C", folder, *names], check=True)
    dataset = headrace.TarDataset(tar, recipe)
    assert dataset.classes == CLASSES
    assert dataset.targets == ours.targets
    for a, b in zip(DataLoader(ours, 5, shuffle=True), DataLoader(dataset, 5, shuffle=True)):
        assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])
    assert len(pickle.loads(pickle.dumps(dataset))) == COUNT


@pytest.mark.parametrize("root", ["", "./", "deep/er/"])
def test_classes_are_below_what_all_have_in_common(tmp_path, images, root):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for i, name in enumerate(["dog/1.jpg", "cat/x/2.JPEG", "dog/3.png", "cat/notes.txt"]):
            add(tar, root + name, images[i])
    dataset = headrace.TarDataset(tmp_path / "x.tar")
    assert dataset.classes == ["cat", "dog"]
    assert dataset.targets == [1, 0, 1]
    assert data_of(dataset) == images[:3]


def test_one_class_alone(tmp_path, images):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        add(tar, "set/dog/1.jpg", images[0])
        add(tar, "set/dog/2.jpg", images[1])
    assert headrace.TarDataset(tmp_path / "x.tar").classes == ["dog"]


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names(tmp_path, images, format):
    name = "klasse/" + "/".join("ü" * 40 + str(i) for i in range(6)) + "/bild.jpg"
    with tarfile.open(tmp_path / "x.tar", "w", format=format) as tar:
        add(tar, "other/1.jpg", images[0])
        add(tar, name, images[1])
        link = tarfile.TarInfo("other/2.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "1.jpg"
        tar.addfile(link)
        add(tar, "other/3.jpg", images[2])
    dataset = headrace.TarDataset(tmp_path / "x.tar")
    assert list(dataset.keys) == ["other/1.jpg", name, "other/3.jpg"]
    assert data_of(dataset) == images[:3]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("1.jpg", None)], "1.jpg has no label"),
        ([("1.jpg", None), ("1.cls", b"3"), ("2.jpg", None)], "2.jpg has no .cls beside it"),
        ([("1.jpg", None), ("1.cls", b"three")], "1.cls is no label"),
        ([("1.jpg", None), ("1.cls", b"")], "1.cls is no label"),
        ([("1.jpg", None), ("1.cls", b"9" * 30)], "1.cls is no label"),
        ([("1.jpg", None), ("1.png", None), ("1.cls", b"3")], "1.png is a second image"),
        ([("1.jpg", None), ("1.cls", b"3"), ("1.CLS", b"3")], "1.CLS is a second .cls"),
        ([("a/1.jpg", b"")], "a/1.jpg is empty"),
    ],
)
def test_wrong_members_are_named(tmp_path, images, members, message):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name, data in members:
            add(tar, name, images[0] if data is None else data)
    with pytest.raises(ValueError, match=f"x.tar: the member {message}"):
        headrace.TarDataset(tmp_path / "x.tar")


def test_damaged_files(tmp_path, shards, images):
    whole = (shards / "train-000.tar").read_bytes()
    bad = tmp_path / "bad.tar"
    for cut in (600, 1500, len(images[0]) + 700):
        bad.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="bad.tar"):
            headrace.TarDataset(bad)
    bad.write_bytes(whole[:2000] + b"\x55" * 512 + whole[2512:])
    try:  # detected as a bad header, or harmless inside an image
        headrace.TarDataset(bad)
    except ValueError as error:
        assert "bad.tar" in str(error)
    bad.write_bytes(b"")
    with pytest.raises(ValueError, match="is empty"):
        headrace.TarDataset(bad)
    bad.write_bytes(images[0] * 3)
    with pytest.raises(NotImplementedError, match="not a tar file"):
        headrace.TarDataset(bad)
    with tarfile.open(bad, "w:gz") as tar:
        add(tar, "a/1.jpg", images[0])
    with pytest.raises(NotImplementedError, match="compressed with gzip: decompress it"):
        headrace.TarDataset(bad)
    with tarfile.open(bad, "w") as tar:
        add(tar, "a/1.txt", b"x")
    with pytest.raises(FileNotFoundError, match="no image in"):
        headrace.TarDataset(bad)


@pytest.mark.parametrize("pattern", ["x-{0..}.tar", "x-{9..1}.tar", "x-{a.tar", "x-{a..b}.tar"])
def test_patterns_that_mean_nothing(tmp_path, pattern):
    with pytest.raises(ValueError, match="range of numbers|brace"):
        headrace.TarDataset(tmp_path / pattern)


def test_a_missing_shard_is_named(shards):
    with pytest.raises(FileNotFoundError, match="train-003.tar"):
        headrace.TarDataset(shards / "train-{000..003}.tar")


def test_a_pack_of_shards(tmp_path, shards, recipe):
    """A pack of tar files gives the batches of the tar files."""
    source = headrace.TarDataset(shards / "train-{000..002}.tar", recipe)
    headrace.pack(source, tmp_path / "x.hrpack")
    packed = headrace.Pack(tmp_path / "x.hrpack", recipe)
    assert packed.targets == source.targets
    for a, b in zip(DataLoader(source, 4, shuffle=True), DataLoader(packed, 4, shuffle=True)):
        assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])


def write_shard(path, images, **fields):
    """A shard of img2dataset: image, txt and json. ``fields``: more members of the JSON of each."""
    with tarfile.open(path, "w") as tar:
        for i, image in enumerate(images):
            facts = {"key": f"{i:05}", "status": "success", "width": 40 + i, "exif": "{}"}
            facts |= {name: values[i] for name, values in fields.items()}
            add(tar, f"{i:05}.{'webp' if i % 2 else 'jpg'}", image)
            add(tar, f"{i:05}.json", json.dumps(facts).encode())
            add(tar, f"{i:05}.txt", b"a caption")


def test_labels_come_from_the_json_of_img2dataset(tmp_path, images):
    form = {0: "JPEG", 1: "WEBP"}
    images = [encode(synthetic(40 + i, 50, i), form[i % 2]) for i in range(6)]
    classes = [5, -1, 2**40, 0, 7, 7]
    write_shard(tmp_path / "00000.tar", images, class_id=classes)
    dataset = headrace.TarDataset(tmp_path / "00000.tar", [T.Resize((8, 8))], label="json:class_id")
    assert dataset.targets == classes and dataset.classes == []
    assert data_of(dataset) == images
    assert pickle.loads(pickle.dumps(dataset)).targets == classes
    ((pixels, labels),) = DataLoader(dataset, 6)
    assert pixels.shape == (6, 3, 8, 8) and labels.tolist() == classes
    width = headrace.TarDataset(tmp_path / "00000.tar", label="json:width")
    assert width.targets == [40, 41, 42, 43, 44, 45]
    assert headrace.TarDataset(tmp_path / "00000.tar", label="none").targets == [0] * 6


def test_any_field_with_a_number_is_a_label(tmp_path, images):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for i in range(3):
            add(tar, f"{i}.jpg", images[i])
            add(tar, f"{i}.fine.txt", b" %d\n" % (3 * i))
            add(tar, f"{i}.cls", b"%d" % i)
    assert headrace.TarDataset(tmp_path / "x.tar", label="fine.txt").targets == [0, 3, 6]
    assert headrace.TarDataset(tmp_path / "x.tar").targets == [0, 1, 2]


@pytest.mark.parametrize(
    ("label", "text", "message"),
    [
        (None, b"{}", 'name the field that holds it .*"json:class_id"'),
        ("json:class_id", b"{}", "0.json has no member with the name of the label"),
        ("json:class_id", b"[1]", "0.json is no JSON object"),
        ("json:class_id", b'{"class_id": ', "0.json is no JSON object"),
        ("json:class_id", b'{"class_id": "7"}', "0.json has a label that is not a whole number"),
        ("json:class_id", b'{"class_id": 7.5}', "0.json has a label that is not a whole number"),
        ("json:class_id", b" " * (1 << 20) + b"{}", "0.json is too large to hold a label"),
        ("json", b"{}", "0.json is no label: it must hold one whole number"),
        ("txt", b"{}", "0.jpg has no .txt beside it"),
        ("json:", b"{}", 'the label "json:" is none of'),
        (":class_id", b"{}", 'the label ":class_id" is none of'),
        ("a/b", b"{}", 'the label "a/b" is none of'),
        ("x" * 80, b"{}", "is none of"),
    ],
)
def test_labels_that_are_not_there_are_named(tmp_path, images, label, text, message):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        add(tar, "0.jpg", images[0])
        add(tar, "0.json", text)
    with pytest.raises(ValueError, match=message):
        headrace.TarDataset(tmp_path / "x.tar", label=label)


def test_an_agent_opens_shards_with_their_labels(tmp_path, images):
    write_shard(tmp_path / "x.tar", [images[i] for i in range(4)], class_id=[3, 1, 4, 1])
    dataset = headrace.TarDataset(tmp_path / "x.tar", [T.Resize((8, 8))], label="json:class_id")
    with Agent() as agent:
        loader = DataLoader(dataset, 4, agent=agent.socket, stream="labels")
        ((_, labels),) = loader
        assert labels.tolist() == [3, 1, 4, 1]
        loader.close()
