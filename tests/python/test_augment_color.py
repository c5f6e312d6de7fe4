"""Operations on colours, neighbourhoods and noise against torchvision's kernels for uint8 tensors."""

import itertools
import math

import headrace
import numpy as np
import pytest
from headrace import transforms as T

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from run_operations import Raw, ours, picture  # noqa: E402
from torchvision.transforms.v2 import functional as F  # noqa: E402

SIZES = [(224, 224), (61, 47), (3, 5), (1, 9), (5, 2)]


def theirs(image, function, **arguments):
    tensor = torch.from_numpy(image.transpose(2, 0, 1).copy())
    return function(tensor, **arguments).numpy()


def jitter(what, factor):
    return T.ColorJitter(**{what: (factor, factor)})


FACTORS = [0.0, 0.3, 0.73, 0.999, 1.27, 1.9, 4.0]
EXACT = (
    [(jitter("brightness", f), F.adjust_brightness, {"brightness_factor": f}) for f in FACTORS]
    + [(jitter("contrast", f), F.adjust_contrast, {"contrast_factor": f}) for f in FACTORS]
    + [(jitter("saturation", f), F.adjust_saturation, {"saturation_factor": f}) for f in FACTORS]
    + [
        (jitter("hue", f), F.adjust_hue, {"hue_factor": f})
        for f in (-0.5, -0.31, -1e-9, 0.1, 0.25, 0.5)
    ]
    + [(T.RandomGrayscale(1), F.rgb_to_grayscale, {"num_output_channels": 3})]
    + [(Raw("RandomInvert", p=1), F.invert, {})]
    + [(Raw("RandomPosterize", bits=b, p=1), F.posterize, {"bits": b}) for b in range(9)]
    + [
        (Raw("RandomSolarize", threshold=t, p=1), F.solarize, {"threshold": t})
        for t in (0.0, 1.0, 127.5, 128.0, 255.0)
    ]
    + [(Raw("RandomAutocontrast", p=1), F.autocontrast, {})]
    + [(Raw("RandomEqualize", p=1), F.equalize, {})]
    + [
        (Raw("RandomAdjustSharpness", sharpness=f, p=1), F.adjust_sharpness, {"sharpness_factor": f})
        for f in FACTORS
    ]
)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("operation", "function", "arguments"),
    EXACT,
    ids=lambda v: getattr(v, "__name__", None) or str(v)[:60],
)
def test_bytes_are_torchvisions(operation, function, arguments, size):
    image = picture(*size)
    got = ours(image, operation)
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, theirs(image, function, **arguments))


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.long)])
def test_every_colour_has_torchvisions_bytes(step):
    """For the operations that mix channels: all 2^24 colours, or those of every ninth red, the least
    and the largest among them, and of every ninth green."""
    values = np.arange(256, dtype=np.uint8)
    some = values[[*range(0, 255, step), 255]]
    for reds in np.split(some, range(64, len(some), 64)):  # at most 64 reds at a time
        grid = np.meshgrid(reds, some, values, indexing="ij")
        part = np.stack(grid, -1).reshape(-1, len(some) * 8, 3)
        for operation, function, arguments in (
            (T.RandomGrayscale(1), F.rgb_to_grayscale, {"num_output_channels": 3}),
            (jitter("saturation", 0.37), F.adjust_saturation, {"saturation_factor": 0.37}),
            (jitter("hue", 0.13), F.adjust_hue, {"hue_factor": 0.13}),
        ):
            np.testing.assert_array_equal(
                ours(part, operation), theirs(part, function, **arguments)
            )


def test_flat_and_two_coloured_images():
    for image in (
        np.full((8, 8, 3), 77, np.uint8),
        np.tile(np.array([[[3, 200, 7], [250, 200, 9]]], np.uint8), (20, 30, 1)),
    ):
        for name, function in (("RandomAutocontrast", F.autocontrast), ("RandomEqualize", F.equalize)):
            np.testing.assert_array_equal(ours(image, Raw(name, p=1)), theirs(image, function))


