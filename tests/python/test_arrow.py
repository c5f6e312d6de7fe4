"""Datasets of Hugging Face's datasets, read from their Arrow files."""

import os
import pickle

import pytest
import torch
from agents import Agent
from conftest import encode, synthetic

import headrace
import headrace.transforms as T
from headrace.torch import DataLoader

datasets = pytest.importorskip("datasets")
pyarrow = pytest.importorskip("pyarrow")
import pyarrow.parquet  # noqa: E402

CLASSES = ["zebra", "cat", "dog"]
PLAIN = [T.Resize((8, 8)), T.ToDtype("float32", scale=True)]


@pytest.fixture(scope="module")
def images():
    return [encode(synthetic(40 + i, 30, i)) for i in range(30)]


def make(images, **columns):
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)}
    rows = {
        "image": [image and {"bytes": image, "path": None} for image in images],
        "label": [i % 3 for i in range(len(images))],
    }
    for name, (kind, values) in columns.items():
        kinds[name], rows[name] = kind, values
    return datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))


@pytest.fixture(scope="module")
def stored(images, tmp_path_factory):
    """In several files and record batches, as load_dataset leaves it."""
    path = tmp_path_factory.mktemp("arrow") / "stored"
    make(images).save_to_disk(path, num_shards=3)
    return datasets.load_from_disk(path)


@pytest.fixture(scope="module")
def loaded(images, tmp_path_factory):
    """From compressed Parquet tables, which load_dataset decompresses."""
    root = tmp_path_factory.mktemp("tables")
    old = make(images).data.table  # as datasets wrote it until version 4
    pyarrow.parquet.write_table(old, root / "old.parquet", compression="snappy")
    return datasets.load_dataset(
        "parquet", data_files=str(root / "old.parquet"), split="train", cache_dir=str(root)
    )


def data_of(dataset):
    return [dataset._dataset.read(i) for i in range(len(dataset))]


def test_stored(stored, images):
    dataset = headrace.ArrowDataset(stored, PLAIN)
    assert data_of(dataset) == images
    assert dataset.targets == [i % 3 for i in range(30)]
    assert dataset.classes == CLASSES and dataset.class_to_idx["dog"] == 2
    assert len(dataset._source[0]) == 3
    assert dataset.keys[0] == "data-00000-of-00003/000000"
    again = pickle.loads(pickle.dumps(dataset))
    assert data_of(again) == images and again.targets == dataset.targets
    assert headrace.ArrowDataset(stored, label="none").targets == [0] * 30
    assert "native threads do everything" in headrace.explain(DataLoader(dataset, 4))


def test_any_tables_of_the_hub(loaded, images):
    assert data_of(headrace.ArrowDataset(loaded)) == images


def test_rows_in_any_order(stored, images):
    """select, filter, shuffle, sort, split and concatenation keep an index, or parts."""
    parts = stored.train_test_split(0.4, seed=2)
    for changed in (
        stored.shuffle(seed=1),
        stored.select([7, 3, 3, 29]),
        stored.select(range(5, 25)),
        stored.filter(lambda label: label == 1, input_columns="label"),
        stored.sort("label", reverse=True),
        parts["test"],
        datasets.concatenate_datasets([stored.select(range(3)), parts["train"]]),
        stored.shuffle(seed=1).select(range(4, 9)).flatten_indices(),
    ):
        wanted = changed.cast_column("image", datasets.Image(decode=False))
        dataset = headrace.ArrowDataset(changed)
        assert data_of(dataset) == [row["bytes"] for row in wanted["image"]]
        assert dataset.targets == list(changed["label"])


@pytest.mark.parametrize("form", [None, "encoded"])
def test_batches_are_those_of_the_files(stored, images, tmp_path, recipe, form):
    pairs = []
    for i, image in enumerate(images):
        (tmp_path / f"{i}").write_bytes(image)
        pairs.append((tmp_path / f"{i}", i % 3))
    more = {"cache": "64MiB", "cache_form": form} if form else {}
    ours = DataLoader(headrace.ArrowDataset(stored, recipe), 6, shuffle=True, seed=3, **more)
    of_files = DataLoader(headrace.ImageList(pairs, recipe), 6, shuffle=True, seed=3)
    for _ in range(2):
        for a, b in zip(of_files, ours, strict=True):
            assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])


def test_files_that_are_only_named(images, tmp_path):
    """load_dataset("imagefolder") keeps paths, not bytes."""
    for i, image in enumerate(images[:6]):
        (tmp_path / f"d/{'ab'[i % 2]}").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"d/{'ab'[i % 2]}/{i}.jpg").write_bytes(image)
    loaded = datasets.load_dataset(
        "imagefolder", data_dir=str(tmp_path / "d"), split="train", cache_dir=str(tmp_path)
    )
    dataset = headrace.ArrowDataset(loaded.shuffle(seed=0))
    assert sorted(data_of(dataset)) == sorted(images[:6])
    for i, (path, label) in enumerate(dataset.samples):
        assert os.path.dirname(path).endswith("ab"[label])
        assert data_of(dataset)[i] == open(path, "rb").read()
    assert dataset.classes == ["a", "b"]


