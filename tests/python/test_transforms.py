"""Arguments, errors and translation of transforms; no pixels."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image

import headrace
import headrace.transforms as T
from headrace.torch import DataLoader


def test_defaults_are_torchvisions(v2):
    ours, theirs = T.RandomResizedCrop(224), v2.RandomResizedCrop(224)
    assert ours.size == theirs.size
    assert ours.scale == theirs.scale and ours.ratio == theirs.ratio
    assert ours.interpolation == theirs.interpolation and ours.antialias == theirs.antialias
    assert T.RandomHorizontalFlip().p == v2.RandomHorizontalFlip().p
    assert T.RandomVerticalFlip().p == v2.RandomVerticalFlip().p
    assert T.RandomGrayscale().p == v2.RandomGrayscale().p
    assert T.ToDtype(torch.float32).scale == v2.ToDtype(torch.float32).scale is False
    crop, tv_crop = T.RandomCrop(8), v2.RandomCrop(8)
    assert (crop.size, crop.pad_if_needed, crop.padding_mode) == (
        tv_crop.size,
        tv_crop.pad_if_needed,
        tv_crop.padding_mode,
    )
    for arguments in ({"brightness": 0.4, "hue": 0.1}, {"contrast": (0.5, 1.5)}, {"saturation": 2}):
        ours, theirs = T.ColorJitter(**arguments), v2.ColorJitter(**arguments)
        for name in ("brightness", "contrast", "saturation", "hue"):
            assert getattr(ours, name) == getattr(theirs, name)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: T.RandomResizedCrop((1, 2, 3)), "RandomResizedCrop: size"),
        (lambda: T.RandomResizedCrop(0), "at least 1"),
        (lambda: T.RandomResizedCrop(2.5), "whole number"),
        (lambda: T.RandomResizedCrop(8, scale=(0.5, 0.1)), "scale"),
        (lambda: T.RandomResizedCrop(8, ratio=3), "ratio"),
        (lambda: T.RandomResizedCrop(8, interpolation="lanczos"), "bilinear or bicubic"),
        (lambda: T.RandomResizedCrop(8, interpolation=1), "bilinear or bicubic"),
        (lambda: T.Resize((4, 4), max_size=8), "max_size"),
        (lambda: T.Resize(8, max_size=8), "max_size"),
        (lambda: T.Resize(None, max_size=8), "size=None"),
        (lambda: T.Resize("256"), "size must be a whole number, got '256'"),
        (lambda: T.Resize(2**31), "size must be a whole number of at most 2147483647"),
        (lambda: T.CenterCrop(True), "whole number"),
        (lambda: T.RandomCrop(8, padding=(1, 2, 3)), "padding"),
        (lambda: T.RandomCrop(8, padding=-1), "padding"),
        (lambda: T.RandomCrop(8, padding_mode="wrap"), "padding_mode"),
        (lambda: T.RandomCrop(8, fill=(1, 2)), "fill"),
        (lambda: T.RandomHorizontalFlip(1.5), "RandomHorizontalFlip: p"),
        (lambda: T.RandomVerticalFlip("often"), "RandomVerticalFlip: p"),
        (lambda: T.ColorJitter(brightness=-1), "brightness"),
        (lambda: T.ColorJitter(hue=0.6), "hue"),
        (lambda: T.ColorJitter(contrast=(2, 1)), "contrast"),
        (lambda: T.ToDtype(torch.float64), "float64"),
        (lambda: T.ToDtype("int8"), "int8"),
        (lambda: T.Normalize([0.5, 0.5], 1), "mean"),
        (lambda: T.Normalize(0, [1, 0, 1]), "std"),
        (lambda: T.Compose(T.CenterCrop(8)), "list of transforms"),
        (lambda: T.Compose([3]), "headrace.transforms or torchvision"),
    ],
)
def test_wrong_arguments_are_named(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make()


def test_dtypes_by_any_name():
    for dtype in (torch.float16, "float16", np.float16, np.dtype("float16"), torch.half, "half"):
        assert T.ToDtype(dtype).dtype == "float16"
    assert T.ToDtype(torch.bfloat16).dtype == "bfloat16"
    assert T.ToDtype(torch.float).dtype == T.ToDtype(np.float32).dtype == "float32"
    assert T.ToDtype(torch.uint8).dtype == T.ToDtype(np.uint8).dtype == "uint8"


def test_interpolation_by_any_name(v1):
    from PIL import Image

    for given in ("bicubic", "BICUBIC", 3, v1.InterpolationMode.BICUBIC, Image.Resampling.BICUBIC):
        assert T.Resize(8, interpolation=given).interpolation == "bicubic"
    for given in ("bilinear", 2, v1.InterpolationMode.BILINEAR):
        assert T.Resize(8, interpolation=given).interpolation == "bilinear"


def test_transforms_compare_print_and_pickle():
    a = T.Compose([T.RandomResizedCrop(224, scale=(0.2, 1)), T.RandomHorizontalFlip(0.3)])
    assert pickle.loads(pickle.dumps(a)) == a
    assert a != T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(0.3)])
    assert repr(a) == (
        "Compose([\n    RandomResizedCrop(size=(224, 224), scale=(0.2, 1.0), "
        "ratio=(0.75, 1.3333333333333333), interpolation='bilinear', antialias=True),\n"
        "    RandomHorizontalFlip(p=0.3),\n])"
    )
    with pytest.raises(TypeError, match="not called on images"):
        a("image")


def test_compose_flattens():
    inner = T.Compose([T.CenterCrop(8), T.RandomVerticalFlip()])
    assert T.Compose([inner, [T.ToTensor()]]).transforms == [
        T.CenterCrop(8),
        T.RandomVerticalFlip(),
        T.ToTensor(),
    ]


def test_recipe_says_its_shape_and_type():
    crop = T.RandomResizedCrop((20, 30))
    assert T.make_recipe(crop).shape == (3, 20, 30)
    assert T.make_recipe(crop).dtype == "uint8"
    made = T.make_recipe([crop, T.ToTensor()], layout="NHWC", dtype=torch.bfloat16)
    assert (made.shape, made.dtype, made.nbytes) == ((20, 30, 3), "bfloat16", 20 * 30 * 6)


@pytest.mark.parametrize(
    ("transforms", "words"),
    [
        ([T.Resize(256)], "CenterCrop"),
        ([], "CenterCrop"),
        ([T.CenterCrop(8), T.Normalize(0, 1)], "operation 2.*ToDtype"),
        ([T.CenterCrop(8)] * 40, "too long"),
    ],
)
def test_recipes_that_cannot_work_name_the_remedy(transforms, words):
    with pytest.raises(ValueError, match=words):
        T.make_recipe(transforms)


def test_core_refuses_unknown_operations_and_fields():
    from headrace import _core

    with pytest.raises(ValueError, match="Blur"):
        _core.Recipe([("Blur", {})])
    with pytest.raises(TypeError, match="radius"):
        _core.Recipe([("CenterCrop", {"radius": 1})])
    with pytest.raises(TypeError, match="operation"):
        _core.Recipe(["CenterCrop"])
    with pytest.raises(ValueError, match="out of range"):
        _core.Recipe([("CenterCrop", {"height": 2**40})])
    with pytest.raises(TypeError):
        _core.Recipe([("CenterCrop", {"height": "8"})])


# Translation


def test_v2_training_recipe(v2):
    theirs = v2.Compose(
        [
            v2.RandomResizedCrop((24, 32), scale=(0.3, 0.9), interpolation=3),
            v2.RandomHorizontalFlip(0.25),
            v2.RandomVerticalFlip(0.75),
            v2.RandomGrayscale(0.2),
            v2.ColorJitter(0.1, (0.5, 2), 0.3, 0.05),
            v2.ToImage(),
            v2.ToDtype(torch.float16, scale=True),
            v2.Normalize([0.1, 0.2, 0.3], [0.4, 0.5, 0.6]),
        ]
    )
    assert T.from_torchvision(theirs) == T.Compose(
        [
            T.RandomResizedCrop((24, 32), scale=(0.3, 0.9), interpolation="bicubic"),
            T.RandomHorizontalFlip(0.25),
            T.RandomVerticalFlip(0.75),
            T.RandomGrayscale(0.2),
            T.ColorJitter((0.9, 1.1), (0.5, 2), (0.7, 1.3), (-0.05, 0.05)),
            T.ToDtype("float16", scale=True),
            T.Normalize([0.1, 0.2, 0.3], [0.4, 0.5, 0.6]),
        ]
    )


def test_v1_recipe(v1):
    theirs = v1.Compose(
        [
            v1.Resize([40]),
            v1.RandomCrop(32, padding=4, fill=7, padding_mode="constant"),
            v1.CenterCrop(30),
            v1.Grayscale(num_output_channels=3),
            v1.ToTensor(),
            v1.Normalize((0.5,), (0.25,)),
        ]
    )
    assert T.from_torchvision(theirs) == T.Compose(
        [
            T.Resize(40),
            T.RandomCrop(32, padding=4, fill=7),
            T.CenterCrop(30),
            T.RandomGrayscale(1.0),
            T.ToDtype("float32", scale=True),
            T.Normalize(0.5, 0.25),
        ]
    )


def test_padding_of_both_versions(v1, v2):
    for padding in (3, (3,), (1, 2), (1, 2, 3, 4)):
        expected = T.RandomCrop(16, padding=padding)
        for module in (v1, v2):
            if module is v1 and padding == (3,):
                continue
            given = list(padding) if isinstance(padding, tuple) else padding
            assert T.from_torchvision(module.RandomCrop(16, padding=given)).transforms == [expected]
    assert T.RandomCrop(16, padding=(1, 2)).padding == (1, 2, 1, 2)


def test_to_dtype_keeps_its_meaning(v1, v2):
    def translated(*transforms):
        return T.from_torchvision(list(transforms)).transforms

    assert translated(v2.ToImage(), v2.ToDtype(torch.float32)) == [T.ToDtype("float32", False)]
    assert translated(v1.PILToTensor(), v1.ConvertImageDtype(torch.float32)) == [
        T.ToDtype("float32", True)
    ]
    with pytest.warns(UserWarning, match="deprecated"):
        old = v2.ToTensor()
    assert translated(old) == [T.ToDtype("float32", True)]
    from torchvision import tv_tensors

    by_type = {tv_tensors.Image: torch.float16, "others": None}
    assert translated(v2.ToImage(), v2.ToDtype(by_type, scale=True)) == [T.ToDtype("float16", True)]
    assert translated(v2.ToImage(), v2.ToDtype({"others": None})) == []


def test_antialias_counts_only_for_tensors(v2):
    crop = v2.RandomResizedCrop(8, antialias=False)
    assert T.from_torchvision(crop).transforms[0].antialias is True
    assert T.from_torchvision([v2.ToImage(), crop]).transforms[0].antialias is False


def augmentations(module):
    """Pairs of torchvision's augmentations and ours, with arguments that are not the defaults."""
    return [
        (module.Pad((1, 2, 3, 4), fill=(5, 6, 7)), T.Pad((1, 2, 3, 4), (5, 6, 7))),
        (module.Pad(2, padding_mode="reflect"), T.Pad(2, padding_mode="reflect")),
        (
            module.RandomRotation(15, expand=True, center=(3, 4), fill=9),
            T.RandomRotation((-15, 15), expand=True, center=(3, 4), fill=9),
        ),
        (
            module.RandomAffine((-5, 10), (0.1, 0.2), (0.8, 1.25), 7, fill=(1, 2, 3)),
            T.RandomAffine((-5, 10), (0.1, 0.2), (0.8, 1.25), (-7, 7), fill=(1, 2, 3)),
        ),
        (module.RandomAffine(0, shear=(1, 2, 3, 4)), T.RandomAffine(0, shear=(1, 2, 3, 4))),
        (module.RandomPerspective(0.3, 0.7, fill=8), T.RandomPerspective(0.3, 0.7, fill=8)),
        (module.ElasticTransform(30.0, (4.0, 6.0)), T.ElasticTransform(30, (4, 6))),
        (module.RandomInvert(0.1), T.RandomInvert(0.1)),
        (module.RandomAutocontrast(0.2), T.RandomAutocontrast(0.2)),
        (module.RandomEqualize(0.3), T.RandomEqualize(0.3)),
        (module.RandomPosterize(3, 0.4), T.RandomPosterize(3, 0.4)),
        (module.RandomSolarize(100, 0.6), T.RandomSolarize(100, 0.6)),
        (module.RandomAdjustSharpness(2.5, 0.7), T.RandomAdjustSharpness(2.5, 0.7)),
        (module.GaussianBlur((5, 7), (0.3, 1.5)), T.GaussianBlur((5, 7), (0.3, 1.5))),
        (module.GaussianBlur(9, 0.8), T.GaussianBlur(9, 0.8)),
        (
            module.RandAugment(3, 5, 21, module.InterpolationMode.BILINEAR, [1.0, 2.0, 3.0]),
            T.RandAugment(3, 5, 21, "bilinear", (1, 2, 3)),
        ),
        (module.TrivialAugmentWide(11), T.TrivialAugmentWide(11)),
        (module.AutoAugment(module.AutoAugmentPolicy.SVHN), T.AutoAugment("svhn")),
        (module.AugMix(5, 2, 4, 0.5, False), T.AugMix(5, 2, 4, 0.5, False)),
        (
            module.RandomApply([module.ColorJitter(0.4), module.CenterCrop(8)], p=0.8),
            T.RandomApply([T.ColorJitter(0.4), T.CenterCrop(8)], p=0.8),
        ),
        (
            module.RandomChoice([module.CenterCrop(8), module.RandomInvert()], [3, 1]),
            T.RandomChoice([T.CenterCrop(8), T.RandomInvert()], [0.75, 0.25]),
        ),
        (
            module.RandomOrder([module.RandomInvert(), module.Grayscale(3)]),
            T.RandomOrder([T.RandomInvert(), T.RandomGrayscale(1.0)]),
        ),
    ]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_augmentations_of_both_versions(version, request):
    for theirs, ours in augmentations(request.getfixturevalue(version)):
        assert T.from_torchvision(theirs).transforms == [ours]
        assert eval(repr(ours), vars(T)) == ours
        assert pickle.loads(pickle.dumps(ours)) == ours


