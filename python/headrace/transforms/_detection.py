"""Transforms that detectors are trained with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from . import _arguments as _a
from ._base import Operation, Transform

# of struct hr_operation's min_size and sampler_options
_MAX_SIZES = 16
_MAX_OPTIONS = 11


class RandomZoomOut(Transform):
    """Places the image somewhere on a larger canvas with probability ``p``.

    The size of the result depends on the image: a crop, a ``LetterBox`` or a ``Resize`` to (height,
    width) must follow.

    Args:
        fill: value of the canvas, one number or three, in the pixels' range at this step.
        side_range: (min, max) of the canvas's size relative to the image's, at least 1.
        p: the probability.
    """

    _is_random = True

    def __init__(
        self,
        fill: float | Sequence[float] | None = 0,
        side_range: Sequence[float] = (1.0, 4.0),
        p: float = 0.5,
    ) -> None:
        self.fill = _a.fill("RandomZoomOut", fill)
        self.side_range = _a.pair("RandomZoomOut: side_range", side_range)
        self.p = _a.probability("RandomZoomOut", p)
        if not 1 <= self.side_range[0] <= self.side_range[1]:
            raise ValueError(
                f"RandomZoomOut: side_range must be (min, max) of at least 1, got {side_range!r}"
            )

    def _operations(self) -> list[Operation]:
        given = {"fill": self.fill, "side_range": self.side_range, "p": self.p}
        return [("RandomZoomOut", given)]


class RandomShortestSize(Transform):
    """Resizes the shorter side to a size drawn from a list, with the longer one in proportion.

    The size of the result depends on the image: a crop, a ``LetterBox`` or a ``Resize`` to (height,
    width) must follow.

    Args:
        min_size: the sizes of the shorter side, or one.
        max_size: limit of the longer side.
        interpolation, antialias: as for :class:`RandomResizedCrop`.
    """

    _is_random = True

    def __init__(
        self,
        min_size: int | Sequence[int],
        max_size: int | None = None,
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        who = "RandomShortestSize"
        sizes = min_size if isinstance(min_size, Iterable) else [min_size]
        self.min_size = [_a.integer(f"{who}: min_size", size, 1) for size in sizes]
        self.max_size = None if max_size is None else _a.integer(f"{who}: max_size", max_size, 1)
        self.interpolation = _a.interpolation(who, interpolation)
        self.antialias = antialias is None or bool(antialias)
        if not 1 <= len(self.min_size) <= _MAX_SIZES:
            raise ValueError(
                f"{who}: min_size must be 1 to {_MAX_SIZES} sizes, got {len(self.min_size)}"
            )

    def _operations(self) -> list[Operation]:
        return [
            (
                "RandomShortestSize",
                {
                    "min_size": [*self.min_size, *[0] * (_MAX_SIZES - len(self.min_size))],
                    "max_size": self.max_size or 0,
                    "interpolation": _a.INTERPOLATIONS[self.interpolation],
                    "antialias": self.antialias,
                },
            )
        ]


class LetterBox(Transform):
    """Resizes the image so that it fits into a fixed size with its shape kept, and fills the rest,
    as YOLO's detectors do. torchvision has no such transform.

    Args:
        size: (height, width) in pixels, or one number for both.
        fill: value of the rest, one number or three, in the pixels' range at this step: 114 suits
            images before a ToDtype.
        enlarge: whether smaller images become larger.
        interpolation, antialias: as for :class:`RandomResizedCrop`.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        fill: float | Sequence[float] | None = 114,
        enlarge: bool = True,
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.size = _a.size("LetterBox", size)
        self.fill = _a.fill("LetterBox", fill)
        self.enlarge = bool(enlarge)
        self.interpolation = _a.interpolation("LetterBox", interpolation)
        self.antialias = antialias is None or bool(antialias)

    def _operations(self) -> list[Operation]:
        return [
            (
                "LetterBox",
                {
                    "height": self.size[0],
                    "width": self.size[1],
                    "fill": self.fill,
                    "enlarge": self.enlarge,
                    "interpolation": _a.INTERPOLATIONS[self.interpolation],
                    "antialias": self.antialias,
                },
            )
        ]


