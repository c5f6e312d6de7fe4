"""Parquet tables as datasets, written by pyarrow and by Hugging Face's datasets."""

import json
import os
import pickle
import random

import numpy as np
import pytest
import torch
from agents import Agent
from conftest import encode, synthetic

import headrace
import headrace.transforms as T
from headrace.torch import DataLoader

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
CLASSES = ["zebra", "cat / lynx", "dog"]


@pytest.fixture(scope="module")
def images():
    forms = ["JPEG", "PNG", "WEBP"]
    return [encode(synthetic(40 + i, 30 + i % 7, i), forms[i % 3 if i < 6 else 0]) for i in range(40)]


def features(**more):
    """What datasets writes into the footer."""
    described = {
        "image": {"_type": "Image"},
        "label": {"names": CLASSES, "_type": "ClassLabel"},
        **more,
    }
    return {"huggingface": json.dumps({"info": {"features": described}})}


def table(images, labels, metadata=None, image_type=IMAGE, label_type=None):
    rows = [
        data if image_type != IMAGE or data is None else {"bytes": data, "path": f"{i}.jpg"}
        for i, data in enumerate(images)
    ]
    columns = [pa.array(rows, image_type), pa.array(labels, label_type or pa.int64())]
    schema = pa.schema([("image", columns[0].type), ("label", columns[1].type)], metadata)
    return pa.table(columns, schema=schema)


def write(path, images, labels, metadata=None, image_type=IMAGE, label_type=None, **options):
    """Writes a table as datasets does: images plain, everything else compressed."""
    leaf = "image.bytes" if image_type == IMAGE else "image"
    options.setdefault("compression", {leaf: "none", "image.path": "snappy", "label": "snappy"})
    options.setdefault("use_dictionary", ["label"])
    pq.write_table(table(images, labels, metadata, image_type, label_type), path, **options)
    return path


def data_of(dataset):
    return [dataset._dataset.read(i) for i in range(len(dataset))]


@pytest.fixture(scope="module")
def written(tmp_path_factory, images):
    """Two tables that Hugging Face's datasets wrote."""
    datasets = pytest.importorskip("datasets")
    root = tmp_path_factory.mktemp("hub")
    kinds = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)}
    )
    for s in range(2):
        part = range(20 * s, 20 * s + 20)
        rows = {
            "image": [{"bytes": images[i], "path": None} for i in part],
            "label": [i % 3 for i in part],
        }
        whole = datasets.Dataset.from_dict(rows, features=kinds)
        whole.to_parquet(root / f"train-{s:05}-of-00002.parquet", batch_size=7)
    return root


def test_what_datasets_writes(written, images, recipe):
    """The images, labels and classes of tables as the Hub holds them."""
    dataset = headrace.ParquetDataset(written, recipe)
    assert data_of(dataset) == images
    assert dataset.targets == [i % 3 for i in range(40)]
    assert dataset.classes == CLASSES
    assert dataset.keys[0] == "train-00000-of-00002/000000.jpg"
    assert dataset.keys[21] == "train-00001-of-00002/000001.jpg"
    assert dataset.keys[1].endswith(".png") and dataset.keys[2].endswith(".webp")
    assert dataset.samples[20][0] == (
        f"{written}/train-00001-of-00002.parquet:train-00001-of-00002/000000.jpg"
    )
    assert pickle.loads(pickle.dumps(dataset)).targets == dataset.targets
    assert "native threads do everything" in headrace.explain(DataLoader(dataset, 4))