def test_augmentations_of_v2_alone(v2):
    for theirs, ours in [
        (v2.RandomChannelPermutation(), T.RandomChannelPermutation()),
        (v2.RandomPhotometricDistort(p=0.3), T.RandomPhotometricDistort(p=0.3)),
        (v2.Pad(1, fill={"others": 3}), T.Pad(1, 3)),
    ]:
        assert T.from_torchvision(theirs).transforms == [ours]
    floats = [v2.ToImage(), v2.GaussianNoise(0.1, 0.2, False)]
    assert T.from_torchvision(floats).transforms == [T.GaussianNoise(0.1, 0.2, False)]


def test_erasing_counts_in_the_units_of_its_place(v1, v2):
    for module in (v1, v2):
        tensor = module.PILToTensor()
        for value, ours in [(3, 3), ((1, 2, 3), (1, 2, 3)), ("random", "random")]:
            theirs = module.RandomErasing(0.3, (0.1, 0.2), (0.5, 2), value)
            expected = [T.RandomErasing(0.3, (0.1, 0.2), (0.5, 2), ours)]
            assert T.from_torchvision([tensor, theirs]).transforms == expected
        with pytest.raises(ValueError, match="RandomErasing: does not take PIL images"):
            T.from_torchvision(module.RandomErasing())


