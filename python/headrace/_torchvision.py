"""Translates torchvision's, timm's and Albumentations' transforms without importing them.

A transform is recognised by its class name and the module that defines the class, so a user's
subclass is never mistaken for its base. A user's class that only calls a transform which it holds
stands for that one. :func:`translate` returns the equivalent transforms of headrace.transforms.

The translation follows torchvision's semantics: images are PIL images until ToTensor,
PILToTensor or ToImage makes them tensors. Before that point ``antialias=False`` has no effect,
because Pillow always antialiases, and ToDtype is refused, because torchvision's does nothing to
a PIL image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType
from typing import Any

from . import _albumentations, _timm
from ._walk import Make, Walk, class_name

_WAY_OUT = (
    "Datasets and headrace.torch.DataLoader take the whole transform: they run the first of these, "
    "and all that follow it, in Python."
)

_LOADERS = {"default_loader", "pil_loader", "accimage_loader"}

_HINTS = {
    "MixUp": "it works on batches: give it to the DataLoader as mix=",
    "CutMix": "it works on batches: give it to the DataLoader as mix=",
    "Lambda": "a Python function cannot run natively",
    "ToPILImage": "images are decoded natively: leave it out",
}


def translate(transform: Any, make: Make) -> list[Any]:
    """Returns equivalent transforms, each created by ``make(class name, **arguments)``.

    Raises TypeError for objects that are not torchvision transforms and ValueError for
    transforms that cannot be translated. The message names all of them.
    """
    walk = Walk(make)
    _visit(walk, transform)
    if not walk.problems and (why := _array_at_end(walk, _flat(transform))):
        walk.problems.append(why)
    if walk.problems:
        raise ValueError(
            "these transforms cannot be translated:\n  "
            + "\n  ".join(walk.problems)
            + "\n"
            + _WAY_OUT
        )
    return walk.steps


@dataclass(frozen=True)
class Beginning:
    """The first part of a transform, translated."""

    steps: list[Any]  # as translate returns them
    theirs: list[Any]  # the transforms that they stand for
    rest: list[Any]  # the transforms that follow
    gives: str  # what `rest` gets from torchvision: "PIL", "Image" (a tv_tensor) or "Tensor"
    why: str  # why the first of `rest` is not translated; "" if there is no rest


def beginnings(transform: Any, make: Make) -> list[Beginning]:
    """Returns all beginnings of a transform that can be translated, the longest first. The
    last one is empty."""
    leaves = _flat(transform)
    walk, gives = Walk(make), "PIL"
    steps: list[tuple[int, list[Any], str]] = [(0, [], gives)]  # count of leaves, ...
    why = ""
    for count, leaf in enumerate(leaves, 1):
        after = replace(walk, steps=list(walk.steps), problems=[])
        try:
            _visit(after, leaf)
        except TypeError as error:
            after.problems.append(str(error))
        if after.problems:
            why = after.problems[0]
            break
        name = type(leaf).__name__
        if after.tensor and not walk.tensor:
            gives = "Image" if name == "ToImage" else "Tensor"
        elif name == "ToPureTensor" and gives == "Image":
            gives = "Tensor"
        walk = after
        if walk.tensor or not walk.floats:  # an array of floats is nothing that a tail gets
            steps.append((count, walk.steps, gives))
    if not why and (why := _array_at_end(walk, leaves)):
        steps = [step for step in steps if step[0] < len(leaves)]
    return [
        Beginning(done, leaves[:n], leaves[n:], given, why if n == steps[-1][0] else "")
        for n, done, given in reversed(steps)
    ]


def _array_at_end(walk: Walk, leaves: list[Any]) -> str:
    """Returns why a whole transform is not native that ends with an array of Albumentations'; ""
    for others."""
    if walk.tensor or not leaves or not _albumentations.is_theirs(leaves[-1]):
        return ""
    return (
        f"{class_name(leaves[-1])}: comes last and gives an array (height, width, 3): to run it in "
        "C, put ToTensorV2() behind it"
    )


def _flat(transform: Any) -> list[Any]:
    """Returns what a Compose, a Sequential or a list applies in sequence, without nesting."""
    cls = type(transform)
    if cls.__name__ == "Compose" and cls.__module__.partition(".")[0] in ("torchvision", "headrace"):
        members = transform.transforms
    elif isinstance(transform, (list, tuple)):
        members = transform
    elif cls.__module__.startswith("torch.nn.") and cls.__name__ == "Sequential":
        members = list(transform)
    elif (found := _albumentations.members(transform)) is not None:
        members = found
    elif (held := _held(transform)) is not None:
        members = [held]
    else:
        return [transform]
    return [inner for member in members for inner in _flat(member)]


def _calls_only(self: Any, image: Any) -> Any:
    return self.transforms(image)


def _held(transform: Any) -> Any:
    """Returns the transform that one of the user's own holds, and does nothing but call; else None.
    The presets of torchvision's reference scripts are such classes. The compiled code of their
    ``__call__`` proves it."""
    call = getattr(type(transform), "__call__", None)
    if not isinstance(call, FunctionType):
        return None
    code, model = call.__code__, _calls_only.__code__
    is_alike = code.co_code == model.co_code and code.co_argcount == model.co_argcount
    if not is_alike or code.co_flags & (CO_VARARGS | CO_VARKEYWORDS) or len(code.co_names) != 1:
        return None
    held = getattr(transform, "__dict__", {}).get(code.co_names[0])
    return held if type(held).__module__.partition(".")[0] in _KNOWN else None


def is_loader(function: Any) -> bool:
    """Returns whether a function is one of torchvision's image file loaders."""
    module, name = getattr(function, "__module__", None), getattr(function, "__name__", None)
    return module == "torchvision.datasets.folder" and name in _LOADERS


