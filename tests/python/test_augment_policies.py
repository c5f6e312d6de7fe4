"""RandAugment and its relatives: each result is one that torchvision's transform can give."""

import collections
import math

import headrace
import numpy as np
import pytest
from headrace import transforms as T

torch = pytest.importorskip("torch")

from run_operations import Raw, dull, ours  # noqa: E402

SIGNED = {
    "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate",
    "Brightness", "Color", "Contrast", "Sharpness",
}  # fmt: skip


@pytest.fixture
def auto(v2):
    from torchvision.transforms import v2 as module

    return module


def tensor_of(image):
    return torch.from_numpy(image.transpose(2, 0, 1).copy())


def results(transform, tensor, kind, magnitude):
    """What torchvision's transform makes of the image with one operation, for both signs."""
    signs = (1, -1) if kind in SIGNED else (1,)
    return {
        (kind, sign): transform._apply_image_or_video_transform(
            tensor,
            kind,
            0.0 if magnitude is None else sign * magnitude,
            transform.interpolation,
            transform._fill,
        )
        for sign in signs
    }


def magnitudes(transform, kind, bins, tensor):
    function, signed = transform._AUGMENTATION_SPACE[kind]
    assert signed == (kind in SIGNED)
    values = function(bins, tensor.shape[-2], tensor.shape[-1])
    return None if values is None else [float(v) for v in values]


def near(got, want):
    """Returns whether two images are equal up to torch's rounding of coordinates.

    It depends on the processor: where a coordinate lies between two pixels, its matrix products
    take the one or the other. Images of other operations differ in far more values.
    """
    return (got != want).mean() < 0.02


def match(got, candidates):
    """The candidates that are the image; exactly, or near where none is."""
    exact = {k for k, v in candidates.items() if np.array_equal(got, v)}
    return exact or {k for k, v in candidates.items() if near(got, v)}


STYLES = [("nearest", None), ("nearest", (10.0, 200.0, 90.0)), ("bilinear", None), ("bilinear", (10.0, 200.0, 90.0))]


def style(interpolation, fill):
    return {
        "interpolation": {"bilinear": 0, "nearest": 2}[interpolation],
        "has_fill": fill is not None,
        "fill": fill or (0.0, 0.0, 0.0),
    }


# Each style, and each magnitude; the long ones are the other pairs.
@pytest.mark.parametrize(
    ("number", "magnitude"),
    [
        pytest.param(number, magnitude, marks=[pytest.mark.long] if number != place else [])
        for place, magnitude in enumerate((0, 9, 30, 9))
        for number in range(len(STYLES))
        if number == place or place < 3
    ],
)
def test_rand_augment(auto, number, magnitude):
    interpolation, fill = STYLES[number]
    image = dull(64, 45)
    tensor = tensor_of(image)
    theirs = auto.RandAugment(1, magnitude, interpolation=interpolation, fill=fill)
    candidates = {}
    for kind in theirs._AUGMENTATION_SPACE:
        values = magnitudes(theirs, kind, 31, tensor)
        candidates |= results(theirs, tensor, kind, values and values[magnitude])
    candidates = {k: v.numpy() for k, v in candidates.items()}
    seen = collections.Counter()
    raw = Raw("RandAugment", num_ops=1, magnitude=magnitude, **style(interpolation, fill))
    for index in range(250):
        found = match(ours(image, raw, index=index), candidates)
        assert found, index
        seen[min(found)] += 1
    if magnitude == 9:
        assert len(seen) == len(candidates)
        kinds = collections.Counter()
        for (kind, _), n in seen.items():
            kinds[kind] += n
        share = 250 / 14
        assert all(abs(n - share) < 5 * math.sqrt(share) for n in kinds.values())


def test_rand_augment_twice(auto):
    """The second operation works on the result of the first."""
    image = dull(40, 40)
    theirs = auto.RandAugment(2, 20)
    tensor = tensor_of(image)
    first, candidates = {}, {}
    for kind in theirs._AUGMENTATION_SPACE:
        values = magnitudes(theirs, kind, 31, tensor)
        first |= results(theirs, tensor, kind, values and values[20])
    for one, middle in first.items():
        for kind in theirs._AUGMENTATION_SPACE:
            values = magnitudes(theirs, kind, 31, tensor)
            for two, last in results(theirs, middle, kind, values and values[20]).items():
                candidates[one, two] = last.numpy()
    raw = Raw("RandAugment", num_ops=2, magnitude=20)
    for index in range(60):
        assert match(ours(image, raw, index=index), candidates), index
    nothing = Raw("RandAugment", num_ops=0)
    np.testing.assert_array_equal(ours(image, nothing), tensor.numpy())


@pytest.mark.parametrize(("interpolation", "fill"), [STYLES[0], STYLES[3]])
def test_trivial_augment(auto, interpolation, fill):
    image = dull(64, 45)
    tensor = tensor_of(image)
    theirs = auto.TrivialAugmentWide(8, interpolation=interpolation, fill=fill)
    candidates = {}
    for kind in theirs._AUGMENTATION_SPACE:
        for i, value in enumerate(magnitudes(theirs, kind, 8, tensor) or [None]):
            for key, result in results(theirs, tensor, kind, value).items():
                candidates[(*key, i)] = result.numpy()
    seen = collections.Counter()
    raw = Raw("TrivialAugmentWide", num_magnitude_bins=8, **style(interpolation, fill))
    for index in range(250):
        found = match(ours(image, raw, index=index), candidates)
        assert found, index
        seen[min(found)[0]] += 1
    assert len(seen) >= 12


