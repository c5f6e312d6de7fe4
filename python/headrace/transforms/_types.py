"""Transforms that change the type or the scale of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _arguments as _a
from ._base import Operation, Transform


class ToDtype(Transform):
    """Converts the element type.

    Args:
        dtype: uint8, float16, bfloat16 or float32: a torch or NumPy dtype, or its
            name.
        scale: ``True`` maps 0..255 to 0..1 when converting uint8 to a float type.
    """

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        self.dtype = _a.dtype_name(dtype, "ToDtype")
        self.scale = bool(scale)

    def _operations(self) -> list[Operation]:
        return [("ToDtype", {"dtype": _a.DTYPES[self.dtype], "scale": self.scale})]


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
        self.mean = _a.channels("Normalize: mean", mean)
        self.std = _a.channels("Normalize: std", std)
        if any(s == 0 for s in self.std):
            raise ValueError("Normalize: std must not be 0")

    def _operations(self) -> list[Operation]:
        return [("Normalize", {"mean": self.mean, "std": self.std})]


class _Nothing(Transform):
    def _operations(self) -> list[Operation]:
        return []


class ToImage(_Nothing):
    """Has no effect: images are tensors here from the start."""


class PILToTensor(_Nothing):
    """Has no effect: images are tensors here from the start."""


class ToTensor(Transform):
    """Same as ``ToDtype("float32", scale=True)``, as in torchvision's v1."""

    def _operations(self) -> list[Operation]:
        return [("ToDtype", {"dtype": _a.DTYPES["float32"], "scale": True})]


class Identity(_Nothing):
    """Has no effect."""
