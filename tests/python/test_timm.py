"""timm's policies in C: each result is one that timm's own can give, byte for byte."""

import collections
import itertools
import math

import headrace
import numpy as np
import pytest
from headrace import transforms as T

pytest.importorskip("torch")
auto = pytest.importorskip("timm.data.auto_augment")
from PIL import Image  # noqa: E402
from run_operations import dull, png  # noqa: E402

MEAN = (124, 116, 104)
BOTH = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)
CHOICES = ("plain", "increasing", "3a", "3aw", "weights")


@pytest.fixture(autouse=True)
def no_bits(monkeypatch):
    """timm keeps 0 bits at the highest magnitude, which makes black; Pillow 13 refuses that."""
    posterize = auto.ImageOps.posterize

    def posterize_or_black(image, bits):
        return posterize(image, bits) if bits > 0 else image.point(lambda v: 0)

    monkeypatch.setattr(auto.ImageOps, "posterize", posterize_or_black)


def planes(image):
    return np.asarray(image).transpose(2, 0, 1)


def drawn(image, *operations, count):
    """What the library makes of an image, of samples 0, 1, ..."""
    prepare = headrace.Preparer([T.CenterCrop(image.shape[:2]), *operations])
    data = png(image)
    return [np.array(prepare(data, index=index)) for index in range(count)]


def results(monkeypatch, op, image):
    """What an operation can make of a PIL image, by sign and interpolation."""
    made = {}
    for sign, resample in itertools.product((1, -1), BOTH):
        monkeypatch.setattr(auto, "_randomly_negate", lambda v, sign=sign: sign * v)
        arguments = op.level_fn(op.magnitude, op.hparams) if op.level_fn else ()
        if resample in np.atleast_1d(op.kwargs["resample"]):
            result = op.aug_fn(image, *arguments, fillcolor=op.kwargs["fillcolor"], resample=resample)
            made[op.name, sign, resample.name] = result
    return made


def randomized(choices, magnitude, layers=1, p=1.0, **hparams):
    """timm's RandAugment with a list of operations of its own."""
    found = auto.rand_augment_choices(choices, increasing=choices != "plain")
    weights = None
    if isinstance(found, dict):
        found, weights = auto._get_weighted_transforms(found)
    ops = auto.rand_augment_ops(magnitude, p, {"img_mean": MEAN, **hparams}, found)
    return auto.RandAugment(ops, layers, choice_weights=weights)


@pytest.mark.parametrize("choices", CHOICES)
@pytest.mark.parametrize("magnitude", [0, 3, 9.5])
def test_rand_augment(monkeypatch, choices, magnitude):
    size = (64, 45) if magnitude == 3 else (31, 70)
    image = dull(*size)
    theirs = randomized(choices, magnitude)
    candidates = {}
    for op in theirs.ops:
        candidates |= results(monkeypatch, op, Image.fromarray(image))
    candidates = {key: planes(made) for key, made in candidates.items()}
    seen, count = collections.Counter(), 300
    for index, got in enumerate(drawn(image, T.from_torchvision(theirs), count=count)):
        found = {key for key, made in candidates.items() if np.array_equal(got, made)}
        assert found, index
        seen[min(found)[0]] += 1
    if magnitude != 3:
        return
    weights = theirs.choice_weights
    for k, op in enumerate(theirs.ops):
        share = count * (1 / len(theirs.ops) if weights is None else weights[k])
        assert abs(seen[op.name] - share) < 6 * math.sqrt(share) + 2, op.name


@pytest.mark.parametrize("interpolation", [*BOTH, None])
@pytest.mark.parametrize("size", [(224, 224), (1, 9), (5, 2), (3, 3)])
def test_maps_of_large_and_small_images(monkeypatch, interpolation, size):
    hparams = {} if interpolation is None else {"interpolation": interpolation}
    image = dull(*size)
    theirs = randomized("increasing", 7, **hparams, translate_pct=0.7)
    candidates = {}
    for op in theirs.ops:
        candidates |= results(monkeypatch, op, Image.fromarray(image))
    candidates = {planes(made).tobytes() for made in candidates.values()}
    for index, got in enumerate(drawn(image, T.from_torchvision(theirs), count=100)):
        assert got.tobytes() in candidates, index


