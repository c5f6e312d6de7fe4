"""Geometric augmentations in C against torchvision's, on uint8 tensors: pixels for given parameters,
and the distributions of random ones."""

import io
import math

import numpy as np
import pytest
import torch
from PIL import Image

import headrace
import headrace.transforms as T
from run_operations import Raw

SIZES = [(64, 64), (131, 200), (31, 17), (1, 9), (2, 2)]  # height, width
FILLS = [None, 0, (10, 200.5, 255)]
NEAREST, BILINEAR = 2, 0  # enum hr_interpolation


def pixels(height, width, seed=0):
    """Smooth colours with noise, as a tensor."""
    y, x = np.mgrid[:height, :width]
    wave = 127 + 90 * np.sin(x * 0.09 + y * 0.05) * np.cos(y * 0.11)
    noise = np.random.default_rng(seed).integers(-30, 31, (3, height, width))
    return torch.from_numpy((wave + noise).clip(0, 255).astype(np.uint8))


def png(image):
    out = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(out, "png", compress_level=0)
    return out.getvalue()


def ours(image, operations, size, **key):
    """Runs the operations, and takes the middle of the result."""
    preparer = headrace.Preparer([*operations, T.CenterCrop(size)])
    return torch.from_dlpack(preparer(png(image), **key))


def many(image, operation, runs):
    """The results of one operation that keeps the size, for several samples."""
    preparer = headrace.Preparer([operation, T.CenterCrop(tuple(image.shape[1:]))])
    data = png(image)
    return torch.stack([torch.from_dlpack(preparer(data, index=i)) for i in range(runs)])


def fill_of(fill):
    if fill is None:
        return {"has_fill": 0}
    return {"fill": (fill,) * 3 if isinstance(fill, (int, float)) else fill}


def assert_same(made, expected, mode):
    """The same bytes, or for bilinear interpolation at most one level in 0.1 % of them."""
    assert made.shape == expected.shape
    apart = (made.int() - expected.int()).abs()
    if mode == "nearest":
        assert not apart.any()
    assert apart.max() <= 1
    assert (apart > 0).sum() <= max(2, 0.001 * apart.numel())


@pytest.mark.parametrize("fill", FILLS, ids=str)
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_affine_has_torchvisions_pixels(v2, mode, fill):
    rng = np.random.default_rng(1)
    for n, (height, width) in enumerate(SIZES * 2):
        image = pixels(height, width, n)
        angle = float(rng.uniform(-180, 180)) if n % 3 else 0.0
        scale = float(rng.uniform(0.5, 1.7))
        shear = [float(rng.uniform(-20, 20)), float(rng.uniform(-20, 20)) if n % 2 else 0.0]
        center = [float(rng.uniform(0, width)), float(rng.uniform(0, height))] if n % 4 == 1 else None
        step = Raw(
            "RandomAffine",
            degrees=(angle, angle),
            scale=(scale, scale),
            shear=(shear[0], shear[0], shear[1], shear[1]),
            center=center or (0, 0),
            has_center=center is not None,
            interpolation=NEAREST if mode == "nearest" else BILINEAR,
            **fill_of(fill),
        )
        expected = v2.functional.affine(
            image,
            angle,
            [0, 0],
            scale,
            shear,
            interpolation=v2.InterpolationMode(mode),
            fill=fill,
            center=center,
        )
        assert_same(ours(image, [step], (height, width)), expected, mode)


# Each pair of two of them; the long ones are the other triples.
@pytest.mark.parametrize(
    ("mode", "fill", "expand"),
    [
        pytest.param(mode, fill, expand, marks=[pytest.mark.long] if (m + f + expand) % 2 else [])
        for m, mode in enumerate(["nearest", "bilinear"])
        for f, fill in enumerate(FILLS)
        for expand in (False, True)
    ],
)
def test_rotation_has_torchvisions_pixels(v2, mode, fill, expand):
    rng = np.random.default_rng(2)
    angles = [0.0, 90.0, 180.0, 270.0, -90.0, 450.0, 45.0, *rng.uniform(-400, 400, 3)]
    for n, angle in enumerate(map(float, angles)):
        for height, width in SIZES:
            if mode == "bilinear" and not expand and angle % 180 == 90 and (height - width) % 2:
                continue  # every pixel is half-way between two: rounding errors decide
            image = pixels(height, width, n)
            step = Raw(
                "RandomRotation",
                degrees=(angle, angle),
                expand=expand,
                interpolation=NEAREST if mode == "nearest" else BILINEAR,
                **fill_of(fill),
            )
            expected = v2.functional.rotate(
                image,
                angle,
                interpolation=v2.InterpolationMode(mode),
                expand=expand,
                fill=fill,
            )
            assert_same(ours(image, [step], tuple(expected.shape[1:])), expected, mode)