def test_photographs_have_torchvisions_bytes(photos):
    """Decoded, cropped and coloured; contrast of an image whose sum torch rounds."""
    for data in photos[:3]:
        prepare = headrace.Preparer([T.CenterCrop(200), jitter("contrast", 1.4), jitter("hue", 0.2)])
        image = torch.from_numpy(np.asarray(headrace.Preparer([T.CenterCrop(200)])(data)).copy())
        want = F.adjust_hue(F.adjust_contrast(image, 1.4), 0.2).numpy()
        np.testing.assert_array_equal(np.asarray(prepare(data)), want)


BLURS = [((3, 3), 0.8), ((23, 23), 0.1), ((23, 23), 1.1), ((5, 9), 2.0), ((23, 23), 9.0), ((1, 7), 1)]


@pytest.mark.parametrize(("kernel", "sigma"), BLURS)
@pytest.mark.parametrize("size", [(224, 224), (61, 47), (25, 24), (14, 13)])
def test_blur(kernel, sigma, size):
    """Where a sum is near a half, torch's order of additions rounds it to the other side."""
    image = picture(*size)
    blur = Raw("GaussianBlur", kernel_size=kernel[::-1], sigma=(sigma, sigma))
    got = ours(image, blur).astype(int)
    want = theirs(image, F.gaussian_blur, kernel_size=list(kernel), sigma=[float(sigma)] * 2)
    assert np.abs(got - want).max() <= 1
    assert (got != want).sum() <= max(1, got.size * 0.001)


def test_windows_give_the_pixels_of_the_whole():
    """A crop after the filters gives the same pixels as one of the finished image."""
    image = picture(97, 83)
    filters = [
        Raw("GaussianBlur", kernel_size=(9, 15), sigma=(2, 2)),
        Raw("RandomAdjustSharpness", sharpness=2.5, p=1),
        jitter("contrast", 1.3),
        jitter("saturation", 0.4),
    ]
    whole = ours(image, *filters)
    for width, height in ((96, 81), (31, 20), (1, 1)):
        part = ours(image, *filters, T.CenterCrop((height, width)))
        top, left = round((83 - height) / 2), round((97 - width) / 2)
        np.testing.assert_array_equal(part, whole[:, top : top + height, left : left + width])


def test_noise_has_torchvisions_distribution():
    image = np.full((200, 200, 3), 120, np.uint8)
    noise = ours(image, Raw("GaussianNoise", mean=0.02, sigma=0.1)).astype(int) - 120
    torch.manual_seed(1)
    want = theirs(image, F.gaussian_noise, mean=0.02, sigma=0.1).astype(int) - 120
    assert abs(noise.mean() - want.mean()) < 6 * 25.5 / math.sqrt(noise.size)
    assert abs(noise.std() / want.std() - 1) < 0.02
    a, b = (np.cumsum(np.bincount(n.ravel() + 130, minlength=280)) for n in (noise, want))
    assert np.abs(a - b).max() / noise.size < 1.95 * math.sqrt(2 / noise.size)  # K-S, 0.1 %
    # neighbours, rows and channels are independent
    z = noise - noise.mean()
    for shifted in (z[:, :, 1:] * z[:, :, :-1], z[:, 1:] * z[:, :-1], z[1:] * z[:-1]):
        assert abs(shifted.mean() / z.var()) < 6 / math.sqrt(shifted.size)


def test_noise_belongs_to_the_pixel():
    image = picture(150, 70)
    noise = Raw("GaussianNoise", mean=0.0, sigma=0.2)
    whole = ours(image, noise, index=4)
    part = ours(image, noise, T.CenterCrop((50, 33)), index=4)
    np.testing.assert_array_equal(part, whole[:, 10:60, 58:91])
    assert (ours(image, noise, index=5) != whole).mean() > 0.9
    wrapped = ours(np.full((64, 64, 3), 250, np.uint8), Raw("GaussianNoise", sigma=0.1, clip=False))
    assert (wrapped < 100).any()


