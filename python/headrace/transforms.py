"""Image transforms.

The classes have the names, arguments, defaults and distributions of
torchvision's v2 transforms (0.29). They only describe transforms; the C library
executes a whole list at once. Therefore instances are not callable: pass a
:class:`Compose`, a list of transforms, or a torchvision ``Compose`` to a
dataset, a DataLoader or a :class:`headrace.Preparer`.

Random parameters depend only on seed, epoch, sample index and the transform's
position. Outside a DataLoader each image gets a new random seed. Images are
RGB; the result must have a fixed size.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import _core
from ._torchvision import translate as _translate

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "Normalize",
    "PILToTensor",
    "RandomCrop",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "ToDtype",
    "ToImage",
    "ToTensor",
    "Transform",
    "from_torchvision",
]

_Operation = tuple[str, dict[str, Any]]

# enum hr_dtype
_DTYPES = {"uint8": 0, "float16": 1, "half": 1, "bfloat16": 2, "float32": 3, "float": 3}
# enum hr_interpolation; the numbers are PIL's
_INTERPOLATIONS = {"bilinear": 0, "bicubic": 1, 2: 0, 3: 1}
# enum hr_padding_mode
_PADDING_MODES = {"constant": 0, "edge": 1, "reflect": 2, "symmetric": 3}
# enum hr_layout
_LAYOUTS = {"NCHW": 0, "NHWC": 1}
_DAMAGED = {"refuse": 0, "accept": 1}


class Transform:
    """Base of all transforms, which compare, print and pickle by their arguments."""

    _is_random = False  # whether two results for one image may differ

    def _operations(self) -> list[_Operation]:
        """Returns the C library's operations for this transform."""
        raise NotImplementedError

    def _arguments(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if not k.startswith("_")}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        arguments = ", ".join(f"{k}={v!r}" for k, v in self._arguments().items())
        return f"{type(self).__name__}({arguments})"

    def __call__(self, *inputs: Any) -> Any:
        raise TypeError(
            f"{type(self).__name__} is not called on images: give it to headrace.ImageFolder, "
            "headrace.torch.DataLoader or headrace.Preparer as transform="
        )


class Compose(Transform):
    """Applies several transforms in sequence.

    Args:
        transforms: transforms of this module, of torchvision, or lists of them.
    """

    def __init__(self, transforms: Sequence[Any]) -> None:
        if not isinstance(transforms, Sequence) or isinstance(transforms, str):
            raise TypeError(f"Compose takes a list of transforms, not {_name(transforms)}")
        self.transforms: list[Transform] = []
        for made in _translate(list(transforms), _make):
            self.transforms += made.transforms if isinstance(made, Compose) else [made]

    @property
    def _is_random(self) -> bool:  # type: ignore[override]
        return any(t._is_random for t in self.transforms)

    def _operations(self) -> list[_Operation]:
        return [operation for t in self.transforms for operation in t._operations()]

    def __repr__(self) -> str:
        return "Compose([\n" + "".join(f"    {t!r},\n" for t in self.transforms) + "])"


class RandomResizedCrop(Transform):
    """Crops a random part of the image and resizes it to ``size``.

    Args:
        size: (height, width) in pixels, or one number for both.
        scale: range of the part's area relative to the image's; uniform.
        ratio: range of the part's aspect ratio, width / height; log-uniform.
        interpolation: bilinear or bicubic: torchvision's InterpolationMode, a
            string or PIL's number.
        antialias: ``True``: as Pillow; ``False``: as torch's interpolate without
            antialiasing.
    """

    _is_random = True

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.size = _size("RandomResizedCrop", size)
        self.scale = _pair("RandomResizedCrop: scale", scale)
        self.ratio = _pair("RandomResizedCrop: ratio", ratio)
        self.interpolation = _interpolation("RandomResizedCrop", interpolation)
        self.antialias = antialias is None or bool(antialias)
        if not 0 < self.scale[0] <= self.scale[1]:
            raise ValueError(f"RandomResizedCrop: scale must be (min, max) above 0, got {scale}")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(f"RandomResizedCrop: ratio must be (min, max) above 0, got {ratio}")

    def _operations(self) -> list[_Operation]:
        return [
            (
                "RandomResizedCrop",
                {
                    "height": self.size[0],
                    "width": self.size[1],
                    "scale": self.scale,
                    "ratio": self.ratio,
                    "interpolation": _INTERPOLATIONS[self.interpolation],
                    "antialias": self.antialias,
                },
            )
        ]


