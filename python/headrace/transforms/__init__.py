"""Transforms of images and sounds.

The classes have the names, arguments, defaults and distributions of
torchvision's v2 transforms (0.28). They only describe transforms; the C library
executes a whole list at once. Therefore instances are not callable: pass a
:class:`Compose`, a list of transforms, or a torchvision ``Compose`` to a
dataset, a DataLoader or a :class:`headrace.Preparer`.

Random parameters depend only on seed, epoch, sample index and the transform's
position. Outside a DataLoader each image gets a new random seed. Images are
RGB; the result must have a fixed size.

Transforms of sounds have torchaudio's names where it has them. A list is of images or of sounds.
"""

from __future__ import annotations

from typing import Any

from .. import _core
from ._arguments import dtype_name, integer as _integer
from ._base import Transform, make as make
from ._color import (
    ColorJitter,
    GaussianBlur,
    GaussianNoise,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomChannelPermutation,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomInvert,
    RandomPhotometricDistort,
    RandomPosterize,
    RandomSolarize,
)
from ._detection import (
    ClampBoundingBoxes,
    LetterBox,
    RandomIoUCrop,
    RandomShortestSize,
    RandomZoomOut,
    SanitizeBoundingBoxes,
)
from ._geometry import (
    CenterCrop,
    ElasticTransform,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
)
from ._groups import Compose, RandomApply, RandomChoice, RandomOrder, Views, views_of
from ._policies import AugMix, AutoAugment, RandAugment, TrivialAugmentWide
from ._sound import (
    AmplitudeToDB,
    CenterWindow,
    Channels,
    FrequencyMasking,
    Gain,
    LogMel,
    MelSpectrogram,
    Mono,
    PadOrTrim,
    RandomWindow,
    Resample,
    SpeedPerturbation,
    TimeMasking,
)
from ._timm import TimmAugMix, TimmAutoAugment, TimmRandAugment
from ._types import Identity, Normalize, PILToTensor, ToDtype, ToImage, ToTensor

__all__ = [
    "AmplitudeToDB",
    "AugMix",
    "AutoAugment",
    "CenterCrop",
    "CenterWindow",
    "Channels",
    "ClampBoundingBoxes",
    "ColorJitter",
    "Compose",
    "ElasticTransform",
    "FrequencyMasking",
    "Gain",
    "GaussianBlur",
    "GaussianNoise",
    "Identity",
    "LetterBox",
    "LogMel",
    "MelSpectrogram",
    "Mono",
    "Normalize",
    "PILToTensor",
    "Pad",
    "PadOrTrim",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChannelPermutation",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomIoUCrop",
    "RandomOrder",
    "RandomPerspective",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomShortestSize",
    "RandomSolarize",
    "RandomVerticalFlip",
    "RandomWindow",
    "RandomZoomOut",
    "Resample",
    "Resize",
    "SanitizeBoundingBoxes",
    "SpeedPerturbation",
    "TimeMasking",
    "TimmAugMix",
    "TimmAutoAugment",
    "TimmRandAugment",
    "ToDtype",
    "ToImage",
    "ToTensor",
    "Transform",
    "TrivialAugmentWide",
    "Views",
    "from_torchvision",
]

# enum hr_layout
_LAYOUTS = {"NCHW": 0, "NHWC": 1}
_DAMAGED = {"refuse": 0, "accept": 1}


def from_torchvision(transform: Any) -> Compose:
    """Translates torchvision transforms, v1 or v2: a single one, a Compose, a list,
    ``nn.Sequential``, or the ``transforms()`` of pretrained weights. Translates timm's and
    Albumentations' too.

    Does not import these packages. Keeps order, parameters and defaults. Raises a
    ValueError that names everything that cannot be translated and what to do
    about it.
    """
    return Compose([transform])


def as_transform(transform: Any) -> Transform:
    """Converts a ``transform`` argument to a transform of this module."""
    if isinstance(transform, Transform):
        return transform
    if isinstance(transform, (list, tuple)):
        return Compose(transform)
    return from_torchvision(transform)


def make_recipe(
    transform: Any,
    *,
    dtype: Any = None,
    layout: str = "NCHW",
    apply_exif_orientation: bool = False,
    max_pixels: int | None = None,
    damaged: str = "refuse",
    exact: bool = True,
    max_source_bytes: int | None = None,
    padded: bool = False,
    max_size: Any = None,
) -> _core.Recipe:
    """Returns the checked recipe of a transform. Raises ValueError if it is invalid.

    ``dtype`` has the effect of a final ``ToDtype(dtype, scale=True)``. ``padded``: results may
    differ in size, up to ``max_size``: a number for both sides, or (height, width).
    """
    whole = as_transform(transform)
    steps = whole.transforms if isinstance(whole, Compose) else [whole]
    if dtype is not None:
        steps = [*steps, ToDtype(dtype, scale=True)]
    if layout not in _LAYOUTS:
        raise ValueError(f"layout must be 'NCHW' or 'NHWC', got {layout!r}")
    if damaged not in _DAMAGED:
        raise ValueError(f"damaged must be 'refuse' or 'accept', got {damaged!r}")
    options: dict[str, Any] = {"damaged": _DAMAGED[damaged]}
    if max_pixels is not None:
        options["max_pixels"] = _integer("max_pixels", max_pixels, 1, 2**64 - 1)
    if max_source_bytes is not None:
        options["max_source_bytes"] = _integer("max_source_bytes", max_source_bytes, 1, 2**64 - 1)
    if max_size is not None:
        sides = max_size if isinstance(max_size, (tuple, list)) else (max_size, max_size)
        if len(sides) != 2:
            raise ValueError(f"max_size must be a number or (height, width), got {max_size!r}")
        options["max_height"], options["max_width"] = (
            _integer("max_size", side, 1, 65536) for side in sides
        )
    recipes = tuple(
        _core.Recipe(
            [operation for t in view for operation in t._operations()],
            layout=_LAYOUTS[layout],
            apply_exif_orientation=apply_exif_orientation,
            exact=exact,
            padded=padded,
            **options,
        )
        for view in views_of(steps)
    )
    return recipes[0] if len(recipes) == 1 else _core.Recipe.of_views(recipes)


def is_random(transform: Any) -> bool:
    """Returns whether two results for one image may differ."""
    return as_transform(transform)._is_random


def __getattr__(name: str) -> Any:
    """Raises an error for torchvision's other transforms that says where they can run."""
    if name[:1].isupper():
        raise AttributeError(
            f"headrace.transforms has no {name}: it has {', '.join(__all__)}. torchvision's, and all "
            "that follows it, runs in Python: give the dataset a torchvision Compose"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