@pytest.mark.parametrize(("number", "policy"), [(0, "imagenet"), (1, "cifar10"), (2, "svhn")])
def test_auto_augment(auto, number, policy):
    image = dull(48, 37)
    tensor = tensor_of(image)
    theirs = auto.AutoAugment(auto.AutoAugmentPolicy(policy))
    candidates = {}
    for p, halves in enumerate(theirs._policies):
        stages = {(p,): tensor}
        for kind, probability, index in halves:
            following = {}
            for key, middle in stages.items():
                if probability < 1:
                    following[(*key, None)] = middle
                values = magnitudes(theirs, kind, 10, tensor)
                made = results(theirs, middle, kind, values and values[index])
                following |= {(*key, k): v for k, v in made.items() if probability > 0}
            stages = following
        candidates |= {k: v.numpy() for k, v in stages.items()}
    seen = collections.Counter()
    for index in range(400):
        found = match(ours(image, Raw("AutoAugment", policy=number), index=index), candidates)
        assert found, index
        for p in {key[0] for key in found}:
            seen[p] += 1
    assert set(seen) == set(range(25))


def test_aug_mix_of_one_chain(auto):
    """One operation, mixed by a weight that is uniform for alpha = 1."""
    image = dull(40, 32)
    tensor = tensor_of(image)
    theirs = auto.AugMix(severity=3, mixture_width=1, chain_depth=1)
    candidates = {}
    for kind in theirs._AUGMENTATION_SPACE:
        values = magnitudes(theirs, kind, 10, tensor)
        for i, value in enumerate(values[:3] if values else [None]):
            for key, result in results(theirs, tensor, kind, value).items():
                candidates[(*key, i)] = result.numpy().astype(float)
    whole, weights = tensor.numpy().astype(float), []
    raw = Raw("AugMix", severity=3, mixture_width=1, chain_depth=1)
    for index in range(300):
        got, fits = ours(image, raw, index=index).astype(float), []
        for other in candidates.values():
            difference = other - whole
            if not difference.any():
                fits.append((np.abs(got - whole).max() > 1, None))
                continue
            weight = ((got + 0.5 - whole) * difference).sum() / (difference**2).sum()
            mixed = np.floor(np.clip(whole + np.clip(weight, 0, 1) * difference + 1e-4, 0, 255))
            fits.append(((np.abs(mixed - got) > 1).mean(), weight))
        error, weight = min(fits, key=lambda f: f[0])
        assert error < 0.01, index
        if weight is not None and np.abs(got - whole).mean() > 0.5:
            weights.append(weight)
    assert len(weights) > 100
    assert 0.35 < np.mean(weights) < 0.75
    assert min(weights) < 0.25
    assert max(weights) > 0.9


@pytest.mark.long
def test_aug_mix_keeps_the_mean_and_differs(auto):
    """Against torchvision's own: mean and deviation of the change, over many draws."""
    image = dull(48, 48)
    whole = tensor_of(image)
    raw = Raw("AugMix")
    changes = [np.abs(ours(image, raw, index=i).astype(int) - whole.numpy()).mean() for i in range(250)]
    torch.manual_seed(3)
    theirs = auto.AugMix()
    wanted = [
        np.abs(theirs(whole).numpy().astype(int) - whole.numpy()).mean() for _ in range(250)
    ]
    both = np.sort(np.concatenate((changes, wanted)))
    a = np.searchsorted(np.sort(changes), both, "right") / 250
    b = np.searchsorted(np.sort(wanted), both, "right") / 250
    assert np.abs(a - b).max() < 1.95 * math.sqrt(2 / 250)  # K-S at 0.1 %


def test_crops_around_policies_give_the_same_pixels():
    image = dull(80, 70)
    for name in ("RandAugment", "TrivialAugmentWide", "AutoAugment", "AugMix"):
        for index in range(8):
            whole = ours(image, Raw(name), index=index)
            part = ours(image, Raw(name), T.CenterCrop((30, 40)), index=index)
            np.testing.assert_array_equal(part, whole[:, 20:50, 20:60])


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("RandAugment", {"num_ops": 33}, "num_ops"),
        ("RandAugment", {"magnitude": 31}, "magnitude"),
        ("RandAugment", {"magnitude": -1}, "magnitude"),
        ("RandAugment", {"num_magnitude_bins": 1, "magnitude": 0}, "num_magnitude_bins"),
        ("RandAugment", {"interpolation": 1}, "nearest or bilinear"),
        ("TrivialAugmentWide", {"fill": (0, 0, 256)}, "0..255"),
        ("AutoAugment", {"policy": 3}, "policy"),
        ("AugMix", {"severity": 11}, "severity"),
        ("AugMix", {"alpha": 0}, "alpha"),
        ("AugMix", {"mixture_width": 0}, "mixture_width"),
        ("AugMix", {"mixture_width": 10, "chain_depth": 10}, "mixture_width"),
    ],
)
def test_wrong_parameters_are_refused(name, parameters, message):
    with pytest.raises(ValueError, match=f"{name}.*{message}"):
        headrace.Preparer([T.CenterCrop(8), Raw(name, **parameters)])


@pytest.mark.parametrize("name", ["RandAugment", "TrivialAugmentWide", "AutoAugment", "AugMix"])
def test_after_to_dtype_they_are_refused_by_name(name):
    with pytest.raises(ValueError, match=f"{name}.*before the ToDtype"):
        headrace.Preparer([T.CenterCrop(8), T.ToTensor(), Raw(name)])
