"""Pixels compared with Pillow and torchvision, in units of 1/255.

If a transform is random, its parameters are read off an image of the same size whose colours are
its coordinates: they depend on the size alone.
"""

import io

import numpy as np
import PIL
import pytest
import torch
from PIL import Image, ImageOps

import headrace
import headrace.transforms as T
from conftest import IMAGENET, encode, synthetic

# Pillow rounds after each of its two passes: where nothing is averaged (enlarging)
# that alone is a mean of 0.30. Its float mode shows what remains without it.
MEAN = 0.31
MEAN_REAL = 0.30

PIL_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
LARGEST = {"bilinear": 1.0, "bicubic": 2.0}


def pillow(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def run(transforms, data: bytes, index: int = 0, **options) -> np.ndarray:
    return np.asarray(headrace.Preparer(transforms, **options)(data, index=index))


def resized(image: Image.Image, box, size, interpolation: str) -> np.ndarray:
    """Pillow's crop, then resize to ``size`` = (height, width), horizontally first. Since version
    13 Pillow does the cheaper of its two passes first, before that always the horizontal one; for
    bicubic, clipping in between makes a difference of several units at sharp edges. Two calls of
    one pass each are the same in every version."""
    height, width = size
    crop = image.crop(box)
    across = crop.resize((width, crop.height), PIL_FILTERS[interpolation])
    return chw(across.resize((width, height), PIL_FILTERS[interpolation]))


def chw(image) -> np.ndarray:
    return np.asarray(image, dtype=np.float64).transpose(2, 0, 1)


class Distances:
    """Distances of many images, evaluated together."""

    def __init__(self):
        self.means = []
        self.largest = 0.0

    def add(self, ours, expected):
        assert ours.shape == expected.shape
        distance = np.abs(ours.astype(np.float64) - expected)
        self.means.append(distance.mean())
        self.largest = max(self.largest, distance.max())

    def check(self, mean, largest):
        assert np.mean(self.means) <= mean
        assert max(self.means) <= mean * 1.1
        assert self.largest <= largest


def assert_close(ours, expected, mean, largest):
    distances = Distances()
    distances.add(ours, expected)
    distances.check(mean, largest)


def coordinates(width: int, height: int) -> tuple[bytes, bytes]:
    """Two PNGs; the sum of red and green is x in one, y in the other."""
    assert width <= 510 and height <= 510
    out = []
    for axis in (1, 0):
        c = np.indices((height, width))[axis]
        image = np.stack([c // 2, (c + 1) // 2, np.zeros_like(c)], -1).astype(np.uint8)
        out.append(encode(Image.fromarray(image), "PNG"))
    return out[0], out[1]


def drawn_box(transforms, size, index) -> tuple[tuple[int, int, int, int], bool]:
    """Returns the box (left, top, right, bottom) and horizontal flip of a RandomResizedCrop."""
    edges = []
    for axis, data in enumerate(coordinates(*size)):
        out = run([*transforms, T.ToDtype("float32")], data, index)
        line = (out[0] + out[1]).mean(axis=axis).astype(np.float64)
        n = len(line)
        middle = slice(n // 8, n - n // 8)  # the filter is linear away from the borders
        slope, start = np.polyfit(np.arange(n)[middle] + 0.5, line[middle], 1)
        ends = (start + 0.5, start + 0.5 + slope * n)
        edges.append((round(min(ends)), round(max(ends)), slope < 0))
    (x0, x1, flip), (y0, y1, _) = edges
    return (x0, y0, x1, y1), flip


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(64, 64), (24, 40), (224, 224)])
def test_random_resized_crop_is_pillows_crop_then_resize(photos, interpolation, size):
    transforms = [
        T.RandomResizedCrop(size, interpolation=interpolation),
        T.RandomHorizontalFlip(),
    ]
    flips = 0
    floats, bytes_ = Distances(), Distances()
    for data in photos:
        image = pillow(data)
        for index in range(4):
            box, flip = drawn_box(transforms, image.size, index)
            expected = resized(image, box, size, interpolation)
            expected = expected[:, :, ::-1] if flip else expected
            floats.add(run([*transforms, T.ToDtype("float32")], data, index), expected)
            bytes_.add(run(transforms, data, index), expected)
            flips += flip
    floats.check(MEAN, LARGEST[interpolation])
    bytes_.check(MEAN, LARGEST[interpolation])
    assert 0 < flips < 4 * len(photos)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_real_photographs(real_photos, interpolation):
    transforms = [T.RandomResizedCrop(224, interpolation=interpolation), T.ToDtype("float32")]
    distances = Distances()
    for index, data in enumerate(real_photos):
        image = pillow(data)
        box, _ = drawn_box(transforms[:1], image.size, index)
        expected = resized(image, box, (224, 224), interpolation)
        distances.add(run(transforms, data, index), expected)
    distances.check(MEAN_REAL, LARGEST[interpolation])


def test_bilinear_is_exact_but_for_the_weights_bits(photos):
    for data in photos:
        image = pillow(data)
        box, _ = drawn_box([T.RandomResizedCrop(100)], image.size, 1)
        planes = [p.crop(box).convert("F").resize((100, 100), 2) for p in image.split()]
        ours = run([T.RandomResizedCrop(100), T.ToDtype("float32")], data, 1)
        assert_close(ours, np.stack([np.asarray(p) for p in planes]), 0.01, 0.05)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_evaluation_recipe_is_torchvisions(photos, v2, interpolation):
    theirs = v2.Compose(
        [
            v2.Resize(96, interpolation=v2.InterpolationMode(interpolation)),
            v2.CenterCrop(80),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(**IMAGENET),
        ]
    )
    std = np.array(IMAGENET["std"])[:, None, None] * 255
    distances = Distances()
    for data in photos:
        expected = theirs(pillow(data)).numpy()
        distances.add(run(theirs, data) * std, expected * std)
    distances.check(MEAN, LARGEST[interpolation])


@pytest.mark.parametrize("size", [40, (40, 70), (300, 20), 230])
def test_resize(photos, v2, size):
    distances = Distances()
    for data in photos:
        image = pillow(data)
        expected = chw(v2.Resize(size)(image))
        fixed = [T.Resize(size), T.CenterCrop(expected.shape[1:])]
        distances.add(run(fixed, data, dtype="float32") * 255, expected)
    distances.check(MEAN, 1)


def test_resize_with_max_size(photos, v2):
    for data in photos:
        expected = chw(v2.Resize(50, max_size=60)(pillow(data)))
        fixed = [T.Resize(50, max_size=60), T.CenterCrop(expected.shape[1:])]
        assert_close(run(fixed, data, dtype="float32") * 255, expected, 0.3, 1)


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_tensor_resize_with_and_without_antialias(photos, v2, interpolation, antialias):
    for data in photos[:3]:
        theirs = [
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Resize((50, 60), v2.InterpolationMode(interpolation), antialias=antialias),
        ]
        expected = v2.Compose(theirs)(pillow(data)).clamp(0, 1).numpy() * 255
        assert_close(run(theirs, data) * 255, expected, 0.3, LARGEST[interpolation])


NEAREST = ["nearest", "nearest-exact"]


def noise(rng, height, width) -> bytes:
    return encode(Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)), "PNG")