def test_rows_without_an_image_are_bad_samples(images, tmp_path):
    make([images[0], None, images[2]]).save_to_disk(tmp_path / "x")
    dataset = headrace.ArrowDataset(datasets.load_from_disk(tmp_path / "x"), PLAIN)
    assert [bad.index for bad in dataset.verify()] == [1]


def test_what_cannot_be_is_refused(stored, images, tmp_path):
    with pytest.raises(ValueError, match="only in memory.*save_to_disk"):
        headrace.ArrowDataset(make(images[:3]))
    for other in ([1, 2], datasets.DatasetDict({"train": stored}), None):
        with pytest.raises(TypeError, match="takes one split of a datasets.Dataset"):
            headrace.ArrowDataset(other)
    for more, message in [
        ({"label": "other"}, "no column 'other'; its columns are image, label"),
        ({"image": "label"}, "the column 'label' holds no images"),
        ({"label": "image"}, "the column 'image' holds no label"),
    ]:
        with pytest.raises(ValueError, match=message):
            headrace.ArrowDataset(stored, **more)
    text = datasets.Value("string")
    make(images[:3], mask=(datasets.Image(), images[3:6]), n=(text, ["a", "b", "c"]),
         k=(datasets.Value("int8"), [4, None, -6])).save_to_disk(tmp_path / "x")
    two = datasets.load_from_disk(tmp_path / "x")
    assert data_of(headrace.ArrowDataset(two)) == images[:3]
    assert data_of(headrace.ArrowDataset(two, image="mask")) == images[3:6]
    with pytest.raises(ValueError, match="'n' holds no label: it must hold one whole number"):
        headrace.ArrowDataset(two, label="n")
    with pytest.raises(ValueError, match=r"'k' has a row without a label \(null\)"):
        headrace.ArrowDataset(two, label="k")
    several = two.rename_column("image", "picture")
    with pytest.raises(ValueError, match="several columns of images.*Name one: image=..."):
        headrace.ArrowDataset(several)
    with pytest.raises(ValueError, match="no column of labels"):
        headrace.ArrowDataset(stored.remove_columns("label"))
    rows = [{"bytes": images[0], "path": None}, {"bytes": None, "path": "x.jpg"}]
    kinds = datasets.Features({"image": datasets.Image()})
    mixed = datasets.Dataset.from_dict({"image": rows}, features=kinds).data.table
    with pyarrow.ipc.new_stream(tmp_path / "mixed.arrow", mixed.schema) as stream:
        stream.write_table(mixed)
    mixed = datasets.Dataset.from_file(str(tmp_path / "mixed.arrow"))
    with pytest.raises(ValueError, match="some images are in the dataset, and others in files"):
        headrace.ArrowDataset(mixed, label="none")
    with pytest.raises(ValueError, match="has no row"):
        headrace.ArrowDataset(stored.select([]))


def test_a_file_that_changes_is_noticed(images, tmp_path):
    make(images[:3]).save_to_disk(tmp_path / "x")
    dataset = headrace.ArrowDataset(datasets.load_from_disk(tmp_path / "x"), PLAIN)
    (path,) = dataset._source[0]
    with open(path, "ab") as file:
        file.write(b"more")
    with pytest.raises(headrace.SampleError, match="changed or replaced"):
        list(DataLoader(dataset, 2))


def test_ranges_are_checked(tmp_path):
    import numpy

    (tmp_path / "x").write_bytes(b"0123456789")
    ranges = headrace._core.Dataset.from_ranges
    whole = ranges([tmp_path / "x"], numpy.array([0, 2, 8, 5, 0, 10, 0, -1]))
    assert [whole.read(0), whole.read(1)] == [b"23456789", b""]
    assert numpy.asarray(whole.labels()).tolist() == [5, -1]
    for bad in ([0, 3, 8, 0], [0, 11, 0, 0], [1, 0, 1, 0], [0, -1, 2, 0], [0, 1, -1, 0], [-1, 0, 0, 0]):
        with pytest.raises(ValueError, match="range 0 (leads beyond|is in file)"):
            ranges([tmp_path / "x"], numpy.array(bad))
    with pytest.raises(ValueError, match="four numbers"):
        ranges([tmp_path / "x"], numpy.array([0, 1, 1]))
    with pytest.raises(FileNotFoundError):
        ranges([tmp_path / "y"], numpy.array([0, 0, 1, 0]))


def test_packs(stored, images, tmp_path):
    headrace.pack(headrace.ArrowDataset(stored), tmp_path / "x.hrpack", form="encoded")
    packed = headrace.Pack(tmp_path / "x.hrpack")
    assert data_of(packed) == images and packed.targets == [i % 3 for i in range(30)]


def test_an_agent_reads_the_same_files(stored):
    dataset = headrace.ArrowDataset(stored.select([4, 2, 20, 11]), PLAIN)
    with Agent() as agent:
        loader = DataLoader(dataset, 4, agent=agent.socket, stream="arrow")
        ((pixels, labels),) = loader
        assert labels.tolist() == [1, 2, 2, 2]
        ((alone, _),) = DataLoader(dataset, 4)
        assert torch.equal(pixels, alone)
        loader.close()
