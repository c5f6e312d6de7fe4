"""Transforms that move pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import _arguments as _a
from ._base import Operation, Transform


class RandomResizedCrop(Transform):
    """Crops a random part of the image and resizes it to ``size``.

    Args:
        size: (height, width) in pixels, or one number for both.
        scale: range of the part's area relative to the image's; uniform.
        ratio: range of the part's aspect ratio, width / height; log-uniform.
        interpolation: bilinear, bicubic, or the nearest pixel: torchvision's InterpolationMode, a
            string or PIL's number. ``"nearest"`` and ``"nearest-exact"`` are those of torchvision
            for tensors, ``"nearest-pillow"`` is that of Pillow, and of torchvision for PIL images.
        antialias: of bilinear and bicubic. ``True``: as Pillow; ``False``: as torch's interpolate
            without antialiasing.
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
        self.size = _a.size("RandomResizedCrop", size)
        self.scale = _a.pair("RandomResizedCrop: scale", scale)
        self.ratio = _a.pair("RandomResizedCrop: ratio", ratio)
        self.interpolation = _a.interpolation("RandomResizedCrop", interpolation)
        self.antialias = antialias is None or bool(antialias)
        if not 0 < self.scale[0] <= self.scale[1]:
            raise ValueError(f"RandomResizedCrop: scale must be (min, max) above 0, got {scale}")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(f"RandomResizedCrop: ratio must be (min, max) above 0, got {ratio}")

    def _operations(self) -> list[Operation]:
        return [
            (
                "RandomResizedCrop",
                {
                    "height": self.size[0],
                    "width": self.size[1],
                    "scale": self.scale,
                    "ratio": self.ratio,
                    "interpolation": _a.INTERPOLATIONS[self.interpolation],
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
            self.size: int | tuple[int, int] = _a.size("Resize", size)
        else:
            self.size = _a.size("Resize", size)[0]
        self.interpolation = _a.interpolation("Resize", interpolation)
        self.max_size = None if max_size is None else _a.integer("Resize: max_size", max_size, 1)
        self.antialias = antialias is None or bool(antialias)
        if self.max_size is not None:
            if isinstance(self.size, tuple):
                raise ValueError("Resize: max_size goes with size as one number only")
            if self.max_size <= self.size:
                raise ValueError(
                    f"Resize: max_size = {max_size} must be greater than the size {size} of the "
                    "shorter side"
                )

    def _operations(self) -> list[Operation]:
        height, width = self.size if isinstance(self.size, tuple) else (self.size, 0)
        return [
            (
                "Resize",
                {
                    "height": height,
                    "width": width,
                    "max_size": self.max_size or 0,
                    "interpolation": _a.INTERPOLATIONS[self.interpolation],
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
        self.size = _a.size("CenterCrop", size)

    def _operations(self) -> list[Operation]:
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
        self.size = _a.size("RandomCrop", size)
        self.padding = None if padding is None else _a.padding("RandomCrop", padding)
        self.pad_if_needed = bool(pad_if_needed)
        self.fill = _a.channels("RandomCrop: fill", fill)
        self.padding_mode = _a.padding_mode("RandomCrop", padding_mode)

    def _operations(self) -> list[Operation]:
        return [
            (
                "RandomCrop",
                {
                    "height": self.size[0],
                    "width": self.size[1],
                    "padding": self.padding or (0, 0, 0, 0),
                    "pad_if_needed": self.pad_if_needed,
                    "fill": self.fill,
                    "padding_mode": _a.PADDING_MODES[self.padding_mode],
                },
            )
        ]


class _Flip(Transform):
    _is_random = True

    def __init__(self, p: float = 0.5) -> None:
        self.p = _a.probability(type(self).__name__, p)

    def _operations(self) -> list[Operation]:
        return [(type(self).__name__, {"p": self.p})]


class RandomHorizontalFlip(_Flip):
    """Mirrors the image left to right with probability ``p``."""


class RandomVerticalFlip(_Flip):
    """Mirrors the image top to bottom with probability ``p``."""


class Pad(Transform):
    """Adds pixels around the image.

    Args:
        padding: one number, (left and right, top and bottom) or (left, top, right, bottom).
        fill: value of constant padding, one number or three, in the pixels' range at this step.
        padding_mode: "constant", "edge", "reflect" or "symmetric".
    """

    def __init__(
        self,
        padding: int | Sequence[int],
        fill: float | Sequence[float] | None = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.padding = _a.padding("Pad", padding)
        self.fill = _a.fill("Pad", fill)
        self.padding_mode = _a.padding_mode("Pad", padding_mode)

    def _operations(self) -> list[Operation]:
        mode = _a.PADDING_MODES[self.padding_mode]
        return [("Pad", {"padding": self.padding, "fill": self.fill, "padding_mode": mode})]


class RandomRotation(Transform):
    """Rotates the image by a random angle.

    Args:
        degrees: x for angles in [-x, x], or (min, max); counterclockwise.
        interpolation: "nearest" or "bilinear".
        expand: enlarge the result so that the whole image is in it. Its size then depends on the
            angle: a crop or Resize must follow.
        center: (x, y) of the axis in pixels; the middle by default.
        fill: value of the pixels outside the image, one number or three.
    """

    _is_random = True

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: Any = "nearest",
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: float | Sequence[float] | None = 0,
    ) -> None:
        self.degrees = _range("RandomRotation: degrees", degrees)
        self.interpolation = _a.interpolation("RandomRotation", interpolation, _WARPS)
        self.expand = bool(expand)
        self.center = None if center is None else _a.pair("RandomRotation: center", center)
        self.fill = None if fill is None else _a.fill("RandomRotation", fill)

    def _operations(self) -> list[Operation]:
        return [
            (
                "RandomRotation",
                {
                    "degrees": self.degrees,
                    "expand": self.expand,
                    "has_center": self.center is not None,
                    "center": self.center or (0.0, 0.0),
                    "has_fill": self.fill is not None,
                    "fill": self.fill or (0.0, 0.0, 0.0),
                    "interpolation": _a.INTERPOLATIONS[self.interpolation],
                },
            )
        ]


class RandomAffine(Transform):
    """Rotates, shifts, scales and shears the image at random; its size stays.

    Args:
        degrees: x for angles in [-x, x], or (min, max).
        translate: (a, b): shifts of up to a times the width and b times the height.
        scale: (min, max) of the factor.
        shear: x for angles in [-x, x] parallel to the x axis, (min, max), or (x min, x max, y min,
            y max), in degrees.
        interpolation: "nearest" or "bilinear".
        fill: value of the pixels outside the image, one number or three.
        center: (x, y) of the axis in pixels; the middle by default.
    """

    _is_random = True

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: Any = "nearest",
        fill: float | Sequence[float] | None = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        self.degrees = _range("RandomAffine: degrees", degrees)
        self.translate = None if translate is None else _a.pair("RandomAffine: translate", translate)
        self.scale = None if scale is None else _a.pair("RandomAffine: scale", scale)
        self.shear = None if shear is None else _shear(shear)
        self.interpolation = _a.interpolation("RandomAffine", interpolation, _WARPS)
        self.fill = None if fill is None else _a.fill("RandomAffine", fill)
        self.center = None if center is None else _a.pair("RandomAffine: center", center)
        if self.translate and not all(0 <= t <= 1 for t in self.translate):
            raise ValueError(f"RandomAffine: translate must be between 0 and 1, got {translate!r}")
        if self.scale and not 0 < self.scale[0] <= self.scale[1]:
            raise ValueError(f"RandomAffine: scale must be (min, max) above 0, got {scale!r}")

    def _operations(self) -> list[Operation]:
        return [
            (
                "RandomAffine",
                {
                    "degrees": self.degrees,
                    "translate": self.translate or (0.0, 0.0),
                    "scale": self.scale or (1.0, 1.0),
                    "shear": self.shear or (0.0, 0.0, 0.0, 0.0),
                    "has_center": self.center is not None,
                    "center": self.center or (0.0, 0.0),
                    "has_fill": self.fill is not None,
                    "fill": self.fill or (0.0, 0.0, 0.0),
                    "interpolation": _a.INTERPOLATIONS[self.interpolation],
                },
            )
        ]


class RandomPerspective(Transform):
    """Moves the four corners at random with probability ``p``.

    Args:
        distortion_scale: how far a corner may move, 0 to 1, as a share of half the size.
        p: the probability.
        interpolation: "nearest" or "bilinear".
        fill: value of the pixels outside the image, one number or three.
    """

    _is_random = True

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Any = "bilinear",
        fill: float | Sequence[float] | None = 0,
    ) -> None:
        who = "RandomPerspective"
        self.distortion_scale = _a.within(f"{who}: distortion_scale", distortion_scale, 0, 1)
        self.p = _a.probability(who, p)
        self.interpolation = _a.interpolation(who, interpolation, _WARPS)
        self.fill = None if fill is None else _a.fill(who, fill)

    def _operations(self) -> list[Operation]:
        return [
            (
                "RandomPerspective",
                {
                    "distortion_scale": self.distortion_scale,
                    "p": self.p,
                    "has_fill": self.fill is not None,
                    "fill": self.fill or (0.0, 0.0, 0.0),
                    "interpolation": _a.INTERPOLATIONS[self.interpolation],
                },
            )
        ]


class ElasticTransform(Transform):
    """Moves pixels by smooth random displacements.

    Args:
        alpha: size of the displacements in pixels: one number or (x, y).
        sigma: smoothness of the displacements in pixels: one number or (x, y).
        interpolation: "nearest" or "bilinear".
        fill: value of the pixels outside the image, one number or three.
    """

    _is_random = True

    def __init__(
        self,
        alpha: float | Sequence[float] = 50.0,
        sigma: float | Sequence[float] = 5.0,
        interpolation: Any = "bilinear",
        fill: float | Sequence[float] | None = 0,
    ) -> None:
        self.alpha = _both("ElasticTransform: alpha", alpha)
        self.sigma = _both("ElasticTransform: sigma", sigma)
        self.interpolation = _a.interpolation("ElasticTransform", interpolation, _WARPS)
        self.fill = None if fill is None else _a.fill("ElasticTransform", fill)

    def _operations(self) -> list[Operation]:
        return [
            (
                "ElasticTransform",
                {
                    "alpha": self.alpha,
                    "sigma": self.sigma,
                    "has_fill": self.fill is not None,
                    "fill": self.fill or (0.0, 0.0, 0.0),
                    "interpolation": _a.INTERPOLATIONS[self.interpolation],
                },
            )
        ]


_WARPS = ("nearest", "bilinear")


def _range(what: str, value: Any) -> tuple[float, float]:
    """Reads x for [-x, x], or (min, max)."""
    if not isinstance(value, (int, float)):
        return _a.pair(what, value)
    if value < 0 or not math.isfinite(value):
        raise ValueError(f"{what} as one number must not be negative, got {value!r}")
    return -float(value), float(value)


def _shear(shear: Any) -> tuple[float, float, float, float]:
    if isinstance(shear, (int, float)) or len(shear) == 2:
        return (*_range("RandomAffine: shear", shear), 0.0, 0.0)
    low_x, high_x, low_y, high_y = _a.numbers("RandomAffine: shear", shear)
    return low_x, high_x, low_y, high_y


def _both(what: str, value: Any) -> tuple[float, float]:
    """Reads one number for both directions, or two."""
    if isinstance(value, (int, float)):
        return float(value), float(value)
    values = _a.numbers(what, value)
    if len(values) not in (1, 2):
        raise ValueError(f"{what} must be one number or two, got {value!r}")
    return values[0], values[-1]