@pytest.mark.parametrize("policy", ["v0", "v0r", "original", "originalr", "3a"])
def test_auto_augment(monkeypatch, policy):
    image = dull(48, 37)
    hparams = {"img_mean": MEAN, "interpolation": Image.Resampling.BICUBIC}
    monkeypatch.setattr(auto.random, "uniform", lambda a, b: b)  # the radius of 3a's blur
    theirs = auto.AutoAugment(auto.auto_augment_policy(policy, hparams))
    candidates = {}
    for number, ops in enumerate(theirs.policy):
        stages = {(number,): Image.fromarray(image)}
        for op in ops:
            following = dict(stages) if op.prob < 1 else {}
            for key, middle in stages.items():
                if op.prob > 0:
                    made = results(monkeypatch, op, middle)
                    following |= {(*key, *name): one for name, one in made.items()}
            stages = following
        candidates |= {key: planes(made).tobytes() for key, made in stages.items()}
    seen = set()
    for index, got in enumerate(drawn(image, T.from_torchvision(theirs), count=400)):
        found = {key[0] for key, made in candidates.items() if made == got.tobytes()}
        assert found or policy == "3a", index
        seen |= found
    assert seen == set(range(len(theirs.policy) - (policy == "3a")))


def shares(whole, other, got):
    """The shares of `other` in a blend with `whole` that round to `got`: a range."""
    difference = other.astype(float) - whole
    same = difference == 0
    if not np.array_equal(got[same], whole[same]):
        return 1.0, 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.stack([got - whole, got + 1.0 - whole]) / difference
    ends.sort(0)
    ends = ends[:, ~same]
    return float(ends[0].max(initial=0)), float(ends[1].min(initial=1))


@pytest.mark.parametrize("blended", [False, True])
def test_aug_mix_of_one_chain(monkeypatch, blended):
    """One operation, blended with a share that is uniform for alpha = 1."""
    image = dull(40, 32)
    hparams = {"img_mean": MEAN, "magnitude_std": 0}
    theirs = auto.AugMixAugment(auto.augmix_ops(6, hparams), width=1, depth=1, blended=blended)
    candidates = {}
    for op in theirs.ops:
        candidates |= results(monkeypatch, op, Image.fromarray(image))
    candidates = {key: planes(made) for key, made in candidates.items()}
    middles = []
    whole = planes(image).astype(float)
    for index, got in enumerate(drawn(image, T.from_torchvision(theirs), count=120)):
        ranges = [shares(whole, made, got) for made in candidates.values()]
        fits = [(low + high) / 2 for low, high in ranges if low <= high + 1e-5]
        assert fits, index
        middles.append(fits[0])
    assert 0.35 < np.mean(middles) < 0.65
    assert min(middles) < 0.1 and max(middles) > 0.9


def apart(a, b):
    both = np.sort(np.concatenate((a, b)))
    a, b = (np.searchsorted(np.sort(one), both, "right") / len(one) for one in (a, b))
    return np.abs(a - b).max()


CONFIGURATIONS = {
    "rand-m9-mstd0.5-inc1": auto.rand_augment_transform,
    "rand-m7-n3-mstd101-p0.7-mmax15": auto.rand_augment_transform,
    "rand-m9-n4-mstd1-tweights": auto.rand_augment_transform,
    "rand-m5-n2-t3aw": auto.rand_augment_transform,
    "original-mstd0.5": auto.auto_augment_transform,
    "v0r": auto.auto_augment_transform,
    "3a": auto.auto_augment_transform,
    "augmix-m5-w4-d2": auto.augment_and_mix_transform,
    "augmix-m7-mstd1-a0.4": auto.augment_and_mix_transform,
    "augmix-m5-w4-b1": auto.augment_and_mix_transform,
}


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_distributions(configuration):
    """Mean and deviation of the change, over many draws, against timm's own."""
    image, count = dull(32, 24), 300
    theirs = CONFIGURATIONS[configuration](configuration, {"img_mean": MEAN})
    whole = planes(image).astype(int)
    np.random.seed(1)
    auto.random.seed(1)
    wanted = [planes(theirs(Image.fromarray(image))) - whole for _ in range(count)]
    got = [made - whole for made in drawn(image, T.from_torchvision(theirs), count=count)]
    for measure in (lambda d: np.abs(d).mean(), np.std, np.mean):
        a, b = ([round(measure(one), 9) for one in many] for many in (wanted, got))
        assert apart(a, b) < 1.95 * math.sqrt(2 / count)  # K-S at 0.1 %