@pytest.mark.parametrize("form", [None, "encoded", "planes"])
def test_batches_are_those_of_the_files(written, images, recipe, tmp_path, form):
    pairs = []
    for i, image in enumerate(images):
        (tmp_path / f"{i}").write_bytes(image)
        pairs.append((tmp_path / f"{i}", i % 3))
    of_files = DataLoader(headrace.ImageList(pairs, recipe), 6, shuffle=True, seed=3)
    more = {"cache": "64MiB", "cache_form": form} if form else {}
    table = headrace.ParquetDataset(written, recipe)
    of_table = DataLoader(table, 6, shuffle=True, seed=3, **more)
    for _ in range(3):
        for a, b in zip(of_files, of_table, strict=True):
            assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [False, True, ["label"]])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"row_group_size": 7},
        {"data_page_size": 1000, "write_batch_size": 1},
        {"data_page_size": 1000, "write_batch_size": 3, "row_group_size": 11},
        {"dictionary_pagesize_limit": 4000, "write_batch_size": 2},
        {"use_content_defined_chunking": True, "write_page_index": True},
        {"write_page_checksum": True, "write_statistics": True},
        {"compression": "none"},
    ],
)
def test_writers_options(tmp_path, images, version, dictionary, options):
    labels = [i * i - 50 for i in range(40)]
    path = write(
        tmp_path / "x.parquet",
        images[:20] + images[:20],
        labels,
        data_page_version=version,
        use_dictionary=dictionary,
        **options,
    )
    dataset = headrace.ParquetDataset(path)
    assert data_of(dataset) == images[:20] * 2
    assert dataset.targets == labels
    assert dataset.classes == []


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
)
def test_whole_numbers_of_any_width(tmp_path, images, version, kind):
    most = int(np.iinfo(kind.to_pandas_dtype()).max)
    labels = [0, 3, min(most, 2**63 - 1)]
    path = write(
        tmp_path / "x.parquet", images[:3], labels, label_type=kind, data_page_version=version
    )
    assert headrace.ParquetDataset(path).targets == labels


def test_columns_of_bytes_that_cannot_be_null(tmp_path, images):
    """No definition levels, and neither structs nor a description."""
    schema = pa.schema(
        [pa.field("img", pa.binary(), False), pa.field("label", pa.int32(), False)]
    )
    rows = pa.table([images[:9], list(range(9))], schema=schema)
    for version in ("1.0", "2.0"):
        for dictionary in (True, False):
            pq.write_table(
                rows,
                tmp_path / "x.parquet",
                compression="none",
                data_page_version=version,
                use_dictionary=dictionary,
            )
            dataset = headrace.ParquetDataset(tmp_path / "x.parquet")
            assert data_of(dataset) == images[:9] and dataset.targets == list(range(9))


def test_large_images_among_small_ones(tmp_path):
    """Values of 0 to 300 kB: windows of the index pass begin and end anywhere."""
    draw = random.Random(1)
    values = [b"\xff\xd8\xff" + draw.randbytes(draw.choice([0, 9, 5000, 70000, 300000]))
              for _ in range(60)]
    for version in ("1.0", "2.0"):
        path = write(tmp_path / "x.parquet", values, range(60), data_page_version=version)
        assert data_of(headrace.ParquetDataset(path)) == values


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_rows_without_an_image_are_bad_samples(tmp_path, images, version, dictionary):
    rows = [images[i] if i % 10 != 3 else None for i in range(30)]
    path = write(
        tmp_path / "x.parquet",
        rows,
        range(30),
        data_page_version=version,
        use_dictionary=dictionary,
        write_batch_size=4,
        data_page_size=500,
    )
    dataset = headrace.ParquetDataset(path, [T.Resize((8, 8))])
    assert data_of(dataset) == [row or b"" for row in rows]
    assert [bad.index for bad in dataset.verify()] == [3, 13, 23]
    with pytest.raises(headrace.SampleError, match="x/000003.*is empty"):
        list(DataLoader(dataset, 5))
    loader = DataLoader(dataset, 5, on_error="skip", max_bad_share=0.5)
    labels = torch.cat([labels for _, labels in loader]).tolist()
    assert [i for i in range(30) if labels[i] != i] == [3, 13, 23]


