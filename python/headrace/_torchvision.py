"""Translates torchvision's transforms without importing torchvision.

A transform is recognised by its class name and the module that defines the class, so a user's
subclass is never mistaken for its base. :func:`translate` returns the equivalent transforms of
headrace.transforms.

The translation follows torchvision's semantics: images are PIL images until ToTensor,
PILToTensor or ToImage makes them tensors. Before that point ``antialias=False`` has no effect,
because Pillow always antialiases, and ToDtype is refused, because torchvision's does nothing to
a PIL image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

# Creates a transform of headrace.transforms from its class name and arguments.
Make = Callable[..., Any]

_WAY_OUT = (
    "Either cut the transform in two before the first of these. Give the loader the first part, "
    "which must end with images of one size, and apply the rest to each image of the batches: "
    "torch.stack([rest(x) for x in images]). Where ToTensor or ToDtype is in the rest, the "
    "batches are uint8 tensors; write v2.ToDtype(torch.float32, scale=True) for ToTensor then. "
    "Or keep torch.utils.data.DataLoader for this dataset."
)

_LOADERS = {"default_loader", "pil_loader", "accimage_loader"}

_HINTS = {
    "MixUp": "it works on batches: apply it to what the DataLoader yields",
    "CutMix": "it works on batches: apply it to what the DataLoader yields",
    "Pad": "RandomCrop can pad",
    "Lambda": "a Python function cannot run in the native threads",
    "ToPILImage": "images are decoded natively: leave it out",
}


@dataclass
class _Walk:
    """The state of the image at the current transform, and the translation so far."""

    make: Make
    tensor: bool = False
    steps: list[Any] = field(default_factory=list)  # translated transforms
    problems: list[str] = field(default_factory=list)

    def add(self, theirs: Any, name: str, **arguments: Any) -> None:
        """Adds a step, or a problem if our class refuses the arguments."""
        try:
            self.steps.append(self.make(name, **arguments))
        except (TypeError, ValueError) as error:
            self.refuse(theirs, str(error).removeprefix(f"{name}: "))

    def refuse(self, transform: Any, why: str) -> None:
        self.problems.append(f"{class_name(transform)}: {why}")


def translate(transform: Any, make: Make) -> list[Any]:
    """Returns equivalent transforms, each created by ``make(class name, **arguments)``.

    Raises TypeError for objects that are not torchvision transforms and ValueError for
    transforms that cannot be translated. The message names all of them.
    """
    walk = _Walk(make)
    _visit(walk, transform)
    if walk.problems:
        raise ValueError(
            "these transforms cannot be translated:\n  "
            + "\n  ".join(walk.problems)
            + "\n"
            + _WAY_OUT
        )
    return walk.steps


def is_loader(function: Any) -> bool:
    """Returns whether a function is one of torchvision's image file loaders."""
    module, name = getattr(function, "__module__", None), getattr(function, "__name__", None)
    return module == "torchvision.datasets.folder" and name in _LOADERS


def class_name(value: Any) -> str:
    named = value if hasattr(value, "__qualname__") else type(value)  # a function or a class
    return f"{named.__module__}.{named.__qualname__}"


def _visit(walk: _Walk, transform: Any) -> None:
    cls = type(transform)
    module = cls.__module__.partition(".")[0]
    if module == "headrace" and hasattr(transform, "_operations"):
        walk.steps.append(transform)
        walk.tensor |= cls.__name__ in ("PILToTensor", "ToDtype", "ToImage", "ToTensor")
    elif isinstance(transform, (list, tuple)):
        _visit_all(walk, transform)
    elif cls.__module__.startswith("torch.nn.") and cls.__name__ == "Sequential":
        _visit_all(walk, transform)
    elif cls.__module__.startswith("torch.nn.") and cls.__name__ == "Identity":
        pass
    elif module == "torchvision" and cls.__name__ in _HANDLERS:
        try:
            _HANDLERS[cls.__name__](walk, transform)
        except AttributeError as error:
            walk.refuse(transform, f"not of a torchvision that is known here ({error})")
    elif module == "torchvision":
        walk.refuse(transform, _HINTS.get(cls.__name__, "has no equivalent here"))
    elif isinstance(transform, type):
        walk.refuse(transform, "is a class: make an instance of it")
    elif callable(transform):
        walk.refuse(transform, "a Python function or class of your own cannot run natively")
    else:
        raise TypeError(
            f"a transform must come from headrace.transforms or torchvision, not {transform!r}"
        )