class Resize(Transform):
    """Resizes the image.

    Args:
        size: (height, width), or one number: the new length of the shorter side,
            keeping the aspect ratio. Only (height, width) gives a fixed size.
        interpolation, antialias: as for :class:`RandomResizedCrop`.
        max_size: if ``size`` is one number: limit of the longer side's length.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: Any = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        if size is None:
            raise ValueError("Resize: size=None (max_size alone) is not supported: give a size")
        if isinstance(size, Sequence) and len(size) == 2:
            self.size: int | tuple[int, int] = _size("Resize", size)
        else:
            self.size = _size("Resize", size)[0]
        self.interpolation = _interpolation("Resize", interpolation)
        self.max_size = None if max_size is None else _integer("Resize: max_size", max_size, 1)
        self.antialias = antialias is None or bool(antialias)
        if self.max_size is not None:
            if isinstance(self.size, tuple):
                raise ValueError("Resize: max_size goes with size as one number only")
            if self.max_size <= self.size:
                raise ValueError(
                    f"Resize: max_size = {max_size} must be greater than the size {size} of the "
                    "shorter side"
                )

    def _operations(self) -> list[_Operation]:
        height, width = self.size if isinstance(self.size, tuple) else (self.size, 0)
        return [
            (
                "Resize",
                {
                    "height": height,
                    "width": width,
                    "max_size": self.max_size or 0,
                    "interpolation": _INTERPOLATIONS[self.interpolation],
                    "antialias": self.antialias,
                },
            )
        ]


class CenterCrop(Transform):
    """Crops the centre of the image; pads a smaller image with 0.

    Args:
        size: (height, width) in pixels, or one number for both.
    """

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = _size("CenterCrop", size)

    def _operations(self) -> list[_Operation]:
        return [("CenterCrop", {"height": self.size[0], "width": self.size[1]})]


class RandomCrop(Transform):
    """Crops a part of fixed size at a random position.

    Args:
        size: (height, width) in pixels, or one number for both.
        padding: pixels added around the image first: one number, (left and right,
            top and bottom) or (left, top, right, bottom).
        pad_if_needed: pad images that are smaller than ``size`` instead of failing.
        fill: value of constant padding, one number or three, in the pixels' range
            at this step (0 to 255 before a ToDtype with scale).
        padding_mode: "constant", "edge", "reflect" or "symmetric".
    """

    _is_random = True

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: float | Sequence[float] = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = _size("RandomCrop", size)
        self.padding = _padding(padding)
        self.pad_if_needed = bool(pad_if_needed)
        self.fill = _channels("RandomCrop: fill", fill)
        self.padding_mode = padding_mode
        if padding_mode not in _PADDING_MODES:
            raise ValueError(
                f"RandomCrop: padding_mode must be one of {', '.join(_PADDING_MODES)}, "
                f"got {padding_mode!r}"
            )

    def _operations(self) -> list[_Operation]:
        return [
            (
                "RandomCrop",
                {
                    "height": self.size[0],
                    "width": self.size[1],
                    "padding": self.padding or (0, 0, 0, 0),
                    "pad_if_needed": self.pad_if_needed,
                    "fill": self.fill,
                    "padding_mode": _PADDING_MODES[self.padding_mode],
                },
            )
        ]


class _Flip(Transform):
    _is_random = True

    def __init__(self, p: float = 0.5) -> None:
        self.p = _probability(type(self).__name__, p)

    def _operations(self) -> list[_Operation]:
        return [(type(self).__name__, {"p": self.p})]


class RandomHorizontalFlip(_Flip):
    """Mirrors the image left to right with probability ``p``."""


class RandomVerticalFlip(_Flip):
    """Mirrors the image top to bottom with probability ``p``."""


class RandomGrayscale(Transform):
    """Sets all three channels to the luma with probability ``p``."""

    _is_random = True

    def __init__(self, p: float = 0.1) -> None:
        self.p = _probability("RandomGrayscale", p)

    def _operations(self) -> list[_Operation]:
        return [("RandomGrayscale", {"p": self.p})]


class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue at random, in random order.

    Args:
        brightness, contrast, saturation: x for factors in [max(0, 1 - x), 1 + x],
            or (min, max).
        hue: x for shifts in [-x, x], or (min, max), within [-0.5, 0.5].
    """

    _is_random = True

    def __init__(
        self,
        brightness: float | Sequence[float] | None = None,
        contrast: float | Sequence[float] | None = None,
        saturation: float | Sequence[float] | None = None,
        hue: float | Sequence[float] | None = None,
    ) -> None:
        self.brightness = _jitter("brightness", brightness, 1.0, (0.0, math.inf))
        self.contrast = _jitter("contrast", contrast, 1.0, (0.0, math.inf))
        self.saturation = _jitter("saturation", saturation, 1.0, (0.0, math.inf))
        self.hue = _jitter("hue", hue, 0.0, (-0.5, 0.5))

    def _operations(self) -> list[_Operation]:
        return [
            (
                "ColorJitter",
                {
                    "brightness": self.brightness or (1.0, 1.0),
                    "contrast": self.contrast or (1.0, 1.0),
                    "saturation": self.saturation or (1.0, 1.0),
                    "hue": self.hue or (0.0, 0.0),
                },
            )
        ]