def test_labels(tmp_path, images):
    rows = table(images[:6], [2, 0, 1, 1, 0, 2])
    rows = rows.append_column("fine", pa.array([5, 4, 3, 2, 1, 0], pa.int32()))
    rows = rows.append_column("name", pa.array(list("abcdef")))
    rows = rows.append_column("part", pa.array([1, None, 3, 4, 5, 6]))
    rows = rows.append_column("price", pa.array([1.5] * 6))
    described = features(fine={"names": [*"abcdef"], "_type": "ClassLabel"})
    path = tmp_path / "x.parquet"

    def written_as(metadata, drop=()):
        pq.write_table(
            rows.drop_columns(list(drop)).replace_schema_metadata(metadata),
            path,
            compression={"image.bytes": "none", "label": "snappy"},
            use_dictionary=False,
        )
        return path

    by_name = headrace.ParquetDataset(written_as(described), label="fine")
    assert by_name.targets == [5, 4, 3, 2, 1, 0] and by_name.classes == [*"abcdef"]
    usual = headrace.ParquetDataset(path)
    assert usual.targets == [2, 0, 1, 1, 0, 2] and usual.classes == CLASSES
    assert headrace.ParquetDataset(path, label="none").targets == [0] * 6
    for label, message in [
        ("name", "the column name holds no label: it must hold one whole number"),
        ("price", "the column price holds no label"),
        ("part", "the column part has a row without a label"),
        ("other", "no column other; its columns are image.bytes, image.path, label, fine, name"),
        ("", "no column ;"),
    ]:
        with pytest.raises(ValueError, match=message):
            headrace.ParquetDataset(path, label=label)
    with pytest.raises(ValueError, match='no column "label"; name the column'):
        headrace.ParquetDataset(written_as(None, ["label"]))
    two = features(coarse={"names": ["x"], "_type": "ClassLabel"})
    described = json.loads(two["huggingface"])
    described["info"]["features"]["fine"] = {"names": [*"abcdef"], "_type": "ClassLabel"}
    described["info"]["features"].pop("label")
    written_as({"huggingface": json.dumps(described)}, ["label"])
    assert headrace.ParquetDataset(path).classes == [*"abcdef"]


def test_labels_outside_the_classes_have_no_names(tmp_path, images):
    """-1 is what the Hub's test sets have where labels are secret."""
    path = write(tmp_path / "x.parquet", images[:3], [-1, -1, -1], features())
    dataset = headrace.ParquetDataset(path)
    assert dataset.targets == [-1] * 3 and dataset.classes == []


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["snappy", "gzip", "zstd", "brotli", "lz4"])
def test_compressed_images_are_refused(tmp_path, images, codec, version):
    path = write(
        tmp_path / "x.parquet", images[:5], range(5), compression=codec, data_page_version=version
    )
    message = f"image.bytes is compressed with {codec}.*Dataset.to_parquet"
    with pytest.raises(NotImplementedError, match=f"(?i){message}"):
        headrace.ParquetDataset(path)


def test_other_tables_are_refused(tmp_path, images):
    path = tmp_path / "x.parquet"
    write(path, images[:3], range(3), column_encoding={"image.bytes": "DELTA_BYTE_ARRAY"},
          use_dictionary=False)
    with pytest.raises(NotImplementedError, match="is encoded as DELTA_BYTE_ARRAY"):
        headrace.ParquetDataset(path)
    write(path, [None] * 3, range(3))
    with pytest.raises(ValueError, match="holds no image .all are null.*push_to_hub"):
        headrace.ParquetDataset(path)
    pq.write_table(pa.table({"label": [1]}), path)
    with pytest.raises(ValueError, match="no column of images.*its columns are label"):
        headrace.ParquetDataset(path)
    pq.write_table(pa.table({"a": [images[0]], "b": [images[0]], "label": [1]}), path)
    with pytest.raises(ValueError, match='several columns of images, and none is named "image"'):
        headrace.ParquetDataset(path)
    pq.write_table(pa.table({"image": [[images[0]]], "label": [1]}), path)
    with pytest.raises(ValueError, match="no column of images"):
        headrace.ParquetDataset(path)
    write(path, [], [])
    with pytest.raises(FileNotFoundError, match="no image in"):
        headrace.ParquetDataset(path)
    path.write_bytes(images[0] * 3)
    with pytest.raises(NotImplementedError, match="is not a Parquet file"):
        headrace.ParquetDataset(path)