def _visit(walk: Walk, transform: Any) -> None:
    cls = type(transform)
    module = cls.__module__.partition(".")[0]
    if walk.floats and not walk.tensor and module in ("torchvision", "timm"):
        walk.refuse(transform, "comes after an array of floats: put ToTensorV2() before it")
    elif module == "headrace" and hasattr(transform, "_operations"):
        walk.steps.append(transform)
        walk.tensor |= cls.__name__ in ("PILToTensor", "ToDtype", "ToImage", "ToTensor")
        walk.floats |= cls.__name__ in ("ToDtype", "ToTensor")
    elif isinstance(transform, (list, tuple)):
        _visit_all(walk, transform)
    elif cls.__module__.startswith("torch.nn.") and cls.__name__ == "Sequential":
        _visit_all(walk, transform)
    elif cls.__module__.startswith("torch.nn.") and cls.__name__ == "Identity":
        pass
    elif cls.__name__ in _KNOWN.get(module, ()):
        before = len(walk.steps)
        try:
            _KNOWN[module][cls.__name__](walk, transform)
            for made in walk.steps[before:]:
                _note_mask_fill(made, transform)
        except AttributeError as error:
            walk.refuse(transform, f"not of a {module} that is known here ({error})")
        except ValueError as error:
            walk.refuse(transform, str(error))
    elif module in _KNOWN:
        walk.refuse(transform, _HINTS.get(cls.__name__, "has no equivalent here"))
    elif isinstance(transform, type):
        walk.refuse(transform, "is a class: make an instance of it")
    elif (held := _held(transform)) is not None:
        _visit(walk, held)
    elif callable(transform):
        walk.refuse(transform, "a Python function or class of your own cannot run natively")
    else:
        raise TypeError(
            f"a transform must come from headrace.transforms or torchvision, not {transform!r}"
        )


def _visit_all(walk: Walk, transforms: Iterable[Any]) -> None:
    for transform in transforms:
        _visit(walk, transform)


def _compose(walk: Walk, t: Any) -> None:
    _visit_all(walk, t.transforms)


def _in_turn(walk: Walk, t: Any) -> None:
    """Translates Albumentations' Compose and Sequential."""
    members = _albumentations.members(t)
    if members is None:
        walk.refuse(t, "runs in C only with p=1")
    else:
        _visit_all(walk, members)


def _nothing(walk: Walk, t: Any) -> None:
    pass


def _to_tensor_type(walk: Walk, t: Any) -> None:
    walk.tensor = True


def _to_tensor(walk: Walk, t: Any) -> None:
    if not walk.tensor:
        walk.add(t, "ToDtype", dtype="float32", scale=True)
        walk.floats = True
    elif "v2" not in type(t).__module__:
        walk.refuse(t, "comes a second time, which torchvision refuses too")
    walk.tensor = True