def test_crops_around_policies_give_the_same_pixels():
    image = dull(80, 70)
    policies = (T.TimmRandAugment("increasing", 3, 1, 9), T.TimmRandAugment("3a", 2, 1), T.TimmAutoAugment(), T.TimmAugMix())
    for policy in policies:
        whole_part = drawn(image, policy, count=12), drawn(image, policy, T.CenterCrop((30, 40)), count=12)
        for whole, part in zip(*whole_part):
            np.testing.assert_array_equal(part, whole[:, 20:50, 20:60])


@pytest.mark.parametrize("configuration", [*CONFIGURATIONS, None])
def test_timms_pipelines_are_native(configuration):
    made = pytest.importorskip("timm.data").create_transform(
        32, is_training=True, auto_augment=configuration, interpolation="random", re_prob=0.3
    )
    prepare = headrace.Preparer(made)
    assert np.asarray(prepare(png(dull(60, 50)), index=1)).shape == (3, 32, 32)


def test_what_is_not_timms_is_refused():
    hparams = {"img_mean": MEAN}
    nearest = auto.rand_augment_transform("rand-m9", {**hparams, "interpolation": Image.Resampling.NEAREST})
    fewer = auto.RandAugment(auto.rand_augment_ops(hparams=hparams, transforms=["Rotate"]))
    uneven = auto.rand_augment_transform("rand-m9", hparams)
    uneven.ops[3].magnitude = 2
    policy = auto.auto_augment_transform("v0", hparams)
    policy.policy[4][0].prob = 0.3

    class Mine(auto.AugmentOp):
        pass

    own = auto.rand_augment_transform("rand-m9", hparams)
    own.ops[0].__class__ = Mine
    for made, message in (
        (nearest, "bilinear, bicubic or both"),
        (fewer, "list of operations"),
        (uneven, "different parameters"),
        (policy, "policy is not one of timm's"),
        (own, "is not timm's"),
        ([T.PILToTensor(), auto.rand_augment_transform("rand-m9", hparams)], "before the conversion"),
    ):
        with pytest.raises(ValueError, match=message):
            T.from_torchvision(made)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.TimmRandAugment(num_ops=33), "num_ops"),
        (lambda: T.TimmRandAugment("weights", 17), "num_ops"),
        (lambda: T.TimmRandAugment("all"), "choices"),
        (lambda: T.TimmRandAugment(p=1.5), "p"),
        (lambda: T.TimmRandAugment(magnitude=-1), "magnitude"),
        (lambda: T.TimmRandAugment(magnitude=math.nan), "magnitude"),
        (lambda: T.TimmRandAugment(magnitude_std=-1), "magnitude_std"),
        (lambda: T.TimmRandAugment(magnitude_max=0), "magnitude_max"),
        (lambda: T.TimmRandAugment(translate=math.inf), "translate"),
        (lambda: T.TimmRandAugment(interpolation="nearest"), "interpolation"),
        (lambda: T.TimmAutoAugment(fill=12.5), "whole number"),
        (lambda: T.TimmAutoAugment("imagenet"), "policy"),
        (lambda: T.TimmAugMix(width=10, depth=10), "width"),
        (lambda: T.TimmAugMix(alpha=0), "alpha"),
    ],
)
def test_wrong_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=f"Timm.*{message}"):
        headrace.Preparer([T.CenterCrop(8), make()])