def test_bytes_only_is_refused_after_floats(v1, v2):
    for steps in ([v1.ToTensor()], [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]):
        with pytest.raises(ValueError, match="RandomInvert: runs in C on bytes only"):
            T.from_torchvision([*steps, v2.RandomInvert()])
        with pytest.raises(ValueError, match="RandomInvert: runs in C on bytes only"):
            T.from_torchvision([*steps, v2.RandomApply([v2.RandomInvert()])])
    with pytest.raises(ValueError, match="a conversion of the type inside it"):
        T.from_torchvision(v2.RandomApply([v1.ToTensor()]))


def test_groups_become_flat_lists():
    group = T.RandomChoice([[T.CenterCrop(8), T.RandomOrder([T.RandomInvert()])], T.Identity()])
    assert [(name, a.get("count")) for name, a in group._operations()] == [
        ("RandomChoice", 2),
        ("Sequence", 2),
        ("CenterCrop", None),
        ("RandomOrder", 1),
        ("Sequence", 1),
        ("RandomInvert", None),
        ("Sequence", 0),
    ]


def test_splitting_into_a_native_head_and_the_rest(v2):
    from headrace._torchvision import beginnings

    def mine(image):
        return image

    steps = v2.Compose([v2.CenterCrop(8), v2.Compose([v2.RandomInvert(), mine, v2.ToImage()])])
    longest, *shorter = beginnings(steps, T.make)
    assert longest.steps == [T.CenterCrop(8), T.RandomInvert()]
    assert longest.rest[0] is mine and type(longest.rest[1]) is v2.ToImage
    assert "mine: a Python function" in longest.why
    assert [one.steps for one in shorter] == [[T.CenterCrop(8)], []]
    assert beginnings(v2.CenterCrop(8), T.make)[0].rest == []