class RandomIoUCrop(Transform):
    """Crops a part that holds the centre of a box and overlaps one enough, as SSD does.

    Draws from the boxes as they stand after the transforms before it. Boxes whose centre is outside
    become 0, 0, 0, 0: put :class:`SanitizeBoundingBoxes` after it. The size of the result depends
    on the image and its boxes. The dataset must have boxes.

    Args:
        min_scale, max_scale: range of the part's sides relative to the image's.
        min_aspect_ratio, max_aspect_ratio: range of width / height.
        sampler_options: least overlaps (IoU), of which one is drawn; 1 or more: no crop.
        trials: crops that are drawn before another overlap is drawn.
    """

    _is_random = True

    def __init__(
        self,
        min_scale: float = 0.3,
        max_scale: float = 1.0,
        min_aspect_ratio: float = 0.5,
        max_aspect_ratio: float = 2.0,
        sampler_options: Sequence[float] | None = None,
        trials: int = 40,
    ) -> None:
        who = "RandomIoUCrop"
        if sampler_options is None:
            sampler_options = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
        self.min_scale = _a.within(f"{who}: min_scale", min_scale, 0, 1)
        self.max_scale = _a.within(f"{who}: max_scale", max_scale, self.min_scale, 1)
        self.min_aspect_ratio = _a.within(f"{who}: min_aspect_ratio", min_aspect_ratio, 0)
        self.max_aspect_ratio = _a.within(
            f"{who}: max_aspect_ratio", max_aspect_ratio, self.min_aspect_ratio
        )
        self.sampler_options = list(_a.numbers(f"{who}: sampler_options", sampler_options))
        self.trials = _a.integer(f"{who}: trials", trials, 1, 10000)
        if not 1 <= len(self.sampler_options) <= _MAX_OPTIONS:
            raise ValueError(
                f"{who}: sampler_options must be 1 to {_MAX_OPTIONS} numbers, "
                f"got {len(self.sampler_options)}"
            )

    def _operations(self) -> list[Operation]:
        count = len(self.sampler_options)
        return [
            (
                "RandomIoUCrop",
                {
                    "min_scale": self.min_scale,
                    "max_scale": self.max_scale,
                    "min_aspect_ratio": self.min_aspect_ratio,
                    "max_aspect_ratio": self.max_aspect_ratio,
                    "sampler_options": [*self.sampler_options, *[0.0] * (_MAX_OPTIONS - count)],
                    "option_count": count,
                    "trials": self.trials,
                },
            )
        ]


class ClampBoundingBoxes(Transform):
    """Clamps boxes to the image. Crops and padding do so, too.

    Args:
        clamping_mode: ``None`` for nothing; all of torchvision's modes are the same for boxes that
            are not rotated.
    """

    def __init__(self, clamping_mode: str | None = "auto") -> None:
        if clamping_mode not in ("auto", "soft", "hard", None):
            raise ValueError(
                "ClampBoundingBoxes: clamping_mode must be 'auto', 'soft', 'hard' or None, "
                f"got {clamping_mode!r}"
            )
        self.clamping_mode = clamping_mode

    def _operations(self) -> list[Operation]:
        return [] if self.clamping_mode is None else [("ClampBoundingBoxes", {})]


class SanitizeBoundingBoxes(Transform):
    """Drops the rows (box, label and all else) of boxes that are too small or partly outside the
    image. The dataset must have boxes.

    Args:
        min_size: the least width and height in pixels.
        min_area: the least area in pixels.
    """

    def __init__(self, min_size: float = 1.0, min_area: float = 1.0) -> None:
        self.min_size = _a.within("SanitizeBoundingBoxes: min_size", min_size, 1)
        self.min_area = _a.within("SanitizeBoundingBoxes: min_area", min_area, 1)

    def _operations(self) -> list[Operation]:
        given = {"min_size": self.min_size, "min_area": self.min_area}
        return [("SanitizeBoundingBoxes", given)]
