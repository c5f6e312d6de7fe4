"""exact=False: scaled decoding of JPEG files where the crop is shrunk; its distance from exact."""

import io
import random
import time

import numpy as np
import pytest
import torch
from PIL import Image

import headrace
import headrace.transforms as T
from agents import Agent
from conftest import encode, synthetic
from headrace.torch import DataLoader
from servers import Memcached

SMALL = [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToTensor()]


def both(steps, **options):
    return headrace.Preparer(steps, **options), headrace.Preparer(steps, exact=False, **options)


def run(prepare, data, index=0) -> np.ndarray:
    return np.asarray(prepare(data, seed=7, epoch=1, index=index)).astype(np.float64) * 255


def exif(orientation: int) -> Image.Exif:
    out = Image.Exif()
    out[0x0112] = orientation
    return out


def test_exact_is_the_default():
    data = encode(synthetic(400, 300, 1))
    exact, scaled = both(SMALL)
    default = headrace.Preparer(SMALL)
    for index in range(8):
        assert np.array_equal(run(default, data, index), run(exact, data, index))
        assert exact.scale == 1
        run(scaled, data, index)
        assert scaled.scale in (2, 4, 8)
    assert scaled.decode(data).shape == (300, 400, 3)


@pytest.mark.parametrize("side, scale", [(100, 1), (151, 1), (150, 2), (76, 2), (75, 4), (37, 8)])
def test_the_scale_keeps_the_results_pixels(side, scale):
    prepare = headrace.Preparer([T.Resize((side, side))], exact=False)
    prepare(encode(synthetic(400, 300, 2)))
    assert prepare.scale == (scale if side != 100 else 2)
    prepare(encode(synthetic(side, 300, 2)))
    assert prepare.scale == 1


def test_refused_by_name():
    for steps in (
        [T.CenterCrop(24)],
        [T.RandomCrop(24), T.ToTensor()],
        [T.Resize((24, 24), antialias=False)],
    ):
        with pytest.raises(ValueError, match="exact=False.* needs a Resize, RandomResizedCrop, .*antialias"):
            headrace.Preparer(steps, exact=False)


@pytest.mark.parametrize("kind", ["png", "coefficients", "planes"])
def test_what_is_no_jpeg_file_is_decoded_exactly(kind):
    image = synthetic(400, 300, 3)
    data = encode(image, "PNG") if kind == "png" else headrace.convert(encode(image), kind)
    exact, scaled = both(SMALL)
    for index in range(4):
        assert np.array_equal(run(exact, data, index), run(scaled, data, index))
        assert scaled.scale == 1


def blob(width: int, height: int, x: float, y: float, radius: float) -> Image.Image:
    """A bright spot on grey, centred at (x, y) in pixels from the image's corner."""
    at_y, at_x = np.mgrid[0:height, 0:width] + 0.5
    value = 60 + 180 * np.exp(-((at_x - x) ** 2 + (at_y - y) ** 2) / (2 * radius**2))
    return Image.fromarray(np.clip(np.rint(value), 0, 255).astype(np.uint8))


def centroid(pixels: np.ndarray) -> np.ndarray:
    weight = pixels[0] - np.median(pixels[0])
    weight[weight < 20] = 0
    y, x = np.mgrid[0 : weight.shape[0], 0 : weight.shape[1]]
    return np.array([(weight * x).sum(), (weight * y).sum()]) / weight.sum()


@pytest.mark.parametrize("grey", [True, False])
def test_nothing_moves(grey):
    """Crops that begin and end anywhere, in images of any size, in all orientations."""
    rng = random.Random(5)
    worst, scales = 0.0, set()
    for n in range(120):
        width, height = rng.randrange(201, 420), rng.randrange(201, 420)
        image = blob(width, height, width / 2 + rng.uniform(-9, 9), height / 2, 24)
        orientation = n % 8 + 1
        data = encode(image if grey else image.convert("RGB"), quality=98, exif=exif(orientation))
        steps = [T.RandomResizedCrop(rng.choice([20, 41, 67, 150]), scale=(0.5, 1)),
                 T.RandomHorizontalFlip(), T.RandomVerticalFlip(), T.ToTensor()]
        exact, scaled = both(steps, apply_exif_orientation=True)
        a, b = run(exact, data, n), run(scaled, data, n)
        scales.add(scaled.scale)
        worst = max(worst, np.abs(centroid(a) - centroid(b)).max())
    assert scales == {1, 2, 4, 8} and worst < 0.1
    print(f"largest shift: {worst:.3f} pixels")