def test_paths(tmp_path, images):
    """A file, a folder, patterns, and lists of these; tables that do not belong together."""
    write(tmp_path / "train-0.parquet", images[:2], [0, 1], features())
    write(tmp_path / "train-1.parquet", images[2:5], [1, 2, 0], features())
    for path in (
        tmp_path,
        tmp_path / "train-*.parquet",
        tmp_path / "train-{0..1}.parquet",
        tmp_path / "train-?.par*",
        [tmp_path / "train-0.parquet", tmp_path / "train-1.parquet"],
    ):
        dataset = headrace.ParquetDataset(path)
        assert data_of(dataset) == images[:5] and dataset.classes == CLASSES
        assert pickle.loads(pickle.dumps(dataset)).targets == [0, 1, 1, 2, 0]
        if not isinstance(path, list):
            assert len(headrace._core.Dataset.open(path)) == 5
    assert len(headrace.ParquetDataset(str(tmp_path / "train-1.parquet"))) == 3
    for missing in ("test-*.parquet", "test.parquet", "test-{0..1}.parquet"):
        with pytest.raises(FileNotFoundError):
            headrace.ParquetDataset(tmp_path / missing)
    with pytest.raises(ValueError, match="no Parquet file is named"):
        headrace.ParquetDataset([])
    write(tmp_path / "train-1.parquet", images[2:5], [1, 2, 0])
    with pytest.raises(ValueError, match="train-1.parquet has other columns or classes than .*-0"):
        headrace.ParquetDataset(tmp_path)
    write(tmp_path / "test-0.parquet", images[:2], [0, 1], features())
    with pytest.raises(ValueError, match="different splits: .*/test-\\*.parquet"):
        headrace.ParquetDataset(tmp_path)
    (tmp_path / "none").mkdir()
    with pytest.raises(FileNotFoundError, match="no file"):
        headrace.ParquetDataset(tmp_path / "none")


def test_damaged_files(tmp_path, images):
    """A file that is cut off anywhere is refused. One with changed bytes is refused, or its samples
    lie inside it."""
    good = write(tmp_path / "x.parquet", images[:12], range(12), features(), row_group_size=5)
    whole = good.read_bytes()
    bad = tmp_path / "bad.parquet"
    draw = random.Random(7)
    for cut in [0, 3, 4, 8, 11, 12, *(draw.randrange(len(whole)) for _ in range(60)), -1]:
        bad.write_bytes(whole[:cut])
        with pytest.raises((ValueError, NotImplementedError), match="bad.parquet"):
            headrace.ParquetDataset(bad)
    footer = len(whole) - int.from_bytes(whole[-8:-4], "little") - 8
    opened = 0
    for _ in range(500):
        changed = bytearray(whole)
        for _ in range(draw.choice([1, 1, 3])):
            at = draw.choice([draw.randrange(footer, len(whole)), draw.randrange(len(whole))])
            changed[at] = draw.choice([0, 0xFF, changed[at] ^ 1 << draw.randrange(8)])
        bad.write_bytes(changed)
        try:
            dataset = headrace.ParquetDataset(bad)
        except (ValueError, NotImplementedError, FileNotFoundError) as error:
            assert "bad.parquet" in str(error)
            continue
        opened += 1
        assert all(len(data) <= len(whole) for data in data_of(dataset))
    assert opened