def _to_dtype(walk: Walk, t: Any) -> None:
    if not walk.tensor:
        walk.refuse(t, "does nothing to a PIL image: put ToImage() before it")
        return
    dtype = t.dtype
    if isinstance(dtype, dict):
        keys = {key if isinstance(key, str) else key.__name__: key for key in dtype}
        key = next((keys[name] for name in ("Image", "others") if name in keys), None)
        if key is None:
            walk.refuse(t, "its dtype names no tv_tensors.Image: give one dtype")
            return
        dtype = dtype[key]
        if dtype is None:
            return
    walk.add(t, "ToDtype", dtype=dtype, scale=t.scale)
    walk.floats = True


def _convert_image_dtype(walk: Walk, t: Any) -> None:
    if not walk.tensor:
        walk.refuse(t, "needs a tensor: put PILToTensor() before it")
        return
    walk.add(t, "ToDtype", dtype=t.dtype, scale=True)
    walk.floats = True


def _normalize(walk: Walk, t: Any) -> None:
    if not walk.tensor:
        walk.refuse(t, "does not take PIL images: put ToImage() and ToDtype() before it")
        return
    walk.add(t, "Normalize", mean=t.mean, std=t.std)


def _same(name: str, *attributes: str) -> Callable[[Walk, Any], None]:
    """Translates a transform whose attributes are named as our class's arguments."""

    def handle(walk: Walk, t: Any) -> None:
        walk.add(t, name, **{attribute: getattr(t, attribute) for attribute in attributes})

    return handle


def _fill(t: Any) -> Any:
    """Returns the fill for images: v2 may have one for each type."""
    fill = t.fill
    if not isinstance(fill, dict):
        return 0 if fill is None else fill
    keys = {key if isinstance(key, str) else key.__name__: key for key in fill}
    key = next((keys[name] for name in ("Image", "Tensor", "others") if name in keys), None)
    if key is None:
        raise ValueError("its fill names no tv_tensors.Image: give one number or three")
    return 0 if fill[key] is None else fill[key]


def _note_mask_fill(made: Any, t: Any) -> None:
    """Keeps, in what was made of a transform of v2, what that one fills masks with, if it is another
    number than 255, which all masks get here."""
    if not type(t).__module__.startswith("torchvision.transforms.v2") or not hasattr(t, "fill"):
        return
    never_pads = type(t).__name__ == "RandomCrop" and t.padding is None and not t.pad_if_needed
    if never_pads or getattr(t, "padding_mode", "constant") != "constant":
        return
    fill = t.fill
    if isinstance(fill, dict):
        names = {key if isinstance(key, str) else key.__name__: key for key in fill}
        key = next((names[name] for name in ("Mask", "others") if name in names), None)
        fill = None if key is None else fill[key]
    if fill != 255:
        made._mask_fill = 0 if fill is None else fill


def other_mask_fills(transform: Any, make: Make) -> list[str]:
    """Returns, for messages, what a transform's translated parts fill masks with in their library, if
    that is not 255."""
    found: list[str] = []
    left = beginnings(transform, make)[0].steps
    while left:
        made, *left = left
        left = [*getattr(made, "transforms", ()), *left]
        if hasattr(made, "_mask_fill"):
            found.append(f"{type(made).__name__} with {made._mask_fill}")
    return list(dict.fromkeys(found))


def _on_bytes(name: str, *attributes: str, filled: bool = False) -> Callable[[Walk, Any], None]:
    """As _same, for transforms that run on bytes, before any conversion to floats."""

    def handle(walk: Walk, t: Any) -> None:
        if walk.floats:
            walk.refuse(t, "runs in C on bytes only: put it before ToTensor or ToDtype")
            return
        given = {attribute: getattr(t, attribute) for attribute in attributes}
        if filled:
            given["fill"] = None if t.fill is None else _fill(t)
        walk.add(t, name, **given)

    return handle


def _pad(walk: Walk, t: Any) -> None:
    walk.add(t, "Pad", padding=t.padding, fill=_fill(t), padding_mode=t.padding_mode)


def _zoom_out(walk: Walk, t: Any) -> None:
    walk.add(t, "RandomZoomOut", fill=_fill(t), side_range=t.side_range, p=t.p)