def test_gradients_stay():
    """A ramp shifted by a pixel would differ by its slope everywhere."""
    y, x = np.mgrid[0:331, 0:397]
    worst = shift = 0.0
    for image, axis in ((x * 0.6, 1), (y * 0.7, 0)):
        data = encode(Image.fromarray(np.rint(image).astype(np.uint8)), quality=100)
        for orientation in range(1, 9):
            turned = encode(Image.open(io.BytesIO(data)), quality=100, exif=exif(orientation))
            for side in (20, 45):
                steps = [T.RandomResizedCrop(side), T.RandomVerticalFlip(), T.ToTensor()]
                exact, scaled = both(steps, apply_exif_orientation=True)
                for index in range(12):
                    a, b = run(exact, turned, index), run(scaled, turned, index)
                    slope = max(abs(np.gradient(a[0], axis=k).mean()) for k in (0, 1))
                    worst = max(worst, np.abs(a - b).max())
                    shift = max(shift, abs((a - b).mean()) / slope)
    print(f"gradients: largest error {worst:.2f}, mean shift {shift:.3f} pixels")
    assert worst < 3 and shift < 0.1


@pytest.mark.parametrize(
    "kind",
    [
        dict(),
        dict(subsampling=0),
        dict(subsampling=1),
        dict(progressive=True),
        dict(restart_marker_blocks=4),
        dict(keep="L"),
        dict(keep="CMYK"),
    ],
)
def test_every_kind_of_jpeg(kind):
    kind = dict(kind)
    image = synthetic(500, 375, 4).convert(kind.pop("keep", "RGB"))
    data = encode(image, quality=95, **kind)
    exact, scaled = both(SMALL)
    for index in range(12):
        a, b = run(exact, data, index), run(scaled, data, index)
        assert scaled.scale > 1
        assert np.abs(a - b).mean() < 3 and np.abs(a - b).max() < 40


def test_photographs(real_photos):
    """A mean of half a unit, more at sharp edges: docs/pixels.md has what larger sets give."""
    exact, scaled = both([T.RandomResizedCrop(96), T.ToTensor()])
    differences = []
    for index, data in enumerate(real_photos):
        a, b = run(exact, data, index), run(scaled, data, index)
        if scaled.scale > 1:
            differences.append(np.abs(a - b).ravel())
            assert differences[-1].mean() < 4
        else:
            assert np.array_equal(a, b)
    all_of_them = np.concatenate(differences)
    print(f"mean {all_of_them.mean():.2f}, largest {all_of_them.max():.1f}")
    assert len(differences) > len(real_photos) // 4
    assert all_of_them.mean() < 1 and all_of_them.max() < 64


def test_damaged_images_too():
    data = bytearray(encode(synthetic(400, 300, 5), restart_marker_blocks=10))
    at = data.index(b"\xff\xd3")
    data[at + 1] = 0xD5
    steps = [T.Resize((75, 100)), T.ToTensor()]
    with pytest.raises(ValueError, match="damaged JPEG"):
        run(headrace.Preparer(steps, exact=False), bytes(data))
    exact, scaled = both(steps, damaged="accept")
    a, b = run(exact, bytes(data)), run(scaled, bytes(data))
    assert scaled.scale == 4 and scaled.damage == exact.damage
    assert np.abs(a - b).mean() < 2


# Loaders


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Eleven JPEG files and a PNG."""
    root = tmp_path_factory.mktemp("large")
    (root / "cat").mkdir()
    for i in range(12):
        data = encode(synthetic(300 + 9 * i, 260, 50 + i), "PNG" if i == 6 else "JPEG")
        (root / "cat" / f"{i:02}").with_suffix(".png" if i == 6 else ".jpg").write_bytes(data)
    time.sleep(0.1)  # caches do not keep what was written just now
    return root


OPTIONS = dict(shuffle=True, seed=3)


def epochs(dataset, count=2, **options):
    """The images of some epochs, and the loader's counters."""
    with DataLoader(dataset, 5, **OPTIONS, **options) as loader:
        out = [torch.cat([images.clone() for images, _ in loader]) for _ in range(count)]
        return out, loader.stats()


def same(a, b) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b))


