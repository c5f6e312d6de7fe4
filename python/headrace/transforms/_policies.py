"""Transforms that choose among others: AutoAugment and its successors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _arguments as _a
from ._base import Operation, Transform

_INTERPOLATIONS = ("nearest", "bilinear")
_POLICIES = {"imagenet": 0, "cifar10": 1, "svhn": 2}  # enum hr_augment_policy


class _Policy(Transform):
    _is_random = True

    def __init__(self, interpolation: Any, fill: Any) -> None:
        who = type(self).__name__
        self.interpolation = _a.interpolation(who, interpolation, _INTERPOLATIONS)
        self.fill = None if fill is None else _a.fill(who, fill)

    def _operations(self) -> list[Operation]:
        arguments = self._arguments()
        arguments["interpolation"] = _a.INTERPOLATIONS[self.interpolation]
        arguments["has_fill"] = self.fill is not None
        arguments["fill"] = self.fill or (0.0, 0.0, 0.0)
        return [(type(self).__name__, arguments)]


class RandAugment(_Policy):
    """RandAugment (Cubuk et al., 2019): ``num_ops`` random operations of one magnitude.

    Args:
        num_ops: how many operations.
        magnitude: of each, from 0 to ``num_magnitude_bins`` - 1.
        num_magnitude_bins: the number of magnitudes.
        interpolation: "nearest" or "bilinear".
        fill: value of the pixels outside the image, one number or three; None: black.
    """

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Any = "nearest",
        fill: float | Sequence[float] | None = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.num_ops = _a.integer("RandAugment: num_ops", num_ops, 0, 16)
        self.num_magnitude_bins = _a.integer(
            "RandAugment: num_magnitude_bins", num_magnitude_bins, 2
        )
        self.magnitude = _a.integer(
            "RandAugment: magnitude", magnitude, 0, self.num_magnitude_bins - 1
        )


class TrivialAugmentWide(_Policy):
    """TrivialAugment (Mueller and Hutter, 2021): one operation of random magnitude.

    Args: as :class:`RandAugment`.
    """

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        interpolation: Any = "nearest",
        fill: float | Sequence[float] | None = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.num_magnitude_bins = _a.integer(
            "TrivialAugmentWide: num_magnitude_bins", num_magnitude_bins, 2
        )


class AutoAugment(_Policy):
    """AutoAugment (Cubuk et al., 2018): one of a learned set of pairs of operations.

    Args:
        policy: "imagenet", "cifar10", "svhn", or torchvision's AutoAugmentPolicy.
        interpolation, fill: as :class:`RandAugment`.
    """

    def __init__(
        self,
        policy: Any = "imagenet",
        interpolation: Any = "nearest",
        fill: float | Sequence[float] | None = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.policy = getattr(policy, "value", policy)
        if self.policy not in _POLICIES:
            raise ValueError(
                f"AutoAugment: policy must be one of {', '.join(_POLICIES)}, got {policy!r}"
            )

    def _operations(self) -> list[Operation]:
        ((name, arguments),) = super()._operations()
        return [(name, {**arguments, "policy": _POLICIES[self.policy]})]


class AugMix(_Policy):
    """AugMix (Hendrycks et al., 2019): mixes the image with chains of operations.

    Args:
        severity: the strength, 1 to 10.
        mixture_width: how many chains.
        chain_depth: operations in a chain; -1: 1 to 3 at random.
        alpha: of the distributions of the weights.
        all_ops: also brightness, contrast, colour and sharpness.
        interpolation, fill: as :class:`RandAugment`.
    """

    def __init__(
        self,
        severity: int = 3,
        mixture_width: int = 3,
        chain_depth: int = -1,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: Any = "bilinear",
        fill: float | Sequence[float] | None = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.severity = _a.integer("AugMix: severity", severity, 1, 10)
        self.mixture_width = _a.integer("AugMix: mixture_width", mixture_width, 1, 16)
        self.chain_depth = _a.integer("AugMix: chain_depth", chain_depth, -1, 16)
        self.alpha = _a.within("AugMix: alpha", alpha, 1e-6)
        self.all_ops = bool(all_ops)
        if self.chain_depth == 0:
            raise ValueError("AugMix: chain_depth must be -1 or at least 1, got 0")
