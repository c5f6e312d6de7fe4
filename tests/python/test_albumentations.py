"""Albumentations' transforms: what runs in C gives the same as the package, the rest is called."""

import collections
import functools
import os
import random

import headrace
import numpy as np
import pytest
from headrace import _albumentations, transforms as T
from headrace._torchvision import beginnings

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # no network at import
torch = pytest.importorskip("torch")
A = pytest.importorskip("albumentations")
from albumentations.pytorch import ToTensorV2  # noqa: E402
from PIL import Image  # noqa: E402
from run_operations import picture, png  # noqa: E402

SIZES = [(64, 45), (31, 70), (33, 33), (224, 96)]
CROP = A.RandomCrop(24, 32)
# Of OpenCV.
CONSTANT, REPLICATE, REFLECT, WRAP, REFLECT_101 = range(5)


def start(transform):
    """The longest beginning of a transform that runs in C."""
    return beginnings(transform, headrace.transforms.make)[0]


def native(image, transform, index=0):
    """What the library makes of an image with the whole transform."""
    prepare = headrace.Preparer([T.CenterCrop(image.shape[:2]), A.Compose([transform, ToTensorV2()])])
    return np.asarray(prepare(png(image), index=index))


def called(image, transform):
    return A.Compose([transform, ToTensorV2()])(image=image)["image"].numpy()


EXACT = [
    A.NoOp(),
    A.HorizontalFlip(p=1),
    A.VerticalFlip(p=1),
    A.InvertImg(p=1),
    *[A.Solarize((t, t), p=1) for t in (0, 0.2, 0.3, 0.5, 0.7, 0.8, 1)],
    *[A.Posterize(bits, p=1) for bits in (1, 4, 7)],
    *[
        A.Pad(padding, border_mode=mode, fill=fill, p=1)
        for padding in (3, (2, 5), (1, 2, 3, 4))
        for mode in (CONSTANT, REPLICATE, REFLECT, REFLECT_101)
        for fill in (10, (10, 20, 30))
    ],
    A.Sequential([A.HorizontalFlip(p=1), A.Compose([A.InvertImg(p=1)])], p=1),
]


@pytest.mark.parametrize("transform", EXACT, ids=repr)
def test_same_bytes(transform):
    for size in SIZES:
        image = picture(*size)
        ours, theirs = native(image, transform), called(image, transform)
        assert ours.dtype == theirs.dtype == np.uint8
        np.testing.assert_array_equal(ours, theirs)


FLOATS = [
    A.ToFloat(),
    A.ToFloat(max_value=255),
    A.Normalize(),
    A.Normalize(0.5, 0.25),
    A.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4), max_pixel_value=200),
    A.Normalize((10, 20, 30), (40, 50, 60), max_pixel_value=1),
    A.Compose([A.ToFloat(), A.Normalize(max_pixel_value=1), A.HorizontalFlip(p=1)]),
]


@pytest.mark.parametrize("transform", FLOATS, ids=repr)
def test_same_floats(transform):
    """They round in another order: at most 1e-6, where values reach 6.5."""
    for size in SIZES:
        image = picture(*size)
        ours, theirs = native(image, transform), called(image, transform)
        assert ours.dtype == theirs.dtype == np.float32
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


def counted(results):
    return collections.Counter(np.ascontiguousarray(one).tobytes() for one in results)


def assert_alike(ours, theirs):
    """The same results, each equally often but for chance: five standard deviations."""
    assert ours.keys() == theirs.keys()
    for key in ours:
        share = (ours[key] + theirs[key]) / 2
        assert abs(ours[key] - theirs[key]) < 5 * (2 * share) ** 0.5


@pytest.mark.parametrize(
    "transform",
    [
        A.HorizontalFlip(p=0.3),
        A.VerticalFlip(),
        A.InvertImg(p=0.8),
        A.Solarize((0.5, 0.5), p=0.2),
        A.Posterize(3, p=0.4),
        A.ChannelShuffle(p=0.75),
        A.RandomCrop(6, 9),
        A.RandomCrop(7, 11),
        A.Compose([A.HorizontalFlip(), A.Sequential([A.VerticalFlip(), A.InvertImg()], p=1)]),
    ],
    ids=repr,
)
def test_same_draws(transform):
    image = picture(11, 7)
    count = 1500
    ours = counted(native(image, transform, index) for index in range(count))
    whole = A.Compose([transform, ToTensorV2()])
    whole.set_random_state(np.random.default_rng(1), random.Random(1))
    theirs = counted(whole(image=image)["image"].numpy() for _ in range(count))
    assert_alike(ours, theirs)


# Everything else runs in Python, and the reason names it.