def _visit_all(walk: _Walk, transforms: Iterable[Any]) -> None:
    for transform in transforms:
        _visit(walk, transform)


def _compose(walk: _Walk, t: Any) -> None:
    _visit_all(walk, t.transforms)


def _nothing(walk: _Walk, t: Any) -> None:
    pass


def _to_tensor_type(walk: _Walk, t: Any) -> None:
    walk.tensor = True


def _to_tensor(walk: _Walk, t: Any) -> None:
    if not walk.tensor:
        walk.add(t, "ToDtype", dtype="float32", scale=True)
    elif "v2" not in type(t).__module__:
        walk.refuse(t, "comes a second time, which torchvision refuses too")
    walk.tensor = True


def _to_dtype(walk: _Walk, t: Any) -> None:
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


def _convert_image_dtype(walk: _Walk, t: Any) -> None:
    if not walk.tensor:
        walk.refuse(t, "needs a tensor: put PILToTensor() before it")
        return
    walk.add(t, "ToDtype", dtype=t.dtype, scale=True)


def _normalize(walk: _Walk, t: Any) -> None:
    if not walk.tensor:
        walk.refuse(t, "does not take PIL images: put ToImage() and ToDtype() before it")
        return
    walk.add(t, "Normalize", mean=t.mean, std=t.std)


def _same(name: str, *attributes: str) -> Callable[[_Walk, Any], None]:
    """Translates a transform whose attributes are named as our class's arguments."""

    def handle(walk: _Walk, t: Any) -> None:
        walk.add(t, name, **{attribute: getattr(t, attribute) for attribute in attributes})

    return handle


def _resized(name: str, *attributes: str) -> Callable[[_Walk, Any], None]:
    """As _same, for transforms with `size`, `interpolation` and `antialias` too."""

    def handle(walk: _Walk, t: Any) -> None:
        given = {attribute: getattr(t, attribute) for attribute in attributes}
        interpolation, antialias = t.interpolation, _antialias(walk, t)
        walk.add(t, name, size=t.size, interpolation=interpolation, antialias=antialias, **given)

    return handle


def _antialias(walk: _Walk, t: Any) -> bool:
    return not walk.tensor or getattr(t, "antialias", True) is not False


def _random_crop(walk: _Walk, t: Any) -> None:
    padding = t.padding
    if padding is not None and "v2" in type(t).__module__:
        # v2 stores left, right, top, bottom
        left, right, top, bottom = padding
        padding = (left, top, right, bottom)
    fill = t.fill
    if isinstance(fill, dict):
        walk.refuse(t, "fill as a dict: give one number or three")
        return
    walk.add(
        t,
        "RandomCrop",
        size=t.size,
        padding=padding,
        pad_if_needed=t.pad_if_needed,
        fill=0 if fill is None else fill,
        padding_mode=t.padding_mode,
    )


def _grayscale(walk: _Walk, t: Any) -> None:
    if t.num_output_channels == 3:
        walk.add(t, "RandomGrayscale", p=1.0)
    else:
        walk.refuse(t, "images are RGB here: use Grayscale(num_output_channels=3)")


def _image_classification(walk: _Walk, t: Any) -> None:
    """Translates the ``transforms()`` of torchvision's pretrained weights."""
    _resize_to = t.resize_size[0] if len(t.resize_size) == 1 else t.resize_size
    walk.add(
        t,
        "Resize",
        size=_resize_to,
        interpolation=t.interpolation,
        antialias=_antialias(walk, t),
    )
    walk.add(t, "CenterCrop", size=t.crop_size)
    walk.tensor = True
    walk.add(t, "ToDtype", dtype="float32", scale=True)
    walk.add(t, "Normalize", mean=t.mean, std=t.std)


_HANDLERS: dict[str, Callable[[_Walk, Any], None]] = {
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
    "ImageClassification": _image_classification,
}