class ToDtype(Transform):
    """Converts the element type.

    Args:
        dtype: uint8, float16, bfloat16 or float32: a torch or NumPy dtype, or its
            name.
        scale: ``True`` maps 0..255 to 0..1 when converting uint8 to a float type.
    """

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        self.dtype = dtype_name(dtype, "ToDtype")
        self.scale = bool(scale)

    def _operations(self) -> list[_Operation]:
        return [("ToDtype", {"dtype": _DTYPES[self.dtype], "scale": self.scale})]


class Normalize(Transform):
    """Computes (value - mean) / std per channel.

    Args:
        mean, std: one number or three.
        inplace: has no effect.
    """

    def __init__(
        self,
        mean: float | Sequence[float],
        std: float | Sequence[float],
        inplace: bool = False,
    ) -> None:
        self.mean = _channels("Normalize: mean", mean)
        self.std = _channels("Normalize: std", std)
        if any(s == 0 for s in self.std):
            raise ValueError("Normalize: std must not be 0")

    def _operations(self) -> list[_Operation]:
        return [("Normalize", {"mean": self.mean, "std": self.std})]


class _Nothing(Transform):
    def _operations(self) -> list[_Operation]:
        return []


class ToImage(_Nothing):
    """Has no effect: images are tensors here from the start."""


class PILToTensor(_Nothing):
    """Has no effect: images are tensors here from the start."""


class ToTensor(Transform):
    """Same as ``ToDtype("float32", scale=True)``, as in torchvision's v1."""

    def _operations(self) -> list[_Operation]:
        return [("ToDtype", {"dtype": _DTYPES["float32"], "scale": True})]


def from_torchvision(transform: Any) -> Compose:
    """Translates torchvision transforms, v1 or v2: a single one, a Compose, a list,
    ``nn.Sequential``, or the ``transforms()`` of pretrained weights.

    Does not import torchvision. Keeps order, parameters and defaults. Raises a
    ValueError that names everything that cannot be translated and what to do
    about it.
    """
    return Compose([transform])


def _make(name: str, **arguments: Any) -> Transform:
    made: Transform = globals()[name](**arguments)
    return made


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
) -> _core.Recipe:
    """Returns the checked recipe of a transform. Raises ValueError if it is invalid.

    ``dtype`` has the effect of a final ``ToDtype(dtype, scale=True)``.
    """
    operations = as_transform(transform)._operations()
    if dtype is not None:
        operations += ToDtype(dtype, scale=True)._operations()
    if layout not in _LAYOUTS:
        raise ValueError(f"layout must be 'NCHW' or 'NHWC', got {layout!r}")
    if damaged not in _DAMAGED:
        raise ValueError(f"damaged must be 'refuse' or 'accept', got {damaged!r}")
    options: dict[str, Any] = {"damaged": _DAMAGED[damaged]}
    if max_pixels is not None:
        options["max_pixels"] = _integer("max_pixels", max_pixels, 1, 2**64 - 1)
    return _core.Recipe(
        operations,
        layout=_LAYOUTS[layout],
        apply_exif_orientation=apply_exif_orientation,
        exact=exact,
        **options,
    )


def is_random(transform: Any) -> bool:
    """Returns whether two results for one image may differ."""
    return as_transform(transform)._is_random


