"""Translates timm's transforms; see _torchvision.py."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

from ._walk import Walk, before_tensors


def _to_tensor_type(walk: Walk, t: Any) -> None:
    walk.tensor = True


def _to_floats(walk: Walk, t: Any) -> None:
    """timm's ToTensor keeps 0..255, MaybeToTensor is torchvision's ToTensor."""
    if not walk.tensor:
        scale = type(t).__name__ == "MaybeToTensor"
        walk.add(t, "ToDtype", dtype="float32" if scale else t.dtype, scale=scale)
        walk.floats = True
    walk.tensor = True


def _resized_crop(walk: Walk, t: Any) -> None:
    choices = t.interpolation if isinstance(t.interpolation, (tuple, list)) else [t.interpolation]
    given = {"size": t.size, "scale": t.scale, "ratio": t.ratio}
    crops = [
        walk.make("RandomResizedCrop", interpolation=walk.resizing(i), **given) for i in choices
    ]
    if len(crops) == 1:
        walk.steps += crops
    else:
        walk.add(t, "RandomChoice", transforms=crops)


def _center_crop(walk: Walk, t: Any) -> None:
    if t.fill or t.padding_mode != "constant":
        walk.refuse(t, "only padding with 0 has an equivalent here")
    else:
        walk.add(t, "CenterCrop", size=t.size)


def _erasing(walk: Walk, t: Any) -> None:
    if not walk.tensor:
        walk.refuse(t, "does not take PIL images: put it after MaybeToTensor")
        return
    walk.add(
        t,
        "RandomErasing",
        p=t.probability,
        scale=(t.min_area, t.max_area),
        ratio=tuple(math.exp(x) for x in t.log_aspect_ratio),
        value={"rand": "color", "pixel": "random"}.get(t.mode, 0),
        count=(t.min_count, t.max_count),
    )


# timm's lists of operations, by the names in headrace.transforms.TimmRandAugment.
_ALIKE = ("AutoContrast", "Equalize", "Invert", "Rotate")
_MAPS = ("ShearX", "ShearY", "TranslateXRel", "TranslateYRel")
_INCREASING = (
    "PosterizeIncreasing", "SolarizeIncreasing", "SolarizeAdd", "ColorIncreasing",
    "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing",
)  # fmt: skip
_PLAIN = ("Posterize", "Solarize", "SolarizeAdd", "Color", "Contrast", "Brightness", "Sharpness")
_LISTS: dict[str, tuple[str, ...]] = {
    "plain": (*_ALIKE, *_PLAIN, *_MAPS),
    "increasing": (*_ALIKE, *_INCREASING, *_MAPS),
    "3a": ("SolarizeIncreasing", "Desaturate", "GaussianBlur"),
}
_WEIGHTS: dict[str, dict[str, float]] = {
    "3aw": {
        **dict.fromkeys(_LISTS["3a"], 6), "Rotate": 3, "ShearX": 2, "ShearY": 2,
        "PosterizeIncreasing": 1, "AutoContrast": 1, "ColorIncreasing": 1,
        "SharpnessIncreasing": 1, "ContrastIncreasing": 1, "BrightnessIncreasing": 1,
        "Equalize": 1, "Invert": 1,
    },
    "weights": {
        "Rotate": 3, "ShearX": 2, "ShearY": 2, "TranslateXRel": 1, "TranslateYRel": 1,
        "ColorIncreasing": 0.25, "SharpnessIncreasing": 0.25, "AutoContrast": 0.25,
        "SolarizeIncreasing": 0.05, "SolarizeAdd": 0.05, "ContrastIncreasing": 0.05,
        "BrightnessIncreasing": 0.05, "Equalize": 0.05, "PosterizeIncreasing": 0.05,
        "Invert": 0.05,
    },
}  # fmt: skip
_MIXED = (
    "AutoContrast", "ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing",
    "SharpnessIncreasing", "Equalize", "Rotate", "PosterizeIncreasing", "SolarizeIncreasing",
    *_MAPS,
)  # fmt: skip
# Digests of the policies that the library has: names, probabilities and magnitudes.
_POLICIES = {
    "054827ef41f4b999": "v0",
    "e488d5372447a172": "v0r",
    "91812f33898cbcb5": "original",
    "6cca53b7e2da232f": "originalr",
    "5069a97840bd1bd2": "3a",
}


def _shared(ops: Any) -> dict[str, Any]:
    """Returns the arguments that all operations of a policy share."""
    found = []
    for op in ops:
        if type(op).__name__ != "AugmentOp" or op.aug_fn.__module__ != type(op).__module__:
            raise ValueError(f"the operation {op!r} is not timm's")
        resample = op.kwargs["resample"]
        both = isinstance(resample, (list, tuple))
        kinds = {int(r) for r in (resample if both else [resample])}
        names = {(2, 3): "random", (2,): "bilinear", (3,): "bicubic"}
        interpolation = names.get(tuple(sorted(kinds)))
        if interpolation is None or (both and len(resample) != len(kinds)):
            raise ValueError("its interpolation has to be bilinear, bicubic or both")
        found.append(
            {
                "magnitude_std": op.magnitude_std,
                "magnitude_max": op.magnitude_max or 10,
                "translate": op.hparams.get("translate_pct", 0.45),
                "interpolation": interpolation,
                "fill": op.kwargs["fillcolor"],
            }
        )
    if any(other != found[0] for other in found):
        raise ValueError("its operations have different parameters")
    return dict(found[0])


def _one(values: Any) -> Any:
    """Returns the value that all operations share."""
    known = set(values)
    if len(known) != 1:
        raise ValueError("its operations have different parameters")
    return known.pop()


def _choices(t: Any) -> str | None:
    names = tuple(op.name for op in t.ops)
    if t.choice_weights is None:
        return next((choices for choices, known in _LISTS.items() if known == names), None)
    for choices, known in _WEIGHTS.items():
        whole = sum(known.values())
        if names == tuple(known) and all(
            math.isclose(float(w), v / whole) for w, v in zip(t.choice_weights, known.values())
        ):
            return choices
    return None


def _rand_augment(walk: Walk, t: Any) -> None:
    choices = _choices(t)
    if choices is None:
        walk.refuse(t, "its list of operations is not one of timm's")
        return
    walk.add(
        t,
        "TimmRandAugment",
        choices=choices,
        num_ops=t.num_layers,
        p=_one(op.prob for op in t.ops),
        magnitude=_one(op.magnitude for op in t.ops),
        **_shared(t.ops),
    )


def policy_digest(policy: Any) -> str:
    named = [[(op.name, float(op.prob), float(op.magnitude)) for op in ops] for ops in policy]
    return hashlib.sha256(repr(named).encode()).hexdigest()[:16]


def _auto_augment(walk: Walk, t: Any) -> None:
    policy = _POLICIES.get(policy_digest(t.policy))
    if policy is None:
        walk.refuse(t, "its policy is not one of timm's")
        return
    walk.add(t, "TimmAutoAugment", policy=policy, **_shared([op for ops in t.policy for op in ops]))


def _aug_mix(walk: Walk, t: Any) -> None:
    if tuple(op.name for op in t.ops) != _MIXED or any(op.prob < 1 for op in t.ops):
        walk.refuse(t, "its list of operations is not timm's")
        return
    walk.add(
        t,
        "TimmAugMix",
        magnitude=_one(op.magnitude for op in t.ops),
        width=t.width,
        depth=t.depth,
        alpha=t.alpha,
        blended=t.blended,
        **_shared(t.ops),
    )


HANDLERS: dict[str, Callable[[Walk, Any], None]] = {
    "ToNumpy": _to_tensor_type,
    "MaybePILToTensor": _to_tensor_type,
    "ToTensor": _to_floats,
    "MaybeToTensor": _to_floats,
    "RandomResizedCropAndInterpolation": _resized_crop,
    "CenterCropOrPad": _center_crop,
    "RandomErasing": _erasing,
    "RandAugment": before_tensors("PIL images", _rand_augment),
    "AutoAugment": before_tensors("PIL images", _auto_augment),
    "AugMixAugment": before_tensors("PIL images", _aug_mix),
}
