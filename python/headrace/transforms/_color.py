"""Transforms that change colours, blur, add noise or erase."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import _arguments as _a
from ._base import Operation, Transform


class RandomGrayscale(Transform):
    """Sets all three channels to the luma with probability ``p``."""

    _is_random = True

    def __init__(self, p: float = 0.1) -> None:
        self.p = _a.probability("RandomGrayscale", p)

    def _operations(self) -> list[Operation]:
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
        self.brightness = _a.jitter("brightness", brightness, 1.0, (0.0, math.inf))
        self.contrast = _a.jitter("contrast", contrast, 1.0, (0.0, math.inf))
        self.saturation = _a.jitter("saturation", saturation, 1.0, (0.0, math.inf))
        self.hue = _a.jitter("hue", hue, 0.0, (-0.5, 0.5))

    def _operations(self) -> list[Operation]:
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


class RandomPhotometricDistort(Transform):
    """SSD's colour distortion: brightness, contrast before or after saturation and hue, and a
    permutation of the channels, each with probability ``p``.

    Args:
        brightness, contrast, saturation: (min, max) of the factors.
        hue: (min, max) of the shift, within [-0.5, 0.5].
        p: the probability of each.
    """

    _is_random = True

    def __init__(
        self,
        brightness: Sequence[float] = (0.875, 1.125),
        contrast: Sequence[float] = (0.5, 1.5),
        saturation: Sequence[float] = (0.5, 1.5),
        hue: Sequence[float] = (-0.05, 0.05),
        p: float = 0.5,
    ) -> None:
        self.brightness = _a.pair("RandomPhotometricDistort: brightness", brightness)
        self.contrast = _a.pair("RandomPhotometricDistort: contrast", contrast)
        self.saturation = _a.pair("RandomPhotometricDistort: saturation", saturation)
        self.hue = _a.pair("RandomPhotometricDistort: hue", hue)
        self.p = _a.probability("RandomPhotometricDistort", p)

    def _operations(self) -> list[Operation]:
        return [("RandomPhotometricDistort", self._arguments())]


class RandomChannelPermutation(Transform):
    """Puts the three channels into a random order."""

    _is_random = True

    def _operations(self) -> list[Operation]:
        return [("RandomChannelPermutation", {})]


class _Adjust(Transform):
    """A transform that acts with probability ``p``."""

    _is_random = True

    def __init__(self, p: float = 0.5) -> None:
        self.p = _a.probability(type(self).__name__, p)

    def _operations(self) -> list[Operation]:
        return [(type(self).__name__, {"p": self.p})]


class RandomInvert(_Adjust):
    """Inverts the colours with probability ``p``."""


class RandomAutocontrast(_Adjust):
    """Stretches each channel to 0..255 with probability ``p``."""


class RandomEqualize(_Adjust):
    """Equalises each channel's histogram with probability ``p``."""


class RandomPosterize(_Adjust):
    """Keeps the highest ``bits`` of each value with probability ``p``."""

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        self.bits = _a.integer("RandomPosterize: bits", bits, 0, 8)

    def _operations(self) -> list[Operation]:
        return [("RandomPosterize", {"bits": self.bits, "p": self.p})]


class RandomSolarize(_Adjust):
    """Inverts values of at least ``threshold`` (0 to 255) with probability ``p``."""

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.threshold = _a.within("RandomSolarize: threshold", threshold, 0, 256)

    def _operations(self) -> list[Operation]:
        return [("RandomSolarize", {"threshold": self.threshold, "p": self.p})]


class RandomAdjustSharpness(_Adjust):
    """Changes the sharpness with probability ``p``: factor 0 smooths, 1 changes nothing."""

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.sharpness_factor = _a.within(
            "RandomAdjustSharpness: sharpness_factor", sharpness_factor, 0
        )

    def _operations(self) -> list[Operation]:
        return [("RandomAdjustSharpness", {"sharpness": self.sharpness_factor, "p": self.p})]


class GaussianBlur(Transform):
    """Blurs with a Gaussian of random width.

    Args:
        kernel_size: odd: one number or (x, y), as torchvision has it.
        sigma: one number, or (min, max), uniform, in pixels.
    """

    def __init__(
        self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)
    ) -> None:
        x, y = _a.size("GaussianBlur", kernel_size)
        if x % 2 == 0 or y % 2 == 0:
            raise ValueError(f"GaussianBlur: kernel_size must be odd, got {kernel_size!r}")
        self.kernel_size = (x, y)
        both = (sigma, sigma) if isinstance(sigma, (int, float)) else sigma
        self.sigma = _a.pair("GaussianBlur: sigma", both)
        if not 0 < self.sigma[0] <= self.sigma[1] < math.inf:
            raise ValueError(f"GaussianBlur: sigma must be (min, max) above 0, got {sigma!r}")
        self._is_random = self.sigma[0] != self.sigma[1]

    def _operations(self) -> list[Operation]:
        # The library takes height before width.
        return [("GaussianBlur", {"kernel_size": self.kernel_size[::-1], "sigma": self.sigma})]


class GaussianNoise(Transform):
    """Adds normally distributed noise.

    Args:
        mean, sigma: of the noise, where the largest value of a pixel is 1.
        clip: limit the result to the range of pixels.
    """

    _is_random = True

    def __init__(self, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> None:
        self.mean = _a.within("GaussianNoise: mean", mean, -math.inf)
        self.sigma = _a.within("GaussianNoise: sigma", sigma, 0)
        self.clip = bool(clip)

    def _operations(self) -> list[Operation]:
        return [("GaussianNoise", self._arguments())]


_NOISE = {"color": 1, "random": 2}  # enum hr_erasing_value


class RandomErasing(Transform):
    """Overwrites a random rectangle with probability ``p``.

    Args:
        p: the probability.
        scale: (min, max) of the rectangle's area relative to the image's.
        ratio: (min, max) of its height / width; log-uniform.
        value: one number or three, in the pixels' range at this step; "random": a normally
            distributed number for each element; "color": one for each channel (timm's "rand").
        inplace: has no effect.
        count: (min, max) of rectangles, which share the area (timm's).
    """

    _is_random = True

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | Sequence[float] | str = 0.0,
        inplace: bool = False,
        *,
        count: Sequence[int] = (1, 1),
    ) -> None:
        self.p = _a.probability("RandomErasing", p)
        self.scale = _a.pair("RandomErasing: scale", scale)
        self.ratio = _a.pair("RandomErasing: ratio", ratio)
        self.value = (
            value if isinstance(value, str) and value in _NOISE else _a.channels("RandomErasing: value", value)
        )
        low, high = (_a.integer("RandomErasing: count", c, 1, 16) for c in count)
        self.count = (low, high)
        if low > high:
            raise ValueError(f"RandomErasing: count must be (min, max), got {count!r}")
        if not 0 <= self.scale[0] <= self.scale[1] <= 1:
            raise ValueError(f"RandomErasing: scale must be (min, max) in 0..1, got {scale!r}")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(f"RandomErasing: ratio must be (min, max) above 0, got {ratio!r}")

    def _operations(self) -> list[Operation]:
        mode = _NOISE.get(self.value, 0) if isinstance(self.value, str) else 0
        return [
            (
                "RandomErasing",
                {
                    "p": self.p,
                    "scale": self.scale,
                    "ratio": self.ratio,
                    "mode": mode,
                    "value": (0.0, 0.0, 0.0) if mode else self.value,
                    "min_count": self.count[0],
                    "max_count": self.count[1],
                },
            )
        ]