def dtype_name(dtype: Any, who: str) -> str:
    """Returns 'uint8', 'float16', 'bfloat16' or 'float32' for a torch or NumPy dtype or a name."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if not isinstance(name, str):
        name = getattr(dtype, "__name__", None) or str(dtype)
    name = name.removeprefix("torch.")
    if name not in _DTYPES:
        raise ValueError(
            f"{who}: dtype must be uint8, float16, bfloat16 or float32, got {dtype!r}"
        )
    return {"half": "float16", "float": "float32"}.get(name, name)


def _name(value: Any) -> str:
    return type(value).__name__


def _integer(what: str, value: Any, least: int, most: int = 2**31 - 1) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be a whole number, got {value!r}") from None
    if isinstance(value, bool) or not least <= number <= most:
        limits = f"at least {least}" if number < least else f"at most {most}"
        raise ValueError(f"{what} must be a whole number of {limits}, got {value!r}")
    return number


def _numbers(what: str, values: Any) -> tuple[float, ...]:
    try:
        return tuple(float(v) for v in values)
    except (TypeError, ValueError):
        raise TypeError(f"{what} must be numbers, got {values!r}") from None


def _size(who: str, size: Any) -> tuple[int, int]:
    if isinstance(size, Iterable) and not isinstance(size, (str, bytes)):
        values = tuple(_integer(f"{who}: size", v, 1) for v in size)
        if len(values) not in (1, 2):
            raise ValueError(f"{who}: size must be one number or (height, width), got {size!r}")
        return values[0], values[-1]
    value = _integer(f"{who}: size", size, 1)
    return value, value


def _pair(what: str, values: Any) -> tuple[float, float]:
    if not isinstance(values, Iterable) or len(pair := _numbers(what, values)) != 2:
        raise TypeError(f"{what} must be two numbers, got {values!r}")
    return pair[0], pair[1]


def _channels(what: str, values: Any) -> tuple[float, float, float]:
    if isinstance(values, Mapping):
        raise TypeError(f"{what} must be one number or three, got {values!r}")
    numbers = _numbers(what, values if isinstance(values, Iterable) else (values,))
    if len(numbers) == 1:
        numbers *= 3
    if len(numbers) != 3:
        raise ValueError(f"{what} must be one number or three (images are RGB), got {values!r}")
    return numbers[0], numbers[1], numbers[2]


def _padding(padding: Any) -> tuple[int, int, int, int] | None:
    if padding is None:
        return None
    if not isinstance(padding, Iterable):
        padding = (padding,)
    p = tuple(_integer("RandomCrop: padding", v, 0) for v in padding)
    if len(p) not in (1, 2, 4):
        raise ValueError(
            "RandomCrop: padding must be one number, (left and right, top and bottom) or "
            f"(left, top, right, bottom), got {padding!r}"
        )
    return (p * (4 // len(p)))[:4]  # type: ignore[return-value]


def _probability(who: str, p: Any) -> float:
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p <= 1:
        raise ValueError(f"{who}: p must be a probability between 0 and 1, got {p!r}")
    return float(p)


def _jitter(
    what: str, value: Any, center: float, bound: tuple[float, float]
) -> tuple[float, float] | None:
    if value is None:
        return None
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError(f"ColorJitter: {what} as one number must not be negative, got {value}")
        low = center - value
        pair = (max(low, 0.0) if center else low, center + value)
    else:
        pair = _pair(f"ColorJitter: {what}", value)
    if not bound[0] <= pair[0] <= pair[1] <= bound[1]:
        raise ValueError(
            f"ColorJitter: {what} must lie within {bound[0]:g} to {bound[1]:g}, smaller first, "
            f"got {value!r}"
        )
    return None if pair == (center, center) else (float(pair[0]), float(pair[1]))


def _interpolation(who: str, value: Any) -> str:
    plain = getattr(value, "value", value)  # of an enum member
    if isinstance(plain, str):
        plain = plain.lower()
    if isinstance(plain, bool) or not isinstance(plain, (str, int)):
        plain = None
    if plain not in _INTERPOLATIONS:
        raise ValueError(
            f"{who}: interpolation must be bilinear or bicubic, got {value!r}"
        )
    return "bicubic" if _INTERPOLATIONS[plain] else "bilinear"


def __getattr__(name: str) -> Any:
    """Raises an error for torchvision's other transforms that says where they can run."""
    if name[:1].isupper():
        raise AttributeError(
            f"headrace.transforms has no {name}: it has {', '.join(__all__)}. Another transform of "
            "torchvision, and all that follows it, can be applied to each image of the batches"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