def test_a_loader_counts_them(large):
    dataset = headrace.ImageFolder(large, SMALL)
    exact, none = epochs(dataset)
    scaled, stats = epochs(dataset, exact=False)
    assert none["scaled_samples"] == 0 and none["samples"] >= 24
    assert stats["scaled_samples"] == 22 and not same(exact, scaled)
    with DataLoader(dataset, 5, exact=False, return_index=True, **OPTIONS) as loader:
        prepare = headrace.Preparer(SMALL, exact=False)
        for images, _, index in loader:
            for row, i in zip(images, index.tolist()):
                with open(dataset.samples[i][0], "rb") as file:
                    data = file.read()
                one = prepare(data, seed=3, epoch=0, index=i)
                assert torch.equal(row, torch.from_dlpack(one))


def test_caches_keep_files(large):
    """Pixels must not depend on what is cached, nor on whether anything is."""
    dataset = headrace.ImageFolder(large, SMALL)
    plain, _ = epochs(dataset, 3, exact=False)
    for cache in (1 << 26, "shm:exact?size=64MiB", "shm:exact?size=64MiB"):
        images, stats = epochs(dataset, 3, exact=False, cache=cache, epochs=9)
        assert same(plain, images) and stats["cache_hits"] > 0
        assert stats["cache_coefficients"] == stats["cache_planes"] == 0
    for options in (
        dict(cache=1 << 26, cache_form="coefficients"),
        dict(cache="shm:exact2?size=64MiB&form=planes"),
    ):
        with pytest.raises(ValueError, match="exact=False"):
            epochs(dataset, exact=False, **options)


@pytest.mark.parametrize("form", ["coefficients", "planes"])
def test_items_of_other_jobs_stand_for_no_file(large, form):
    dataset = headrace.ImageFolder(large, SMALL)
    cache = f"shm:others-{form}?size=64MiB&form={form}"
    _, stats = epochs(dataset, 4, cache=cache, epochs=9)
    assert stats[f"cache_{form}"] > 0
    plain, expected = epochs(dataset, exact=False)
    images, stats = epochs(dataset, exact=False, cache=f"shm:others-{form}?size=64MiB")
    assert same(plain, images) and stats["scaled_samples"] == expected["scaled_samples"]


def test_packs_keep_their_form(large, tmp_path):
    """A pack's items are what the dataset has: decoded exactly, from the cache as well."""
    for form in ("encoded", "coefficients"):
        path = tmp_path / f"{form}.hrpack"
        headrace.pack(large, path, form=form)
        time.sleep(0.1)
        dataset = headrace.Pack(path, SMALL)
        plain, stats = epochs(dataset, 3, exact=False)
        assert (stats["scaled_samples"] > 0) == (form == "encoded")
        cached, stats = epochs(dataset, 3, exact=False, cache=1 << 26, epochs=9)
        assert same(plain, cached) and stats["cache_hits"] > 0
        assert same(plain, epochs(dataset, 3)[0]) == (form != "encoded")


def test_agents(large):
    dataset = headrace.ImageFolder(large, SMALL)
    plain, _ = epochs(dataset, exact=False)
    with Agent() as agent:
        images, _ = epochs(dataset, exact=False, agent=agent.socket)
        assert same(plain, images)
    with Agent() as agent:
        options = dict(agent=agent.socket, stream="one", **OPTIONS)
        with DataLoader(dataset, 5, exact=False, **options) as first:
            shared = [torch.cat([images.clone() for images, _ in first])]
            assert same(plain[:1], shared)
            (queue,) = agent.look()["streams"][0]["queues"]
            assert queue["scaled_samples"] >= 11
            with pytest.raises(ValueError, match="recipe|transform"):
                with DataLoader(dataset, 5, **options) as second:
                    next(iter(second))


def test_hosts(large):
    """Servers may hold items that another run stored in its form."""
    dataset = headrace.ImageFolder(large, SMALL)
    plain, _ = epochs(dataset, 3, exact=False)
    with Memcached() as server:
        hosts = f"memcached:{server.address}?size=16MiB"
        with pytest.raises(ValueError, match="exact=False"):
            epochs(dataset, exact=False, cache=hosts + "&form=coefficients")
        epochs(dataset, 3, cache=hosts + "&form=coefficients")
        images, stats = epochs(dataset, 3, exact=False, cache=hosts)
        assert same(plain, images) and stats["scaled_samples"] > 0
    with Memcached() as server:
        hosts = f"memcached:{server.address}?size=16MiB"
        images, stats = epochs(dataset, 3, exact=False, cache=hosts)
        assert same(plain, images) and stats["own_hits"] > 0
