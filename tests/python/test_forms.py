"""Items have the same pixels as their files, everywhere that image bytes are accepted."""

import io
import threading
import time

import numpy as np
import pytest
import torch
from PIL import Image

import headrace
import headrace.transforms as T
from conftest import encode, synthetic
from headrace.torch import DataLoader

FORMS = ["coefficients", "planes", "indexed"]


def pixels(data) -> np.ndarray:
    return np.asarray(headrace.Preparer().decode(data))


@pytest.fixture(scope="module")
def files() -> list[bytes]:
    color = synthetic(201, 133, 7)
    return [
        encode(color),
        encode(color, quality=100, subsampling=0),
        encode(color, quality=60, subsampling=1, progressive=True),
        encode(color.convert("L"), quality=85),
        encode(color.resize((1, 1))),
    ]


@pytest.mark.parametrize("form", FORMS)
def test_items_have_the_pixels_of_their_files(files, photos, form):
    converter = headrace.Converter()
    photos = [data for data in photos if data[:2] == b"\xff\xd8"]
    for data in files + photos:
        item = headrace.convert(data, form)
        assert isinstance(item, bytes)
        assert converter.convert(data, form=form) == item
        assert (headrace.form_of(item), headrace.form_of(data)) == (form, "encoded")
        expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        assert np.array_equal(pixels(item), pixels(data))
        assert np.abs(pixels(item).astype(int) - expected).max() == 0
        info = headrace.Preparer().info(item)
        assert info["format"] == form
        assert (info["height"], info["width"]) == expected.shape[:2]


def test_the_same_tensors_come_out_of_every_form(files):
    prepare = headrace.Preparer(
        T.Compose([T.RandomResizedCrop(48), T.RandomHorizontalFlip(), T.ToDtype("uint8")])
    )
    for data in files:
        items = [data] + [headrace.convert(data, form) for form in FORMS]
        for index in range(8):
            first, *others = [np.asarray(prepare(item, index=index)) for item in items]
            for other in others:
                assert np.array_equal(first, other)


def test_files_come_back(files):
    for data in files:
        jpeg = headrace.restore(headrace.convert(data))
        before, after = Image.open(io.BytesIO(data)), Image.open(io.BytesIO(jpeg))
        assert (after.format, after.mode, after.size) == ("JPEG", before.mode, before.size)
        assert after.quantization == before.quantization
        assert bool(after.info.get("progressive")) == bool(before.info.get("progressive"))
        assert np.array_equal(np.asarray(before), np.asarray(after))
        png = Image.open(io.BytesIO(headrace.restore(headrace.convert(data, "planes"))))
        assert (png.format, png.mode) == ("PNG", before.mode)
        assert np.array_equal(np.asarray(png), np.asarray(before))
        again = headrace.restore(headrace.convert(data, "indexed"))
        if before.info.get("progressive"):
            assert np.array_equal(np.asarray(before), np.asarray(Image.open(io.BytesIO(again))))
        else:
            assert again == data
        assert headrace.restore(data) == data


def test_indexed_files_come_back_with_all_that_was_in_them(photos):
    exif = Image.Exif()
    exif[0x0112] = 8
    exif[0x010E] = "a photograph"
    full = encode(
        synthetic(120, 90, 3), exif=exif.tobytes(), icc_profile=b"profile" * 9000, comment=b"words"
    )
    converter = headrace.Converter()
    indexed = 0
    for data in [full, full + b"what follows the image", *photos]:
        try:
            item = converter.convert(data, "indexed")
        except NotImplementedError:
            continue
        assert converter.restore(item) == data
        assert len(item) == converter.estimate(data, "indexed")
        indexed += 1
    assert indexed > 2


def test_orientation_is_kept():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode(synthetic(60, 40, 1), exif=exif.tobytes())
    for form in FORMS:
        item = headrace.convert(data, form)
        assert headrace.Preparer().info(item)["orientation"] == 6
        assert Image.open(io.BytesIO(headrace.restore(item))).getexif()[0x0112] == 6


def test_any_buffer_is_taken(files):
    item = headrace.convert(bytearray(files[0]))
    assert item == headrace.convert(memoryview(files[0]), "coefficients")
    assert headrace.form_of(np.frombuffer(item, dtype=np.uint8)) == "coefficients"
    with pytest.raises(TypeError):
        headrace.convert("text")
    with pytest.raises(ValueError, match="encoded, indexed, coefficients, planes, waveform or waveform16, not 'rgb'"):
        headrace.convert(files[0], "rgb")