def test_rotation_around_a_center(v2):
    image = pixels(60, 80)
    step = Raw("RandomRotation", degrees=(90, 90), center=(10, 20.5), has_center=1)
    expected = v2.functional.rotate(image, 90, center=[10, 20.5], fill=0)
    assert_same(ours(image, [step], (60, 80)), expected, "nearest")


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_padding_has_torchvisions_pixels(v2, mode):
    image = pixels(31, 17)
    step = Raw(
        "Pad",
        padding=(3, 5, 7, 11),
        padding_mode=["constant", "edge", "reflect", "symmetric"].index(mode),
        fill=(9, 9, 9),
    )
    expected = v2.functional.pad(image, [3, 5, 7, 11], fill=9, padding_mode=mode)
    assert_same(ours(image, [step], (47, 27)), expected, "nearest")
    # after a ToDtype, in its units
    after = Raw("Pad", padding=(2, 2, 2, 2), fill=(0.25, 0.5, 1))
    made = torch.from_dlpack(
        headrace.Preparer([T.CenterCrop((31, 17)), T.ToTensor(), after])(png(image))
    )
    assert made.shape == (3, 35, 21)
    assert made[:, 0, 0].tolist() == [0.25, 0.5, 1]


def test_perspective_moves_whole_corners(v2):
    """The result is torchvision's for one of the corners that it may draw."""
    image = pixels(9, 11)
    step = Raw("RandomPerspective", distortion_scale=0.3, p=1, interpolation=NEAREST)
    made = {result.numpy().tobytes() for result in many(image, step, 120)}
    possible = set()
    start = [[0, 0], [10, 0], [10, 8], [0, 8]]
    for bits in range(2**8):
        by = [bits >> k & 1 for k in range(8)]  # int(0.3 * 5) = int(0.3 * 4) = 1
        end = [
            [by[0], by[1]],
            [10 - by[2], by[3]],
            [10 - by[4], 8 - by[5]],
            [by[6], 8 - by[7]],
        ]
        result = v2.functional.perspective(
            image, start, end, interpolation=v2.InterpolationMode.NEAREST, fill=0
        )
        possible.add(result.numpy().tobytes())
    assert len(made) > 50
    assert len(made & possible) >= 0.97 * len(made)


@pytest.mark.parametrize("scale", [0.5, pytest.param(1.0, marks=pytest.mark.long)])
def test_perspective_is_distributed_like_torchvisions(v2, scale):
    """A mask of what is inside: its mean area, and how often nothing happens."""
    image = torch.full((3, 40, 60), 255, dtype=torch.uint8)
    step = Raw("RandomPerspective", distortion_scale=scale, p=0.7, interpolation=NEAREST)
    theirs = v2.RandomPerspective(scale, p=0.7, interpolation=v2.InterpolationMode.NEAREST)
    torch.manual_seed(0)
    runs = 200
    made = many(image, step, runs), torch.stack([theirs(image) for _ in range(runs)])
    assert_alike(*(m.float().mean((1, 2, 3)).numpy() for m in made))


def assert_alike(a, b):
    """Kolmogorov and Smirnov's distance of two samples, at a level of 1e-4."""
    points = np.sort(np.concatenate([a, b]))
    apart = np.abs(
        np.searchsorted(np.sort(a), points, "right") / len(a)
        - np.searchsorted(np.sort(b), points, "right") / len(b)
    ).max()
    assert apart < math.sqrt(-0.5 * math.log(0.5e-4)) * math.sqrt(1 / len(a) + 1 / len(b))