def test_permutation_of_channels():
    image = picture(20, 10)
    seen = {
        tuple(
            next(i for i in range(3) if np.array_equal(got[c], image[:, :, i])) for c in range(3)
        )
        for got in (ours(image, Raw("RandomChannelPermutation"), index=i) for i in range(60))
    }
    assert seen == set(itertools.permutations(range(3)))


def test_photometric_distort():
    """With p = 1 the result is one of 2 orders and 6 permutations of torchvision's functions."""
    image = picture(40, 30)
    f = {"brightness": 0.9, "contrast": 1.4, "saturation": 0.6, "hue": 0.03}
    distort = Raw("RandomPhotometricDistort", p=1, **{k: (v, v) for k, v in f.items()})
    tensor = torch.from_numpy(image.transpose(2, 0, 1).copy())
    start = F.adjust_brightness(tensor, f["brightness"])
    first = F.adjust_hue(
        F.adjust_saturation(F.adjust_contrast(start, f["contrast"]), f["saturation"]), f["hue"]
    )
    last = F.adjust_contrast(
        F.adjust_hue(F.adjust_saturation(start, f["saturation"]), f["hue"]), f["contrast"]
    )
    want = {
        (before, order): F.permute_channels(one, list(order)).numpy().tobytes()
        for before, one in enumerate((first, last))
        for order in itertools.permutations(range(3))
    }
    seen = set()
    for index in range(80):
        got = ours(image, distort, index=index).tobytes()
        seen |= {key for key, value in want.items() if value == got}
    assert len(seen) == 12
    none = Raw("RandomPhotometricDistort", p=0)
    np.testing.assert_array_equal(ours(image, none), tensor.numpy())


def test_after_to_dtype_they_are_refused_by_name():
    for name, parameters in (
        ("RandomInvert", {}),
        ("RandomPosterize", {"bits": 4}),
        ("RandomSolarize", {"threshold": 128}),
        ("RandomAdjustSharpness", {"sharpness": 2}),
        ("RandomAutocontrast", {}),
        ("RandomEqualize", {}),
        ("RandomChannelPermutation", {}),
        ("RandomPhotometricDistort", {}),
        ("GaussianBlur", {"kernel_size": (3, 3)}),
        ("GaussianNoise", {}),
    ):
        with pytest.raises(ValueError, match=f"{name}.*before the ToDtype"):
            headrace.Preparer([T.CenterCrop(8), T.ToTensor(), Raw(name, **parameters)])


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("RandomInvert", {"p": 1.5}, "outside 0..1"),
        ("RandomInvert", {"p": math.nan}, "outside 0..1"),
        ("RandomPosterize", {"bits": 9}, "0 to 8"),
        ("RandomSolarize", {"threshold": -1}, "0..256"),
        ("RandomAdjustSharpness", {"sharpness": -0.1}, "factor"),
        ("RandomAdjustSharpness", {"sharpness": math.inf}, "factor"),
        ("GaussianBlur", {"kernel_size": (3, 4)}, "odd"),
        ("GaussianBlur", {"kernel_size": (3, -1)}, "odd"),
        ("GaussianBlur", {"kernel_size": (3, 3), "sigma": (2, 1)}, "smaller first"),
        ("GaussianBlur", {"kernel_size": (3, 3), "sigma": (0, 1)}, "sigma"),
        ("GaussianNoise", {"sigma": -1}, "sigma"),
        ("GaussianNoise", {"mean": math.nan}, "mean"),
        ("RandomPhotometricDistort", {"hue": (-0.6, 0)}, "hue"),
        ("RandomPhotometricDistort", {"contrast": (2, 1)}, "contrast"),
    ],
)
def test_wrong_parameters_are_refused(name, parameters, message):
    with pytest.raises(ValueError, match=message):
        headrace.Preparer([T.CenterCrop(8), Raw(name, **parameters)])