def test_what_stays_a_file_is_refused_with_the_reason(files):
    color = synthetic(40, 30, 2)
    kinds = {
        "it is a PNG": encode(color, "PNG"),
        "CMYK": encode(color.convert("CMYK")),
        "an item already": headrace.convert(files[0]),
    }
    for reason, data in kinds.items():
        with pytest.raises(NotImplementedError, match=reason):
            headrace.convert(data)
        assert headrace.Converter().estimate(data) is None
    with pytest.raises(ValueError):
        headrace.convert(files[0][: len(files[0]) // 2])
    with pytest.raises(ValueError, match="convert the file again"):
        headrace.restore(headrace.convert(files[0])[:-1])


def test_png_files_become_planes(tmp_path):
    """In a pack, in a cache, and alone: the same batches; a file again with the same pixels."""
    drawing = Image.new("RGB", (200, 150), "white")
    drawing.paste((0, 90, 200), (20, 20, 120, 90))
    images = [synthetic(150 + i, 120, i).convert("L" if i % 4 == 3 else "RGB") for i in range(8)]
    pairs = []
    for i, image in enumerate([*images, drawing]):
        data = encode(image, "PNG")
        (tmp_path / f"{i}.png").write_bytes(data)
        pairs.append((tmp_path / f"{i}.png", i))
        item = headrace.convert(data, "planes")
        assert len(item) == headrace.Converter().estimate(data, "planes")
        assert headrace.form_of(item) == "planes"
        again = Image.open(io.BytesIO(headrace.restore(item)))
        assert again.mode == image.mode and np.array_equal(np.asarray(again), np.asarray(image))
    transform = T.Compose([T.RandomResizedCrop(32), T.ToDtype("float32", scale=True)])
    files = headrace.ImageList(pairs, transform)
    report = headrace.pack(files, tmp_path / "x.hrpack", form="auto")
    assert report["forms"]["planes"]["samples"] == 8
    assert report["forms"]["encoded"]["samples"] == 1  # the drawing
    packed = headrace.Pack(tmp_path / "x.hrpack", transform)
    loaders = [DataLoader(files, 3, shuffle=True, seed=2), DataLoader(packed, 3, shuffle=True, seed=2)]
    for form in ("planes", "auto", "coefficients"):
        loaders.append(
            DataLoader(files, 3, shuffle=True, seed=2, cache="64MiB", cache_form=form, epochs=40)
        )
    for _ in range(4):
        for batches in zip(*loaders, strict=True):
            for pixels, labels in batches[1:]:
                assert torch.equal(batches[0][0], pixels) and torch.equal(batches[0][1], labels)
    for loader, planes in zip(loaders[2:], (9, None, 0), strict=True):
        deadline = time.monotonic() + 600
        while loader.stats()["cache_waiting"] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert planes is None or loader.stats()["cache_planes"] == planes
        loader.close()


def test_limits_and_estimates(files):
    data = files[0]
    sizes = {form: len(headrace.convert(data, form)) for form in FORMS}
    converter = headrace.Converter(trust=True, max_growth=2.0)
    assert sizes["coefficients"] < 2 * len(data) < sizes["planes"]
    assert len(converter.convert(data)) == sizes["coefficients"]
    with pytest.raises(ValueError, match="planes take"):
        converter.convert(data, "planes")
    assert converter.estimate(data, "planes") == sizes["planes"]
    assert converter.estimate(data, "indexed") == sizes["indexed"] < 1.2 * len(data)
    assert abs(converter.estimate(data) / sizes["coefficients"] - 1) < 0.25
    assert converter.estimate(data, "encoded") == len(data)
    with pytest.raises(ValueError, match="max_growth"):
        headrace.Converter(max_growth=-1)
    with pytest.raises(ValueError, match="max_pixels"):
        headrace.Converter(max_pixels=100).convert(data)


def test_threads_convert_side_by_side(files):
    expected = [headrace.convert(data) for data in files]
    wrong = []

    def work():
        converter = headrace.Converter()
        for _ in range(10):
            for data, item in zip(files, expected, strict=True):
                if converter.convert(data) != item:
                    wrong.append(len(data))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_one_converter_on_two_threads_is_an_exception_not_a_race():
    large = encode(synthetic(1500, 1100, 3))
    converter, seen = headrace.Converter(), []
    expected = headrace.convert(large)

    def work():
        for _ in range(12):
            try:
                seen.append(converter.convert(large) == expected)
            except RuntimeError as error:
                seen.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert True in seen and False not in seen
    assert {s for s in seen if s is not True} <= {
        "this Converter is at work on another thread: make one per thread"
    }