def ramps(height, width):
    """Colours that tell where a pixel comes from: x, y, 255."""
    y, x = np.mgrid[:height, :width]
    return torch.from_numpy(np.stack([2 * x, 2 * y, 0 * x + 255]).astype(np.uint8))


def test_affine_is_distributed_like_torchvisions(v2):
    """Where the result's middle comes from, and its neighbour: shift, angle and scale."""
    image = ramps(60, 60)
    step = Raw(
        "RandomAffine",
        degrees=(-20, 40),
        translate=(0.1, 0.2),
        scale=(0.8, 1.1),
        shear=(-10, 10, -5, 5),
        interpolation=BILINEAR,
    )
    theirs = v2.RandomAffine(
        (-20, 40), (0.1, 0.2), (0.8, 1.1), (-10, 10, -5, 5), v2.InterpolationMode.BILINEAR
    )
    torch.manual_seed(0)
    runs = 250
    a = many(image, step, runs).float()
    b = torch.stack([theirs(image) for _ in range(runs)]).float()
    for channel in range(2):
        assert_alike(a[:, channel, 30, 30].numpy(), b[:, channel, 30, 30].numpy())
        for y, x in ((30, 45), (45, 30)):
            apart = [(s[:, channel, y, x] - s[:, channel, 30, 30]).numpy() for s in (a, b)]
            assert_alike(*apart)


@pytest.mark.parametrize(("alpha", "sigma"), [((50, 80), (5, 3)), ((9, 9), (0, 0))])
def test_elastic_is_distributed_like_torchvisions(v2, alpha, sigma):
    """The displacements of distant pixels, and how alike they are for neighbours."""
    image = ramps(120, 120)
    step = Raw("ElasticTransform", alpha=alpha, sigma=sigma)
    theirs = v2.ElasticTransform(list(map(float, alpha)), list(map(float, sigma)))
    torch.manual_seed(0)
    runs = 12
    a = many(image, step, runs).float()
    b = torch.stack([theirs(image) for _ in range(runs)]).float()
    for channel in range(2):
        samples = []
        for made in (a, b):
            inside = made[:, channel, 10:-10, 10:-10] - image[channel, 10:-10, 10:-10].float()
            samples.append(inside)
        # pixels of a grid wider than the Gaussian are independent
        assert_alike(*(s[:, ::25, ::25].flatten().numpy() for s in samples))
        spread = [s.std().item() for s in samples]
        assert spread[0] == pytest.approx(spread[1], rel=0.1)
        step_x = [(s[:, :, 1:] - s[:, :, :-1]).std().item() for s in samples]
        assert step_x[0] == pytest.approx(step_x[1], rel=0.1)
        step_y = [(s[:, 1:] - s[:, :-1]).std().item() for s in samples]
        assert step_y[0] == pytest.approx(step_y[1], rel=0.1)


def test_elastic_of_nothing_is_the_image():
    image = pixels(50, 70)
    step = Raw("ElasticTransform", alpha=(0, 0))
    assert torch.equal(ours(image, [step], (50, 70)), image)


@pytest.mark.parametrize(
    "step",
    [
        Raw("RandomAffine", degrees=(-30, 30), translate=(0.2, 0.2), scale=(0.5, 1.5)),
        Raw("RandomAffine", degrees=(-30, 30), interpolation=BILINEAR, has_fill=0),
        Raw("RandomRotation", degrees=(-180, 180), expand=1),
        Raw("RandomPerspective", p=1),
        Raw("ElasticTransform", alpha=(40, 70), sigma=(3, 4)),
    ],
    ids=lambda s: s.name,
)
def test_a_crop_changes_no_pixel(step):
    """What is cropped later is not computed, and what is kept does not change."""
    image = pixels(90, 120)
    for index in range(8):
        whole = ours(image, [step], (60, 70), index=index)
        part = ours(image, [step, T.CenterCrop((60, 70))], (20, 30), index=index)
        assert torch.equal(part, whole[:, 20:40, 20:50])