def _shortest_size(walk: Walk, t: Any) -> None:
    walk.add(
        t,
        "RandomShortestSize",
        min_size=t.min_size,
        max_size=t.max_size,
        interpolation=walk.resizing(t.interpolation),
        antialias=_antialias(walk, t),
    )


def _iou_crop(walk: Walk, t: Any) -> None:
    walk.add(
        t,
        "RandomIoUCrop",
        min_scale=t.min_scale,
        max_scale=t.max_scale,
        min_aspect_ratio=t.min_aspect_ratio,
        max_aspect_ratio=t.max_aspect_ratio,
        sampler_options=t.options,
        trials=t.trials,
    )


def _sanitize_boxes(walk: Walk, t: Any) -> None:
    if t.labels_getter is None:
        walk.refuse(t, "labels_getter=None would keep the labels of dropped boxes: leave it out")
        return
    walk.add(t, "SanitizeBoundingBoxes", min_size=t.min_size, min_area=t.min_area)


def _box_format(walk: Walk, t: Any) -> None:
    if str(getattr(t.format, "value", t.format)).upper() != "XYXY":
        walk.refuse(t, "boxes are XYXY here: convert them after loading")


def _erasing(walk: Walk, t: Any) -> None:
    if not walk.tensor:
        walk.refuse(t, "does not take PIL images: put it after ToTensor or ToImage")
        return
    value = "random" if t.value is None else t.value
    walk.add(t, "RandomErasing", p=t.p, scale=t.scale, ratio=t.ratio, value=value)


def _policy(name: str, *attributes: str) -> Callable[[Walk, Any], None]:
    return _on_bytes(name, "interpolation", *attributes, filled=True)


def _inner(walk: Walk, transforms: Any) -> list[Any] | None:
    """Translates transforms inside another. Returns None after adding the problems."""
    inner = replace(walk, steps=[], problems=[])
    _visit_all(inner, transforms)
    if inner.tensor != walk.tensor or inner.floats != walk.floats:
        inner.problems.append("a conversion of the type inside it is not possible natively")
    walk.problems += inner.problems
    return None if inner.problems else inner.steps


def _apply(walk: Walk, t: Any) -> None:
    steps = _inner(walk, t.transforms)
    if steps is not None:
        walk.add(t, "RandomApply", transforms=steps, p=t.p)


def _choice(walk: Walk, t: Any) -> None:
    choices = [_inner(walk, [member]) for member in t.transforms]
    if all(choice is not None for choice in choices):
        walk.add(t, "RandomChoice", transforms=choices, p=t.p)


def _order(walk: Walk, t: Any) -> None:
    members = [_inner(walk, [member]) for member in t.transforms]
    if all(member is not None for member in members):
        walk.add(t, "RandomOrder", transforms=members)


def _resized(name: str, *attributes: str) -> Callable[[Walk, Any], None]:
    """As _same, for transforms with `size`, `interpolation` and `antialias` too."""

    def handle(walk: Walk, t: Any) -> None:
        given = {attribute: getattr(t, attribute) for attribute in attributes}
        given |= {"interpolation": walk.resizing(t.interpolation), "antialias": _antialias(walk, t)}
        walk.add(t, name, size=t.size, **given)

    return handle


def _antialias(walk: Walk, t: Any) -> bool:
    return not walk.tensor or getattr(t, "antialias", True) is not False


def _random_crop(walk: Walk, t: Any) -> None:
    padding = t.padding
    if padding is not None and "v2" in type(t).__module__:
        # v2 stores left, right, top, bottom
        left, right, top, bottom = padding
        padding = (left, top, right, bottom)
    walk.add(
        t,
        "RandomCrop",
        size=t.size,
        padding=padding,
        pad_if_needed=t.pad_if_needed,
        fill=_fill(t),
        padding_mode=t.padding_mode,
    )


def _grayscale(walk: Walk, t: Any) -> None:
    if t.num_output_channels == 3:
        walk.add(t, "RandomGrayscale", p=1.0)
    else:
        walk.refuse(t, "images are RGB here: use Grayscale(num_output_channels=3)")


