"""Translates Albumentations' transforms, see _torchvision.py, and calls the others in Python.

Only those are translated that give the same bytes; Normalize and ToFloat differ in the last bits.
Albumentations' images are arrays of the shape (height, width, 3) until ToTensorV2: such an array of
bytes is to a :class:`Walk` what a PIL image is, and one of floats has `floats` without `tensor`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from ._walk import Walk, before_tensors, class_name

_OWN = "use a dataset of your own that calls the transform in __getitem__"


def is_theirs(transform: Any) -> bool:
    """Returns whether an object's class, or a base of it, comes from Albumentations."""
    return any(is_package(base) for base in type(transform).__mro__)


def is_package(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "albumentations"


def members(compose: Any) -> list[Any] | None:
    """Returns what a Compose or a Sequential always applies in sequence; None for others.

    Raises ValueError for a transform that expects more than an image.
    """
    if not is_theirs(compose) or not hasattr(compose, "transforms"):
        return None
    for name in ("bboxes", "keypoints"):
        if name in (getattr(compose, "processors", None) or {}):
            argument = "bbox_params" if name == "bboxes" else "keypoint_params"
            raise ValueError(f"{class_name(compose)}: {argument} is not supported: {_OWN}")
    if getattr(compose, "additional_targets", None):
        raise ValueError(f"{class_name(compose)}: additional_targets is not supported: {_OWN}")
    is_sequence = is_package(type(compose)) and type(compose).__name__ in ("Compose", "Sequential")
    return list(compose.transforms) if is_sequence and compose.p >= 1 else None


class Call:
    """Calls a transform as scripts do, ``transform(image=array)["image"]``.

    The transform has generators of its own. For each image it gets new ones, seeded by Python's
    generator, which workers seed for each sample. ``set_random_seed`` would not do: it gives all
    members of a group the same seed, and they would draw the same numbers.
    """

    def __init__(self, transform: Any) -> None:
        self._transform = transform
        self._set_state = getattr(transform, "set_random_state", None)

    def __call__(self, image: Any) -> Any:
        import numpy

        if not isinstance(image, numpy.ndarray):
            if hasattr(image, "numpy") or not hasattr(image, "__array_interface__"):
                raise TypeError(
                    f"{class_name(self._transform)} takes arrays and PIL images, not "
                    f"{type(image).__name__}: put it before the conversion to tensors"
                )
            image = numpy.array(image)
        if self._set_state is not None:
            numbers = numpy.random.default_rng(random.getrandbits(64))
            self._set_state(numbers, random.Random(random.getrandbits(64)))
        return self._transform(image=image)["image"]


def as_function(transform: Any) -> Any:
    """Returns what applies a transform to an image."""
    return Call(transform) if is_theirs(transform) else transform


def _p(t: Any) -> float:
    return 1.0 if getattr(t, "always_apply", False) else t.p


def _always(t: Any) -> None:
    if _p(t) < 1:
        raise ValueError("runs in C only with p=1")


def _at_random(name: str) -> Callable[[Walk, Any], None]:
    def handle(walk: Walk, t: Any) -> None:
        walk.add(t, name, p=_p(t))

    return handle


def _needs_bytes(walk: Walk) -> None:
    if walk.floats:
        raise ValueError("runs in C on bytes only: put it before Normalize or ToFloat")


def _random_crop(walk: Walk, t: Any) -> None:
    _always(t)
    if t.pad_if_needed:
        raise ValueError("pads in another way than torchvision with pad_if_needed")
    walk.add(t, "RandomCrop", size=(t.height, t.width))


# OpenCV's numbers
_BORDERS = {0: "constant", 1: "edge", 2: "symmetric", 4: "reflect"}


def _pad(walk: Walk, t: Any) -> None:
    _always(t)
    _needs_bytes(walk)
    fill = t.fill if isinstance(t.fill, (tuple, list)) else [t.fill] * 3
    if any(not 0 <= value <= 255 or value != int(value) for value in fill):
        raise ValueError("its fill has to be whole numbers of 0..255")
    if t.border_mode not in _BORDERS:
        raise ValueError("its border_mode has no equivalent here")
    walk.add(t, "Pad", padding=t.padding, fill=fill, padding_mode=_BORDERS[t.border_mode])
    if t.border_mode == 0 and t.fill_mask != 255:  # which all masks get here
        fill = t.fill_mask
        walk.steps[-1]._mask_fill = int(fill) if isinstance(fill, float) else fill


def _invert(walk: Walk, t: Any) -> None:
    _needs_bytes(walk)
    walk.add(t, "RandomInvert", p=_p(t))


def _solarize(walk: Walk, t: Any) -> None:
    _needs_bytes(walk)
    low, high = t.threshold_range
    if low != high:
        raise ValueError("a threshold that is drawn has no equivalent here")
    walk.add(t, "RandomSolarize", threshold=math.ceil(low * 255), p=_p(t))


def _posterize(walk: Walk, t: Any) -> None:
    _needs_bytes(walk)
    bits = set(t.num_bits)
    if len(bits) > 1 or not isinstance(next(iter(bits)), int):
        raise ValueError("num_bits that are drawn, or differ by channel, have no equivalent here")
    walk.add(t, "RandomPosterize", bits=bits.pop(), p=_p(t))


def _channel_shuffle(walk: Walk, t: Any) -> None:
    _needs_bytes(walk)
    permutation = walk.make("RandomChannelPermutation")
    walk.add(t, "RandomApply", transforms=[permutation], p=_p(t))


def _normalize(walk: Walk, t: Any) -> None:
    _always(t)
    if t.normalization != "standard":
        raise ValueError("only the normalization 'standard' has an equivalent here")
    if not walk.floats:
        walk.add(t, "ToDtype", dtype="float32", scale=False)
    given = {}
    for name, values in (("mean", t.mean), ("std", t.std)):
        each = values if isinstance(values, (tuple, list)) else [values] * 3
        given[name] = [float(value) * t.max_pixel_value for value in each]
    walk.add(t, "Normalize", **given)
    walk.floats = True


def _to_float(walk: Walk, t: Any) -> None:
    _always(t)
    _needs_bytes(walk)
    if t.max_value not in (None, 255):
        raise ValueError("only max_value=255 has an equivalent here")
    walk.add(t, "ToDtype", dtype="float32", scale=True)
    walk.floats = True


def _to_tensor(walk: Walk, t: Any) -> None:
    _always(t)
    walk.tensor = True


def _nothing(walk: Walk, t: Any) -> None:
    pass


def _differs(why: str) -> Callable[[Walk, Any], None]:
    def handle(walk: Walk, t: Any) -> None:
        walk.refuse(t, why)

    return handle


_RESIZES = ("Resize", "RandomResizedCrop", "LongestMaxSize", "SmallestMaxSize", "RandomScale")

HANDLERS: dict[str, Callable[[Walk, Any], None]] = {
    name: before_tensors("arrays", handle)
    for name, handle in {
        "NoOp": _nothing,
        "HorizontalFlip": _at_random("RandomHorizontalFlip"),
        "VerticalFlip": _at_random("RandomVerticalFlip"),
        "RandomCrop": _random_crop,
        "Pad": _pad,
        "InvertImg": _invert,
        "Solarize": _solarize,
        "Posterize": _posterize,
        "ChannelShuffle": _channel_shuffle,
        "Normalize": _normalize,
        "ToFloat": _to_float,
        "ToTensorV2": _to_tensor,
        "CenterCrop": _differs("rounds an odd margin in another way than torchvision"),
        "ToGray": _differs("rounds in another way than torchvision"),
        **dict.fromkeys(_RESIZES, _differs("resizes as OpenCV does, which gives other pixels")),
    }.items()
}
