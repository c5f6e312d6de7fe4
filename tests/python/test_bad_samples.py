"""The adversarial list: files that are damaged, hostile, missing or not permitted."""

import os
import shutil
import struct
import tempfile
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

import headrace
import headrace.transforms as T
from conftest import encode, run_forked, synthetic
from headrace.torch import DataLoader

TRANSFORM = T.Compose([T.RandomResizedCrop(16), T.ToTensor()])
GOOD = 200


def png_header(width: int, height: int) -> bytes:
    """Makes a PNG that declares a size and has no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IEND", b"")


def jpeg_with_size(data: bytes, width: int, height: int) -> bytes:
    at = data.index(b"\xff\xc0")
    return data[: at + 5] + struct.pack(">HH", height, width) + data[at + 9 :]


def twelve_bits(data: bytes) -> bytes:
    at = data.index(b"\xff\xc0")
    return data[: at + 1] + b"\xc1" + data[at + 2 : at + 4] + b"\x0c" + data[at + 5 :]


def corrupt_entropy(data: bytes) -> bytes:
    at = data.index(b"\xff\xda") + 40
    return data[:at] + bytes(0xFE for _ in range(len(data) - at - 2)) + data[-2:]


def bad_files() -> dict[str, bytes]:
    photo = encode(synthetic(80, 60, 1))
    return {
        "truncated": photo[: len(photo) // 3],
        "zero_bytes": b"",
        "text": b"this is no image\n" * 20,
        "header_only": photo[:4],
        "corrupt_huffman": corrupt_entropy(photo),
        "twelve_bit": twelve_bits(photo),
        "tiff": encode(synthetic(8, 8, 1), "TIFF"),
        "huge_jpeg": jpeg_with_size(photo, 60000, 60000),
        "huge_png": png_header(60000, 60000),
        "empty_png": png_header(8, 8),
    }


def odd_but_good_files() -> dict[str, bytes]:
    image = synthetic(70, 50, 2)
    ramp = np.linspace(0, 65535, 2000).astype(np.uint16).reshape(40, 50)
    return {
        "png_named_jpg": encode(image, "PNG"),
        "cmyk": encode(image.convert("CMYK")),
        "progressive": encode(image, progressive=True),
        "grey": encode(image.convert("L")),
        "sixteen_bit": encode(Image.fromarray(ramp), "PNG"),
        "trailing_garbage": encode(image) + b"garbage" * 10,
    }


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "good.jpg"
    path.write_bytes(encode(synthetic(40, 30, 3)))
    return path


def write(folder, files):
    paths = []
    for name, data in files.items():
        path = folder / f"{name}.jpg"
        path.write_bytes(data)
        paths.append(path)
    return paths


def test_odd_files_are_read(tmp_path):
    paths = write(tmp_path, odd_but_good_files())
    listed = headrace.ImageList((path, 0) for path in paths)
    images, _ = next(iter(DataLoader(listed, 9, transform=TRANSFORM)))
    assert len(images) == len(paths)
    assert all(row.std() > 0.01 for row in images)


@pytest.mark.parametrize("name", list(bad_files()))
def test_raise_names_file_index_and_reason(tmp_path, good, name):
    (bad,) = write(tmp_path, {name: bad_files()[name]})
    listed = headrace.ImageList([(good, 0)] * 5 + [(bad, 1)] + [(good, 0)] * 5, TRANSFORM)
    loader = DataLoader(listed, 2, num_workers=2)
    epoch = iter(loader)
    assert [len(next(epoch)[1]) for _ in range(2)] == [2, 2]
    with pytest.raises(headrace.SampleError) as caught:
        next(epoch)
    error = caught.value
    assert (error.index, error.path) == (5, str(bad))
    assert error.reason and error.reason in str(error) and str(bad) in str(error)
    with pytest.raises(StopIteration):
        next(epoch)
    if name.startswith("huge"):
        assert "60000" in error.reason


def test_huge_images_are_refused_before_memory_is_taken(tmp_path):
    import resource

    (bad,) = write(tmp_path, {"huge": bad_files()["huge_jpeg"]})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(headrace.SampleError):
        next(iter(DataLoader(headrace.ImageList([(bad, 0)]), transform=TRANSFORM)))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_the_limit_can_be_set(tmp_path, good):
    listed = headrace.ImageList([(good, 0)], TRANSFORM)
    assert len(list(DataLoader(listed, max_pixels=1200))) == 1
    with pytest.raises(headrace.SampleError, match="40 x 30"):
        list(DataLoader(listed, max_pixels=1199))


def test_a_file_deleted_after_the_scan(tmp_path, good):
    gone = tmp_path / "gone.jpg"
    gone.write_bytes(good.read_bytes())
    listed = headrace.ImageList([(good, 0), (gone, 1)], TRANSFORM)
    gone.unlink()
    with pytest.raises(headrace.SampleError, match="(?i)no such file") as caught:
        list(DataLoader(listed, 1))
    assert caught.value.index == 1
    with pytest.raises(FileNotFoundError):
        listed[1]


def test_a_directory_and_a_fifo_named_jpg(tmp_path, good):
    (tmp_path / "directory.jpg").mkdir()
    os.mkfifo(tmp_path / "fifo.jpg")
    for name in ("directory.jpg", "fifo.jpg"):
        listed = headrace.ImageList([(tmp_path / name, 0)], TRANSFORM)
        with pytest.raises(headrace.SampleError, match=name):
            list(DataLoader(listed, 1))


UNREADABLE = """
import os, sys, headrace, headrace.transforms as T
from headrace.torch import DataLoader
if os.geteuid() == 0:
    os.setuid(65534)  # root may read everything
