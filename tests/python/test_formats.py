"""Image formats beside JPEG and PNG: the pixels of Pillow's convert("RGB"), which torchvision's
ImageFolder gives, for files of every kind; the same files accepted and refused."""

import io
import random

import numpy as np
import pytest
from PIL import Image

import headrace
import headrace.transforms as T
from conftest import encode, synthetic
from headrace.torch import DataLoader
from made_images import bmp_files, gif_files, ppm_files


def with_alpha(image: Image.Image, seed: int) -> Image.Image:
    alpha = np.random.default_rng(seed).integers(0, 256, image.size[::-1], np.uint8)
    return Image.fromarray(np.dstack([np.asarray(image), alpha]))


def webp_files() -> list[bytes]:
    files = []
    for i, (width, height) in enumerate([(1, 1), (2, 3), (64, 48), (131, 97), (250, 188)]):
        image = synthetic(width, height, i)
        for quality in (3, 60, 95):
            files.append(encode(image, "WEBP", quality=quality, method=i % 4))
        files.append(encode(image, "WEBP", lossless=True))
        files.append(encode(image.convert("L"), "WEBP", quality=80))
        files.append(encode(with_alpha(image, i), "WEBP", quality=70))
        files.append(encode(with_alpha(image, i), "WEBP", lossless=True, exact=True))
    frames = [with_alpha(synthetic(70, 50, i), i) for i in range(3)]
    moving = dict(save_all=True, append_images=frames[1:], duration=40)
    files.append(encode(frames[0], "WEBP", **moving, quality=80))
    files.append(encode(frames[0], "WEBP", **moving, lossless=True, background=(9, 90, 200, 255)))
    # Encoders leave out what is transparent around the first frame.
    small = Image.new("RGBA", (90, 70))
    small.paste(frames[0].crop((0, 0, 30, 20)), (34, 26))
    files.append(encode(small, "WEBP", save_all=True, append_images=[small.rotate(180)], lossless=True))
    exif = Image.Exif()
    exif[0x0112] = 6
    files.append(encode(synthetic(40, 30, 9), "WEBP", exif=exif))
    return files


def drawn(form: str) -> list[bytes]:
    """What Pillow itself writes."""
    images = [synthetic(90, 61, i) for i in range(3)]
    kinds = [images[0], images[1].quantize(50), images[2].convert("L"), images[0].convert("1")]
    return [encode(image, form) for image in kinds]


FILES = {
    "webp": webp_files,
    "bmp": lambda: bmp_files() + drawn("BMP"),
    "gif": lambda: gif_files() + drawn("GIF"),
    "ppm": lambda: ppm_files() + [encode(synthetic(90, 61, 1), "PPM")],
}


def of_pillow(data: bytes) -> np.ndarray | None:
    try:
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    except (OSError, SyntaxError, ValueError, EOFError, MemoryError, Image.DecompressionBombError):
        return None


def of_ours(data: bytes) -> np.ndarray | None:
    try:
        return np.asarray(headrace.Preparer().decode(data))
    except (ValueError, NotImplementedError):
        return None


@pytest.mark.parametrize("name", FILES)
def test_pixels_are_pillows(name):
    preparer = headrace.Preparer()
    rng = random.Random(name)
    for i, data in enumerate(FILES[name]()):
        image = Image.open(io.BytesIO(data))
        whole = np.asarray(image.convert("RGB"))
        info = preparer.info(data)
        assert (info["format"], info["width"], info["height"]) == (name, *image.size)
        assert info["orientation"] == image.getexif().get(0x0112, 1)
        np.testing.assert_array_equal(np.asarray(preparer.decode(data)), whole, str(i))
        for _ in range(8):
            width, height = (rng.randint(1, side) for side in image.size)
            x, y = rng.randint(0, image.width - width), rng.randint(0, image.height - height)
            part = np.asarray(preparer.decode(data, (x, y, width, height)))
            np.testing.assert_array_equal(part, whole[y : y + height, x : x + width], str(i))


@pytest.mark.parametrize("name", FILES)
def test_files_that_end_early_are_refused(name):
    for data in FILES[name]()[-6:]:
        for length in random.Random(1).sample(range(len(data) // 2), 20):
            assert of_ours(data[:length]) is None


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("name", FILES)
def test_what_is_accepted_has_pillows_pixels(name):
    """Of files with flipped bits. A few of them Pillow refuses for what is not needed here, such as
    the mask of a BMP's alpha."""
    rng = random.Random(7)
    accepted = ours_alone = 0
    for data in FILES[name]() * 8:
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        ours, theirs = of_ours(bytes(damaged)), of_pillow(bytes(damaged))
        if ours is None:
            continue
        accepted += 1
        if theirs is None:
            ours_alone += 1
        else:
            np.testing.assert_array_equal(ours, theirs)
    assert accepted > 10
    assert ours_alone <= accepted / 100


def test_a_folder_is_torchvisions(tmp_path):
    torchvision = pytest.importorskip("torchvision")
    from torchvision.transforms import v2

    for name, files in FILES.items():
        (tmp_path / name).mkdir()
        for i, data in enumerate(files()):
            extension = "png" if name == "gif" else name  # .gif is none of torchvision's
            (tmp_path / name / f"{i:03}.{extension}").write_bytes(data)
    theirs = torchvision.datasets.ImageFolder(
        tmp_path, v2.Compose([v2.ToImage(), v2.CenterCrop(40)])
    )
    ours = DataLoader(
        headrace.ImageFolder(tmp_path, [T.CenterCrop(40)]), batch_size=len(theirs)
    )
    ((images, labels),) = ours
    assert labels.tolist() == [label for _, label in theirs.samples]
    for image, (expected, _) in zip(images, theirs, strict=True):
        np.testing.assert_array_equal(image.numpy(), expected.numpy())