@pytest.mark.parametrize(
    "transform, why",
    [
        (A.Resize(20, 20), "other pixels"),
        (A.RandomResizedCrop((20, 20)), "other pixels"),
        (A.CenterCrop(20, 20), "odd margin"),
        (A.ToGray(p=1), "rounds in another way"),
        (A.RandomCrop(20, 20, p=0.5), "p=1"),
        (A.RandomCrop(20, 20, pad_if_needed=True), "pad_if_needed"),
        (A.Pad(3, p=0.5), "p=1"),
        (A.Pad(3, fill=0.5), "whole numbers"),
        (A.Pad(3, border_mode=WRAP), "border_mode"),
        (A.Solarize((0.2, 0.5)), "drawn"),
        (A.Posterize((2, 5)), "drawn"),
        (A.Posterize([(2, 2), (3, 3), (4, 4)]), "by channel"),
        (A.Normalize(normalization="image"), "standard"),
        (A.Normalize(p=0.5), "p=1"),
        (A.ToFloat(max_value=100), "max_value"),
        (A.ColorJitter(), "no equivalent"),
        (A.OneOf([A.HorizontalFlip(p=1), A.VerticalFlip(p=1)]), "no equivalent"),
        (A.Compose([A.HorizontalFlip()], p=0.5), "p=1"),
        (A.Sequential([A.HorizontalFlip()]), "p=1"),
    ],
    ids=repr,
)
def test_not_the_same(transform, why):
    found = start(A.Compose([CROP, transform, ToTensorV2()]))
    assert found.theirs == [CROP]
    assert found.rest[0] is transform
    assert type(transform).__name__ in found.why and why in found.why
    with pytest.raises(ValueError, match=type(transform).__name__):
        T.from_torchvision(transform)


@pytest.mark.parametrize("transform", [A.InvertImg(), A.Pad(1), A.ToFloat()], ids=repr)
def test_bytes_only(transform):
    found = start(A.Compose([CROP, A.Normalize(), transform, ToTensorV2()]))
    assert found.theirs == [CROP]  # Python gets no array of floats
    assert "on bytes only" in found.why


def test_array_at_the_end():
    """Scripts get arrays of another shape than the library's without ToTensorV2."""
    for last in (A.HorizontalFlip(), A.Normalize()):
        found = start(A.Compose([CROP, last]))
        assert found.theirs == [CROP] and found.rest == [last]
        assert "ToTensorV2" in found.why


def test_after_tensors():
    found = start(A.Compose([CROP, ToTensorV2(), A.HorizontalFlip()]))
    assert "takes arrays" in found.why


@pytest.mark.parametrize(
    "argument, options",
    [
        ("bbox_params", {"bbox_params": A.BboxParams("coco")}),
        ("keypoint_params", {"keypoint_params": A.KeypointParams("xy")}),
        ("additional_targets", {"additional_targets": {"other": "image"}}),
    ],
)
def test_more_than_an_image_is_refused(images, argument, options):
    whole = A.Compose([CROP, ToTensorV2()], **options)
    with pytest.raises(ValueError, match=f"{argument} is not supported: use a dataset of your own"):
        headrace.ImageFolder(images, whole)
    with pytest.raises(ValueError, match=argument):
        T.from_torchvision(whole)