loader = DataLoader(headrace.ImageList([(sys.argv[1], 0)], T.RandomResizedCrop(16)))
try:
    list(loader)
except headrace.SampleError as error:
    print(error.reason)
"""


def test_an_unreadable_file(good):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        secret = os.path.join(folder, "secret.jpg")
        shutil.copy(good, secret)
        os.chmod(secret, 0)
        done = run_forked(UNREADABLE, secret)
    assert done.returncode == 0, done.stderr
    assert "permission denied" in done.stdout.lower()


def test_names_that_are_not_utf8_in_errors(tmp_path, good):
    path = os.fsencode(tmp_path) + b"/\xff\xfe.jpg"
    with open(path, "wb") as file:
        file.write(b"text")
    loader = DataLoader(headrace.ImageList([(path, 0)], TRANSFORM))
    with pytest.raises(headrace.SampleError) as caught:
        list(loader)
    assert os.fsencode(caught.value.path) == path
    str(caught.value).encode("utf-8")  # can be printed


def skipping(bad, good, **options):
    pairs = [(good, 0)] * GOOD
    for k, path in enumerate(bad):
        pairs.insert(17 * k + 3, (path, 1))
    listed = headrace.ImageList(pairs, TRANSFORM)
    options = {"max_bad_share": 0.5, "return_index": True, **options}
    return pairs, DataLoader(listed, 8, on_error="skip", **options)


def test_skip_replaces_lists_and_goes_on(tmp_path, good):
    bad = write(tmp_path, bad_files())
    pairs, loader = skipping(bad, good, shuffle=True)
    made = [(i.clone(), l.tolist(), x.tolist()) for i, l, x in loader]
    used = [i for *_, x in made for i in x]
    assert len(used) == len(pairs)
    assert all(pairs[i][0] == good for i in used)
    assert [l for _, labels, _ in made for l in labels] == [0] * len(pairs)
    skipped = loader.skipped()
    assert {s.path for s in skipped} == {str(p) for p in bad}
    assert all(pairs[s.index][0] == bad[[str(p) for p in bad].index(s.path)] for s in skipped)
    assert all(s.epoch == 0 and s.reason for s in skipped)
    assert loader.stats()["bad_samples"] == len(bad)


def test_skip_is_deterministic(tmp_path, good):
    bad = write(tmp_path, bad_files())
    runs = []
    for workers in (1, 2, 4):
        _, loader = skipping(bad, good, shuffle=True, num_workers=workers)
        runs.append([(i.clone(), x.clone()) for i, _, x in loader])
    for run in runs[1:]:
        assert all(torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(run, runs[0]))


def test_too_many_bad_samples(tmp_path, good):
    bad = write(tmp_path, bad_files())
    pairs, loader = skipping(bad, good, max_bad_share=0.01)
    with pytest.raises(headrace.TooManyBadSamples) as caught:
        list(loader)
    assert len(caught.value.skipped) >= 2
    assert all(s.path.endswith(".jpg") for s in caught.value.skipped)
    assert "max_bad_share" in str(caught.value)
    pairs, loader = skipping(bad[:1], good, max_bad_share=0.01)
    assert len(list(loader)) == -(-len(pairs) // 8)


def test_nothing_but_bad_samples(tmp_path):
    bad = write(tmp_path, bad_files())
    loader = DataLoader(
        headrace.ImageList([(p, 0) for p in bad], TRANSFORM), 2, on_error="skip", max_bad_share=1.0
    )
    with pytest.raises((headrace.SampleError, headrace.TooManyBadSamples)):
        list(loader)


def test_skip_with_a_sampler(tmp_path, good):
    bad = write(tmp_path, {"text": b"text"})
    listed = headrace.ImageList([(good, 0), (bad[0], 1), (good, 2)], TRANSFORM)
    loader = DataLoader(
        listed, 3, sampler=[0, 1, 2, 1], on_error="skip", max_bad_share=1.0, return_index=True
    )
    used = [i for *_, x in loader for i in x.tolist()]
    assert len(used) == 4 and 1 not in used
    assert [s.index for s in loader.skipped()] == [1, 1]


def test_an_image_too_small_for_the_recipe_is_a_bad_sample(good):
    listed = headrace.ImageList([(good, 0)], T.RandomCrop(64))
    with pytest.raises(headrace.SampleError, match="RandomCrop"):
        list(DataLoader(listed))
