"""timm's policies, which work as on Pillow's images.

They are made from timm's own objects: give the dataset or the loader timm's transform.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _arguments as _a
from ._base import Operation, Transform

_CHOICES = {"plain": 0, "increasing": 1, "3a": 2, "3aw": 3, "weights": 4}  # enum hr_timm_choices
_POLICIES = {"v0": 0, "v0r": 1, "original": 2, "originalr": 3, "3a": 4}  # enum hr_timm_policy
_INTERPOLATIONS = ("bilinear", "bicubic", "random")


class _Timm(Transform):
    """A policy of timm's.

    Args:
        magnitude_std: standard deviation of the magnitudes; infinity: they are uniform from 0.
        magnitude_max: the highest magnitude.
        translate: largest shift / size of the image, at magnitude 10.
        interpolation: "bilinear", "bicubic" or "random", which draws one of them.
        fill: value of the pixels outside the image, one number or three: whole numbers of 0..255.
    """

    _is_random = True

    def __init__(
        self,
        magnitude_std: float,
        magnitude_max: float,
        translate: float,
        interpolation: str,
        fill: float | Sequence[float],
    ) -> None:
        who = type(self).__name__
        if interpolation not in _INTERPOLATIONS:
            raise ValueError(
                f"{who}: interpolation must be one of {', '.join(_INTERPOLATIONS)}, got "
                f"{interpolation!r}"
            )
        self.interpolation = interpolation
        self.magnitude_std = float(magnitude_std)
        self.magnitude_max = float(magnitude_max)
        self.translate = float(translate)
        self.fill = _a.fill(who, fill)

    def _operations(self) -> list[Operation]:
        arguments = self._arguments()
        arguments["any_interpolation"] = self.interpolation == "random"
        arguments["interpolation"] = _a.INTERPOLATIONS.get(self.interpolation, 1)
        arguments["uniform"] = self.magnitude_std == float("inf")
        if arguments["uniform"]:
            arguments["magnitude_std"] = 0.0
        return [(type(self).__name__, arguments)]


class TimmRandAugment(_Timm):
    """timm's RandAugment: ``num_ops`` operations, each applied with probability ``p``.

    Args:
        choices: what to choose from, as timm's configurations name it: "plain", "increasing"
            (inc1), "3a", "3aw" or "weights".
        num_ops: how many operations.
        p: the probability of each.
        magnitude: of each, from 0 to ``magnitude_max``.

    The others are as in :class:`_Timm`.
    """

    def __init__(
        self,
        choices: str = "plain",
        num_ops: int = 2,
        p: float = 0.5,
        magnitude: float = 10,
        magnitude_std: float = 0,
        magnitude_max: float = 10,
        translate: float = 0.45,
        interpolation: str = "bicubic",
        fill: float | Sequence[float] = 128,
    ) -> None:
        super().__init__(magnitude_std, magnitude_max, translate, interpolation, fill)
        if choices not in _CHOICES:
            raise ValueError(f"TimmRandAugment: choices must be one of {', '.join(_CHOICES)}")
        self.choices = choices
        self.num_ops = _a.integer("TimmRandAugment: num_ops", num_ops, 0, 32)
        self.p = _a.probability("TimmRandAugment", p)
        self.magnitude = float(magnitude)

    def _operations(self) -> list[Operation]:
        ((name, arguments),) = super()._operations()
        return [(name, {**arguments, "choices": _CHOICES[self.choices]})]


class TimmAutoAugment(_Timm):
    """timm's AutoAugment: one of a learned set of pairs of operations.

    Args:
        policy: "v0", "v0r", "original", "originalr" or "3a".

    The others are as in :class:`_Timm`.
    """

    def __init__(
        self,
        policy: str = "v0",
        magnitude_std: float = 0,
        magnitude_max: float = 10,
        translate: float = 0.45,
        interpolation: str = "bicubic",
        fill: float | Sequence[float] = 128,
    ) -> None:
        super().__init__(magnitude_std, magnitude_max, translate, interpolation, fill)
        if policy not in _POLICIES:
            raise ValueError(f"TimmAutoAugment: policy must be one of {', '.join(_POLICIES)}")
        self.policy = policy

    def _operations(self) -> list[Operation]:
        ((name, arguments),) = super()._operations()
        return [(name, {**arguments, "policy": _POLICIES[self.policy]})]


class TimmAugMix(_Timm):
    """timm's AugMix: mixes the image with chains of operations.

    Args:
        magnitude: of the operations.
        width: how many chains.
        depth: operations in a chain; -1: 1 to 3 at random.
        alpha: of the distributions of the weights.
        blended: blends the chains into the image one by one.

    The others are as in :class:`_Timm`.
    """

    def __init__(
        self,
        magnitude: float = 3,
        width: int = 3,
        depth: int = -1,
        alpha: float = 1.0,
        blended: bool = False,
        magnitude_std: float = float("inf"),
        magnitude_max: float = 10,
        translate: float = 0.45,
        interpolation: str = "bicubic",
        fill: float | Sequence[float] = 128,
    ) -> None:
        super().__init__(magnitude_std, magnitude_max, translate, interpolation, fill)
        self.magnitude = float(magnitude)
        self.width = _a.integer("TimmAugMix: width", width, 1, 15)
        self.depth = _a.integer("TimmAugMix: depth", depth, -1, 30)
        self.alpha = _a.within("TimmAugMix: alpha", alpha, 1e-3)
        self.blended = bool(blended)