# In loaders


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Two classes of ten images of different sizes."""
    root = tmp_path_factory.mktemp("images")
    for number in range(20):
        folder = root / f"class{number % 2}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number:02}.png").write_bytes(png(picture(40 + number, 60 - number, number)))
    return root


@functools.cache
def loaders():
    return pytest.importorskip("headrace.torch").DataLoader


def load(images, transform, epochs=1, **arguments):
    dataset = headrace.ImageFolder(images, transform)
    loader = loaders()(dataset, batch_size=4, seed=3, **arguments)
    batches = [x.clone() for _ in range(epochs) for x, _ in loader]
    said, is_native = headrace.explain(loader), loader.is_native
    loader.close()
    return torch.cat(batches), said, is_native


def test_native_loader(images):
    whole = A.Compose([CROP, A.HorizontalFlip(), A.Normalize(), ToTensorV2()])
    got, said, is_native = load(images, whole)
    assert is_native and "HorizontalFlip" in said
    assert got.shape == (20, 3, 24, 32) and got.dtype == torch.float32


@pytest.mark.parametrize(
    "steps",
    [
        [A.CenterCrop(21, 30), A.HorizontalFlip(p=1), A.Normalize(), ToTensorV2()],
        [A.Resize(20, 30), A.ToGray(p=1)],
        [A.Compose([A.Resize(20, 30)]), A.Normalize()],
    ],
    ids=repr,
)
@pytest.mark.parametrize("workers", [0, 2])
def test_called_as_scripts_do(images, steps, workers):
    whole = A.Compose(steps)
    got, said, is_native = load(images, whole, num_workers=workers)
    assert not is_native and type(steps[0]).__name__ in said or "Resize" in said
    paths = [path for path, _ in headrace.ImageFolder(images).samples]
    pixels = [np.array(Image.open(path).convert("RGB")) for path in paths]
    expected = [torch.as_tensor(whole(image=image)["image"]) for image in pixels]
    assert torch.equal(got, torch.stack(expected))


def test_random_tail_is_seeded_for_each_sample(images):
    """Nothing depends on the number of workers, and epochs differ."""
    whole = A.Compose(
        [
            CROP,
            A.OneOf([A.RandomGamma(p=1), A.ColorJitter(p=1)], p=0.9),
            A.CoarseDropout(p=1),
            A.Normalize(),
            ToTensorV2(),
        ],
        seed=137,
    )
    runs = [load(images, whole, epochs=2, num_workers=n, shuffle=True)[0] for n in (0, 1, 2)]
    assert all(torch.equal(run, runs[0]) for run in runs)
    first, second = runs[0].split(20)
    assert not torch.equal(first.sum((1, 2, 3)).sort()[0], second.sum((1, 2, 3)).sort()[0])


def test_members_of_a_group_draw_by_themselves(images):
    """Albumentations' set_random_seed would give them the same numbers."""
    flips = A.Sequential([A.HorizontalFlip(), A.VerticalFlip(), A.InvertImg()], p=0.999)
    call = _albumentations.Call(flips)
    image = picture(11, 7)
    assert len(counted(call(image) for _ in range(500))) == 8


class Brighter(A.ImageOnlyTransform):
    """A transform of the user's own."""

    def apply(self, img, **params):
        assert img.flags.writeable
        return np.minimum(img, 200) + np.uint8(self.py_random.randrange(50))


def test_transform_of_ones_own(images):
    whole = A.Compose([CROP, Brighter(p=1), ToTensorV2()])
    got, said, _ = load(images, whole, num_workers=2)
    assert "Brighter" in said
    assert torch.equal(got, load(images, whole, num_workers=0)[0])


def test_tensors_are_refused_in_python(images):
    whole = A.Compose([CROP, ToTensorV2(), A.RandomGamma(p=1)])
    with pytest.raises(headrace.SampleError, match="takes arrays and PIL images, not Tensor"):
        load(images, whole, num_workers=0)


def test_dataset_without_loader(images):
    for steps in ([CROP, A.HorizontalFlip()], [A.Resize(24, 32)]):
        image, _ = headrace.ImageFolder(images, A.Compose(steps))[0]
        assert isinstance(image, np.ndarray) and image.shape == (24, 32, 3)
    image, _ = headrace.ImageFolder(images, A.Compose([CROP, ToTensorV2()]))[0]
    assert image.shape == (3, 24, 32)


class OwnDataset(torch.utils.data.Dataset):
    def __init__(self, root, transform):
        self.paths = sorted(root.glob("*/*.png"))
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        image = np.array(Image.open(self.paths[index]).convert("RGB"))
        return self.transform(image=image)["image"], index


def test_dataset_of_ones_own(images):
    dataset = OwnDataset(images, A.Compose([A.Resize(20, 30), A.Normalize(), ToTensorV2()]))
    loader = loaders()(dataset, batch_size=4, num_workers=2)
    got = torch.cat([x.clone() for x, _ in loader])
    said = headrace.explain(loader)
    loader.close()
    assert "OwnDataset" in said and "worker processes" in said
    assert torch.equal(got, torch.stack([dataset[index][0] for index in range(len(dataset))]))


def test_another_fill_of_masks_is_told(tmp_path, recwarn):
    image, mask = tmp_path / "image.png", tmp_path / "mask.png"
    Image.new("RGB", (40, 30)).save(image), Image.new("L", (40, 30)).save(mask)
    dataset = headrace.ImageList([image], masks=[mask])
    for given, words in [({}, "(Pad with 0)"), ({"fill_mask": 7}, "(Pad with 7)"),
                         ({"fill_mask": 255}, None), ({"border_mode": REFLECT}, None)]:
        recwarn.clear()
        loaders()(dataset, 1, transform=A.Compose([A.Pad(3, **given), A.RandomCrop(20, 20), ToTensorV2()]))
        found = [str(one.message) for one in recwarn if "fill what they add" in str(one.message)]
        assert [words in one and "fill_mask=255" in one for one in found] == [True] * bool(words)