def test_sequential_nested_and_mixed(v2):
    theirs = torch.nn.Sequential(v2.Compose([v2.CenterCrop(8)]), torch.nn.Identity())
    ours = T.Compose([theirs, v2.Identity(), v2.RGB(), T.RandomVerticalFlip()])
    assert ours.transforms == [T.CenterCrop(8), T.RandomVerticalFlip()]


def test_pretrained_weights(torchvision):
    from torchvision.transforms._presets import ImageClassification

    assert T.from_torchvision(ImageClassification(crop_size=8, resize_size=10)).transforms == [
        T.Resize(10),
        T.CenterCrop(8),
        T.ToDtype("float32", True),
        T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ]


def test_everything_that_cannot_be_translated_is_named(v1, v2):
    class Mine(v2.CenterCrop):
        def transform(self, inpt, params):
            return inpt

    theirs = v2.Compose(
        [
            v2.JPEG(50),
            v2.RandomApply([v2.FiveCrop(8)]),
            v2.RandomChoice([v2.CenterCrop(8), v2.ScaleJitter((8, 8))]),
            v1.Lambda(lambda x: x),
            v2.Resize(8, interpolation=v1.InterpolationMode.LANCZOS),
            v2.Grayscale(),
            v2.ToDtype(torch.float32),
            v2.Normalize([0.5], [0.5]),
            Mine(8),
            len,
            v2.CenterCrop,
        ]
    )
    with pytest.raises(ValueError) as caught:
        T.from_torchvision(theirs)
    text = str(caught.value)
    for name in (
        "JPEG",
        "FiveCrop",
        "ScaleJitter",
        "Lambda",
        "LANCZOS",
        "num_output_channels=3",
        "ToDtype: does nothing to a PIL image: put ToImage() before it",
        "Normalize: does not take PIL images",
        "Mine: a Python function or class of your own",
        "builtins.len",
        "CenterCrop: is a class",
        "in Python",
    ):
        assert name in text