def _image_classification(walk: Walk, t: Any) -> None:
    """Translates the ``transforms()`` of torchvision's pretrained weights."""
    _resize_to = t.resize_size[0] if len(t.resize_size) == 1 else t.resize_size
    walk.add(
        t,
        "Resize",
        size=_resize_to,
        interpolation=walk.resizing(t.interpolation),
        antialias=_antialias(walk, t),
    )
    walk.add(t, "CenterCrop", size=t.crop_size)
    walk.tensor = True
    walk.add(t, "ToDtype", dtype="float32", scale=True)
    walk.add(t, "Normalize", mean=t.mean, std=t.std)


_HANDLERS: dict[str, Callable[[Walk, Any], None]] = {
    "Compose": _compose,
    "Identity": _nothing,
    "RGB": _nothing,
    "PILToTensor": _to_tensor_type,
    "ToImage": _to_tensor_type,
    "ToPureTensor": _nothing,
    "ToTensor": _to_tensor,
    "ToDtype": _to_dtype,
    "ConvertImageDtype": _convert_image_dtype,
    "Normalize": _normalize,
    "RandomResizedCrop": _resized("RandomResizedCrop", "scale", "ratio"),
    "Resize": _resized("Resize", "max_size"),
    "CenterCrop": _same("CenterCrop", "size"),
    "RandomCrop": _random_crop,
    "RandomHorizontalFlip": _same("RandomHorizontalFlip", "p"),
    "RandomVerticalFlip": _same("RandomVerticalFlip", "p"),
    "RandomGrayscale": _same("RandomGrayscale", "p"),
    "ColorJitter": _same("ColorJitter", "brightness", "contrast", "saturation", "hue"),
    "Grayscale": _grayscale,
    "Pad": _pad,
    "RandomZoomOut": _zoom_out,
    "RandomShortestSize": _shortest_size,
    "RandomIoUCrop": _iou_crop,
    "ClampBoundingBoxes": _same("ClampBoundingBoxes", "clamping_mode"),
    "SanitizeBoundingBoxes": _sanitize_boxes,
    "ConvertBoundingBoxFormat": _box_format,
    "RandomRotation": _on_bytes(
        "RandomRotation", "degrees", "interpolation", "expand", "center", filled=True
    ),
    "RandomAffine": _on_bytes(
        "RandomAffine",
        "degrees",
        "translate",
        "scale",
        "shear",
        "interpolation",
        "center",
        filled=True,
    ),
    "RandomPerspective": _on_bytes(
        "RandomPerspective", "distortion_scale", "p", "interpolation", filled=True
    ),
    "ElasticTransform": _on_bytes(
        "ElasticTransform", "alpha", "sigma", "interpolation", filled=True
    ),
    "RandomChannelPermutation": _on_bytes("RandomChannelPermutation"),
    "RandomPhotometricDistort": _on_bytes(
        "RandomPhotometricDistort", "brightness", "contrast", "saturation", "hue", "p"
    ),
    "RandomInvert": _on_bytes("RandomInvert", "p"),
    "RandomAutocontrast": _on_bytes("RandomAutocontrast", "p"),
    "RandomEqualize": _on_bytes("RandomEqualize", "p"),
    "RandomPosterize": _on_bytes("RandomPosterize", "bits", "p"),
    "RandomSolarize": _on_bytes("RandomSolarize", "threshold", "p"),
    "RandomAdjustSharpness": _on_bytes("RandomAdjustSharpness", "sharpness_factor", "p"),
    "GaussianBlur": _on_bytes("GaussianBlur", "kernel_size", "sigma"),
    "GaussianNoise": _on_bytes("GaussianNoise", "mean", "sigma", "clip"),
    "RandomErasing": _erasing,
    "RandAugment": _policy("RandAugment", "num_ops", "magnitude", "num_magnitude_bins"),
    "TrivialAugmentWide": _policy("TrivialAugmentWide", "num_magnitude_bins"),
    "AutoAugment": _policy("AutoAugment", "policy"),
    "AugMix": _policy(
        "AugMix", "severity", "mixture_width", "chain_depth", "alpha", "all_ops"
    ),
    "RandomApply": _apply,
    "RandomChoice": _choice,
    "RandomOrder": _order,
    "ImageClassification": _image_classification,
}

# By the first part of the name of the module that defines a class.
_KNOWN = {
    "torchvision": _HANDLERS,
    "timm": _timm.HANDLERS,
    "albumentations": _albumentations.HANDLERS | {"Compose": _in_turn, "Sequential": _in_turn},
}