def test_a_table_that_changes_is_noticed(tmp_path, images):
    path = write(tmp_path / "x.parquet", images[:4], range(4))
    dataset = headrace.ParquetDataset(path, [T.Resize((8, 8))])
    write(path, images[:5], range(5))
    with pytest.raises(headrace.SampleError, match="changed or replaced"):
        list(DataLoader(dataset, 2))
    with pytest.raises(RuntimeError, match="4 samples"):
        pickle.loads(pickle.dumps(dataset))


def test_several_columns_of_images(tmp_path, images):
    """With datasets' description and without, as bytes and as structs."""
    path = tmp_path / "x.parquet"
    structs = pa.array([{"bytes": data, "path": None} for data in images[4:8]], IMAGE)
    columns = pa.table({"left": images[:4], "right": structs, "label": [3, 1, 0, 2]})
    kinds = {name: {"_type": "Image"} for name in ("left", "right")}
    described = {b"huggingface": json.dumps({"info": {"features": kinds}}).encode()}
    for metadata in (None, described):
        pq.write_table(columns.replace_schema_metadata(metadata), path, compression="none")
        with pytest.raises(ValueError, match=r"none is named \"image\": name the one .*image=, --image"):
            headrace.ParquetDataset(path)
        for name, expected in (("left", images[:4]), ("right", images[4:8])):
            dataset = headrace.ParquetDataset(path, image=name)
            assert data_of(dataset) == expected and dataset.targets == [3, 1, 0, 2]
            again = pickle.loads(pickle.dumps(dataset))
            assert data_of(again) == expected and again.image == name
        for name in ("label", "none", "right.path", "x" * 3000):
            with pytest.raises(ValueError, match="has no column .* of images.*columns are left"):
                headrace.ParquetDataset(path, image=name)


def test_packs(tmp_path, written, images, recipe):
    """A pack has the batches of the tables; unpacking it gives a list with the labels."""
    pack = tmp_path / "x.hrpack"
    headrace.pack(written, pack, form="encoded")
    source, packed = headrace.ParquetDataset(written, recipe), headrace.Pack(pack, recipe)
    assert packed.classes == CLASSES and packed.targets == source.targets
    for a, b in zip(DataLoader(source, 8, shuffle=True, seed=1),
                    DataLoader(packed, 8, shuffle=True, seed=1), strict=True):
        assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])
    headrace.unpack(pack, tmp_path / "files")
    listed = headrace.ImageList(tmp_path / "files" / "list.txt")
    assert listed.targets == source.targets
    assert [open(path, "rb").read() for path, _ in listed.samples] == images


def test_an_agent_opens_tables_with_their_labels(tmp_path, images):
    path = write(tmp_path / "x.parquet", images[:4], [3, 1, 4, 1])
    os.chdir(tmp_path)
    dataset = headrace.ParquetDataset("x.parquet", [T.Resize((8, 8))], label="label")
    with Agent() as agent:
        loader = DataLoader(dataset, 4, agent=agent.socket, stream="labels")
        ((_, labels),) = loader
        assert labels.tolist() == [3, 1, 4, 1]
        loader.close()
    assert path.exists()


def test_an_agent_opens_tables_with_their_images(tmp_path, images):
    """Two columns of one table are two datasets, also for the cache."""
    path = tmp_path / "x.parquet"
    columns = {"left": images[:4], "right": images[4:8], "label": [3, 1, 4, 1]}
    pq.write_table(pa.table(columns), path, compression="none")
    with Agent("--cache", "16MiB") as agent:
        for name in ("left", "right", "left"):
            dataset = headrace.ParquetDataset(path, [T.Resize((8, 8)), T.ToTensor()], image=name)
            with DataLoader(dataset, 4) as alone, DataLoader(dataset, 4, agent=agent.socket) as loader:
                ((theirs, _),) = alone
                for _ in range(2):
                    ((ours, _),) = loader
                    assert torch.equal(ours, theirs)