@pytest.mark.parametrize("cut", [4])
def test_the_way_out_of_a_refusal_gives_torchvisions_values(folder, v2, cut):
    """As the message says: the loader takes the whole transform. Applied to normalised floats,
    RandomSolarize would be off by whole standard deviations."""
    steps = [v2.Resize((40, 40)), v2.CenterCrop(32), v2.ToImage()]
    steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)]
    steps.insert(cut, v2.RandomSolarize(0.5, p=1))
    with pytest.raises(ValueError, match="take the whole transform"):
        T.from_torchvision(v2.Compose(steps))
    whole = v2.Compose(steps)
    dataset = headrace.ImageFolder(folder, whole)
    ours, _ = next(iter(DataLoader(dataset, 13)))
    theirs = torch.stack([whole(Image.open(path).convert("RGB")) for path, _ in dataset.samples[:13]])
    # A value at the threshold may be on its other side: nearly all values, not all.
    assert ((ours - theirs).abs() < 2 / 255 / 0.25).float().mean() > 0.98


def test_torchvision_is_not_imported_to_translate():
    from conftest import run_python

    done = run_python(
        "import sys, headrace.transforms as T, torch\n"
        "T.from_torchvision(torch.nn.Sequential())\n"
        "assert 'torchvision' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr


def test_a_missing_transform_is_reported(recipe):
    with pytest.raises(AttributeError, match="no FiveCrop.*all that follows it"):
        T.FiveCrop  # noqa: B018
    assert not hasattr(T, "Mixup")


@pytest.fixture
def timm_data(torchvision):
    return pytest.importorskip("timm.data")


def test_timms_pipelines(timm_data):
    def check(theirs, *ours):
        is_ = T.from_torchvision(theirs)._operations()
        wanted = T.Compose(ours)._operations()
        assert [name for name, _ in is_] == [name for name, _ in wanted]
        for (_, one), (_, other) in zip(is_, wanted):
            assert list(one) == list(other)
            for key in one:  # timm has float32 means and rounded limits
                assert one[key] == pytest.approx(other[key], rel=1e-6)

    normalize = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    train = timm_data.create_transform(
        32, is_training=True, interpolation="random", re_prob=0.25, re_mode="pixel", re_count=3
    )
    check(
        train,
        T.RandomChoice([T.RandomResizedCrop(32), T.RandomResizedCrop(32, interpolation="bicubic")]),
        T.RandomHorizontalFlip(),
        T.ColorJitter(0.4, 0.4, 0.4),
        T.ToDtype("float32", scale=True),
        normalize,
        T.RandomErasing(0.25, (0.02, 1 / 3), (0.3, 1 / 0.3), "random", count=(1, 3)),
    )
    valid = timm_data.create_transform(32, interpolation="bicubic")
    check(
        valid,
        T.Resize(36, interpolation="bicubic"),
        T.CenterCrop(32),
        T.ToDtype("float32", scale=True),
        normalize,
    )
    with pytest.raises(ValueError, match="ResizeKeepRatio: has no equivalent"):
        T.from_torchvision(timm_data.create_transform((32, 24)))