@pytest.mark.parametrize("interpolation", NEAREST)
@pytest.mark.parametrize("is_tensor", [False, True])
def test_nearest_pixels_are_torchvisions(v2, interpolation, is_tensor):
    """Exactly, and of PIL images as Pillow finds them: shrunk, enlarged, and on the sides where both
    are near; with crops and flips before and behind."""
    rng = np.random.default_rng(17)
    mode = v2.InterpolationMode(interpolation)
    begin, end = ([v2.ToImage()], []) if is_tensor else ([], [v2.ToImage()])
    for _ in range(150):
        height, width, new_height, new_width = (int(n) for n in rng.integers(1, 90, 4))
        data = noise(rng, height, width)
        steps = [v2.Resize((new_height, new_width), mode)]
        if rng.random() < 0.5:
            steps.insert(rng.integers(2), v2.RandomHorizontalFlip(1.0))
        if rng.random() < 0.5:
            steps.insert(rng.integers(len(steps) + 1), v2.RandomVerticalFlip(1.0))
        if rng.random() < 0.5 and height > 3 and width > 3:
            steps.insert(0, v2.CenterCrop((height // 2, width // 3)))
        if rng.random() < 0.5:
            steps.append(v2.CenterCrop((max(1, new_height // 2), max(1, new_width // 3))))
        expected = v2.Compose([*begin, *steps, *end])(pillow(data)).numpy()
        assert np.array_equal(run([*begin, *steps, *end], data), expected), steps


@pytest.mark.parametrize("interpolation", NEAREST)
@pytest.mark.parametrize("is_tensor", [False, True])
def test_random_crops_with_nearest_pixels(photos, v2, interpolation, is_tensor):
    mode = v2.InterpolationMode(interpolation)
    begin, end = ([v2.ToImage()], []) if is_tensor else ([], [v2.ToImage()])
    for size in ((24, 40), (224, 224)):
        for index, data in enumerate(photos[:4]):
            image = pillow(data)
            (left, top, right, bottom), _ = drawn_box([T.RandomResizedCrop(100)], image.size, index)
            place = (top, left, bottom - top, right - left)
            whole = v2.functional.to_image(image) if is_tensor else image
            expected = v2.functional.resized_crop(whole, *place, size, mode)
            ours = run([*begin, v2.RandomResizedCrop(size, interpolation=mode), *end], data, index)
            assert np.array_equal(ours, chw(expected) if end else expected.numpy())


def test_sizes_of_one_side_with_nearest_pixels(photos, v2):
    theirs = [v2.Resize(50, v2.InterpolationMode.NEAREST, max_size=60), v2.CenterCrop(40)]
    for data in photos[:4]:
        expected = chw(v2.Compose(theirs)(pillow(data)))
        assert np.array_equal(run([*theirs, v2.ToImage()], data), expected)


def test_scaled_decoding_needs_a_filter():
    with pytest.raises(ValueError, match="with antialias"):
        headrace.Preparer([T.Resize((8, 8), interpolation="nearest")], exact=False)


# (height, width) of the resized image: both smaller, both larger, and one of each.
SHAPES = [(70, 120), (120, 70), (99, 99), (60, 300)]


def bicubic_against(images, reference):
    distances = Distances()
    for image in images:
        data = encode(image, "PNG", compress_level=1)
        for height, width in SHAPES:
            steps = [T.Resize((height, width), interpolation="bicubic"), T.ToDtype("float32")]
            ours = run(steps, data)
            distances.add(ours, reference(image, height, width))
    return np.mean(distances.means), distances.largest


def black_and_white(seed: int) -> list[Image.Image]:
    """Every pixel is an edge: the largest overshoot of bicubic."""
    rng = np.random.default_rng(seed)
    sizes = ((100, 150, 3), (150, 100, 3), (90, 90, 3))
    return [Image.fromarray(rng.integers(0, 2, s, dtype=np.uint8) * 255) for s in sizes]


def test_bicubic_against_the_pillow_that_is_here(real_photos):
    """In one call, which resizes vertically first for some shapes since Pillow 13."""

    def reference(image, height, width):
        return chw(image.resize((width, height), Image.Resampling.BICUBIC))

    mean, largest = bicubic_against([pillow(data) for data in real_photos[:3]], reference)
    assert mean <= 0.31 and largest <= 8
    mean, largest = bicubic_against(black_and_white(1), reference)
    assert mean <= 5 and largest <= 32
    if int(PIL.__version__.split(".")[0]) < 13:
        assert largest <= LARGEST["bicubic"]


def test_bicubic_against_tensors(real_photos, v2):
    """Of bytes, which are clipped to 0..255 between the passes as ours are; of floats, which are
    not."""
    mode = v2.InterpolationMode.BICUBIC

    def of_bytes(image, height, width):
        return v2.Resize((height, width), mode)(v2.functional.to_image(image)).numpy()

    def of_floats(image, height, width):
        tensor = v2.functional.to_image(image).float()
        return v2.Resize((height, width), mode)(tensor).clamp(0, 255).numpy()

    photographs = [pillow(data) for data in real_photos[:3]]
    for images, most in ((photographs, 8), (black_and_white(2), 32)):
        mean, largest = bicubic_against(images, of_bytes)
        assert mean <= 0.31 and largest <= LARGEST["bicubic"]
        mean, largest = bicubic_against(images, of_floats)
        assert mean <= 5 and largest <= most


def test_pixels_pass_unchanged_where_nothing_is_asked_of_them(photos):
    for data in photos:
        image = pillow(data)
        exact = run([T.CenterCrop(image.size[::-1])], data)
        np.testing.assert_array_equal(exact, chw(image))


def test_center_crop_pads_small_images(photos, v2):
    for data in photos[:3]:
        for size in ((300, 20), (20, 300), (300, 301), (21, 34)):
            expected = chw(v2.CenterCrop(size)(pillow(data)))
            np.testing.assert_array_equal(run([T.CenterCrop(size)], data), expected)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_random_crop_padding(photos, v2, mode):
    data = photos[2]
    image = pillow(data)
    padding = (5, 6, 7, 8)
    size = (image.height + 14, image.width + 12)  # the whole image: nothing is random
    transform = v2.RandomCrop(size, padding=padding, fill=(9, 99, 199), padding_mode=mode)
    np.testing.assert_array_equal(run(transform, data), chw(transform(image)))


def test_random_crop_takes_a_part(photos):
    data = photos[0]
    whole = chw(pillow(data))
    for index in range(5):
        part = run([T.RandomCrop((60, 70))], data, index)
        x, y = coordinates(whole.shape[2], whole.shape[1])
        left = int(run([T.RandomCrop((60, 70))], x, index)[:2, 0, 0].astype(int).sum())
        top = int(run([T.RandomCrop((60, 70))], y, index)[:2, 0, 0].astype(int).sum())
        np.testing.assert_array_equal(part, whole[:, top : top + 60, left : left + 70])


def test_random_crop_of_a_too_small_image():
    data = encode(synthetic(30, 20, 5), "PNG")
    with pytest.raises(ValueError, match="RandomCrop.*larger"):
        run([T.RandomCrop(25)], data)
    padded = run([T.RandomCrop(25, pad_if_needed=True)], data)
    assert padded.shape == (3, 25, 25)


def test_flips_and_grayscale_at_their_limits(photos, v2):
    for data in photos:
        image = pillow(data)
        whole = T.CenterCrop(image.size[::-1])
        exact = chw(image)
        for flip, axis in ((T.RandomHorizontalFlip, 2), (T.RandomVerticalFlip, 1)):
            np.testing.assert_array_equal(run([whole, flip(1)], data), np.flip(exact, axis))
            np.testing.assert_array_equal(run([whole, flip(0)], data), exact)
        tensor = v2.functional.to_dtype(v2.functional.to_image(image), torch.float32, scale=True)
        gray = v2.functional.rgb_to_grayscale(tensor, num_output_channels=3).numpy() * 255
        ours = run([whole, T.ToTensor(), T.RandomGrayscale(1)], data) * 255
        assert_close(ours, gray, 0.01, 0.02)


COLOURS = [
    ("brightness", 1.35, 0.02),
    ("brightness", 0.2, 0.02),
    ("contrast", 1.6, 0.02),
    ("contrast", 0.3, 0.02),
    ("saturation", 1.9, 0.02),
    ("saturation", 0.0, 0.02),
    ("hue", 0.21, 0.1),
    ("hue", -0.4, 0.1),
]


def tensor_of(v2, data):
    return v2.functional.to_dtype(v2.functional.to_image(pillow(data)), torch.float32, scale=True)


@pytest.mark.parametrize(("what", "factor", "largest"), COLOURS)
def test_colours_one_by_one(photos, v2, what, factor, largest):
    adjust = getattr(v2.functional, f"adjust_{what}")
    for data in photos[:4]:
        tensor = tensor_of(v2, data)
        expected = adjust(tensor, factor).numpy() * 255
        jitter = T.ColorJitter(**{what: (factor, factor)})
        ours = run([T.CenterCrop(tensor.shape[1:]), T.ToTensor(), jitter], data) * 255
        assert_close(ours, expected, largest / 2, largest)


def test_all_colours_in_some_order(photos, v2):
    import itertools

    f = v2.functional
    factors = {"brightness": 1.2, "contrast": 0.7, "saturation": 1.5, "hue": 0.1}
    jitter = T.ColorJitter(**{k: (v, v) for k, v in factors.items()})
    data = photos[2]
    tensor = tensor_of(v2, data)
    candidates = {}
    for order in itertools.permutations(factors):
        out = tensor
        for what in order:
            out = getattr(f, f"adjust_{what}")(out, factors[what])
        candidates[order] = out.numpy() * 255
    seen = set()
    for index in range(60):
        whole = T.CenterCrop(tensor.shape[1:])
        ours = run([whole, T.ToTensor(), jitter], data, index) * 255
        distance, order = min((np.abs(ours - c).max(), o) for o, c in candidates.items())
        assert distance <= 0.12
        seen.add(order)
    assert len(seen) > 12  # of 24, in 60 draws


def test_drawn_factors_have_torchvisions_distribution(v2):
    data = encode(Image.new("RGB", (4, 4), (100, 100, 100)), "PNG")
    p = headrace.Preparer([T.CenterCrop(4), T.ToTensor(), T.ColorJitter(brightness=(0.5, 2))])
    factors = [np.asarray(p(data, index=i))[0, 0, 0] * 2.55 for i in range(1500)]
    factors = np.sort(factors)
    uniform = np.linspace(0.5, 2, len(factors))
    assert np.abs(factors - uniform).max() < 1.5 * 1.63 / np.sqrt(len(factors))  # K-S at 1 %


def test_drawn_boxes_have_torchvisions_distribution(v2):
    size = (96, 72)
    transform = T.RandomResizedCrop(64)
    ours = np.array([drawn_box([transform], size, i)[0] for i in range(500)], dtype=float)
    torch.manual_seed(0)
    image = torch.zeros(3, size[1], size[0])
    theirs = []
    for _ in range(4000):
        p = v2.RandomResizedCrop(64).make_params([image])
        theirs.append((p["left"], p["top"], p["left"] + p["width"], p["top"] + p["height"]))
    theirs = np.array(theirs, dtype=float)

    def shapes(b):
        w, h = b[:, 2] - b[:, 0], b[:, 3] - b[:, 1]
        return {"area": w * h, "ratio": np.log(w / h), "x": b[:, 0] + w / 2, "y": b[:, 1] + h / 2}

    a, b = shapes(ours), shapes(theirs)
    for name in a:
        grid = np.unique(np.concatenate([a[name], b[name]]))
        distance = np.abs(
            np.searchsorted(np.sort(a[name]), grid, "right") / len(a[name])
            - np.searchsorted(np.sort(b[name]), grid, "right") / len(b[name])
        ).max()
        limit = 1.63 * np.sqrt(1 / len(a[name]) + 1 / len(b[name]))  # Kolmogorov-Smirnov, 1 %
        assert distance < 1.2 * limit, f"{name}: {distance:.3f} of {limit:.3f}"


# Types and layouts


def test_types_and_layouts_say_the_same(photos):
    data = photos[0]
    base = [T.RandomResizedCrop((40, 56)), T.ToTensor(), T.Normalize(**IMAGENET)]
    exact = run(base, data, 3)
    assert exact.dtype == np.float32
    nhwc = run(base, data, 3, layout="NHWC")
    np.testing.assert_array_equal(nhwc.transpose(2, 0, 1), exact)
    half = run(base, data, 3, dtype=torch.float16)
    np.testing.assert_array_equal(half, exact.astype(np.float16))
    brain = torch.from_dlpack(headrace.Preparer(base, dtype="bfloat16")(data, index=3))
    assert torch.equal(brain, torch.from_numpy(exact).to(torch.bfloat16))


def test_scale_of_to_dtype(photos):
    data = photos[0]
    crop = T.RandomResizedCrop(32)
    raw = run([crop, T.ToDtype("float32")], data)
    assert raw.max() > 2
    unit = run([crop, T.ToDtype("float32", scale=True)], data)
    np.testing.assert_allclose(unit * 255, raw, atol=1e-4)
    assert_close(run([crop], data), raw, 0.3, 0.51)


def test_draws_depend_on_seed_epoch_and_index_only(photos):
    data = photos[0]
    p = headrace.Preparer([T.RandomResizedCrop(24), T.ToTensor()])
    one = np.array(p(data, seed=1, epoch=2, index=3))
    p(photos[1])
    np.testing.assert_array_equal(np.asarray(p(data, seed=1, epoch=2, index=3)), one)
    for other in ({"seed": 2}, {"epoch": 3}, {"index": 4}):
        key = {"seed": 1, "epoch": 2, "index": 3} | other
        assert not np.array_equal(np.asarray(p(data, **key)), one)


# Formats


def test_modes_become_rgb_as_pillow_does():
    image = synthetic(61, 47, 8)
    rgba = image.copy()
    rgba.putalpha(Image.linear_gradient("L").resize(image.size))
    files = {
        "grey": encode(image.convert("L")),
        "cmyk": encode(image.convert("CMYK")),
        "progressive": encode(image, progressive=True),
        "444": encode(image, subsampling=0),
        "422": encode(image, subsampling=1),
        "palette": encode(image.convert("P"), "PNG"),
        "alpha": encode(rgba, "PNG"),
        "grey alpha": encode(rgba.convert("LA"), "PNG"),
        "one bit": encode(image.convert("1"), "PNG"),
    }
    for name, data in files.items():
        np.testing.assert_array_equal(
            run([T.CenterCrop((47, 61))], data), chw(pillow(data)), err_msg=name
        )


def test_exif_orientation_on_request():
    image = synthetic(40, 24, 9)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        data = encode(image, exif=exif, subsampling=0)
        plain = Image.open(io.BytesIO(data))
        assert headrace.Preparer().info(data)["orientation"] == orientation
        np.testing.assert_array_equal(run([T.CenterCrop((24, 40))], data), chw(plain))
        turned = ImageOps.exif_transpose(plain)
        ours = run(
            [T.CenterCrop(turned.size[::-1])], data, apply_exif_orientation=True
        )
        np.testing.assert_array_equal(ours, chw(turned), err_msg=str(orientation))


def test_decode_regions(photos):
    preparer = headrace.Preparer()
    for data in photos:
        whole = np.asarray(pillow(data))
        np.testing.assert_array_equal(np.asarray(preparer.decode(data)), whole)
        part = np.asarray(preparer.decode(data, (13, 7, 40, 30)))
        np.testing.assert_array_equal(part, whole[7:37, 13:53])
        info = preparer.info(data)
        assert (info["height"], info["width"]) == whole.shape[:2]
    with pytest.raises(IndexError):
        preparer.decode(photos[0], (240, 0, 40, 10))
    with pytest.raises(TypeError, match="region"):
        preparer.decode(photos[0], (0, 0, 10))


def test_bytes_that_are_no_image():
    preparer = headrace.Preparer([T.CenterCrop(8)])
    for data in (b"", b"hello, world", b"\xff\xd8\xff\xe0", encode(synthetic(64, 64, 1))[:700]):
        with pytest.raises((ValueError, NotImplementedError)):
            preparer(data)
    with pytest.raises(NotImplementedError, match="TIFF"):
        preparer(encode(synthetic(8, 8, 1), "TIFF"))
    with pytest.raises(ValueError, match="no transform"):
        headrace.Preparer()(b"")
    with pytest.raises(TypeError):
        preparer("text")
