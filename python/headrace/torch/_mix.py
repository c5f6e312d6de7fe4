"""MixUp and CutMix: what the C library mixes, and the labels of mixed batches."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

from .. import _core

_KINDS = ("MixUp", "CutMix")
_WAY = (
    "give torchvision's v2.MixUp or v2.CutMix, v2.RandomChoice of the two, or v2.RandomApply of one"
)


@dataclass
class Mix:
    """How batches are mixed.

    Attributes:
        classes: the length of the probabilities that replace a label.
        options: the C library's options.
    """

    classes: int
    options: dict[str, float]

    @classmethod
    def of(cls, mix: Any, dataset: Any) -> Mix:
        """Reads torchvision's transforms of batches, recognised by the names of their classes."""
        share = 1.0
        if _kind(mix) == "RandomApply" and len(mix.transforms) == 1:
            share, mix = float(mix.p), mix.transforms[0]
        chosen = [mix]
        weights = [1.0]
        if _kind(mix) == "RandomChoice":
            chosen = list(mix.transforms)
            weights = list(mix.p or [1.0] * len(chosen))  # v1 has None
        kinds = [_kind(one) for one in chosen]
        if not kinds or set(kinds) - set(_KINDS) or len(set(kinds)) != len(kinds):
            raise TypeError(f"mix={mix!r} is not supported: {_WAY}")
        options = {"mix_share": share}
        for one, kind in zip(chosen, kinds):
            options[f"{kind.lower()}_alpha"] = float(one.alpha)
        if len(kinds) == 2:
            options["cutmix_share"] = weights[kinds.index("CutMix")] / sum(weights)
        return cls(_classes(chosen, dataset), options)

    def labels(self, batch: _core.Batch, labels: torch.Tensor) -> torch.Tensor:
        """Returns probabilities of shape (samples, classes), float32, as torchvision computes
        them."""
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
            raise ValueError(
                f"a batch has labels from {int(labels.min())} to {int(labels.max())}, and mix has "
                f"num_classes={self.classes}: it must be larger than every label"
            )
        own = batch.mix
        hot = torch.nn.functional.one_hot(labels, self.classes).float()
        return hot if own == 1 else hot.roll(1, 0).mul_(1.0 - own).add_(hot.mul(own))


def _kind(mix: Any) -> str:
    module = type(mix).__module__.partition(".")[0]
    return type(mix).__name__ if module == "torchvision" else ""


def mixes(function: Any) -> str:
    """Returns the class of torchvision's that a collate_fn is, or refers to, and that `mix` may be;
    "" if there is none."""
    refers: list[Any] = [function]
    while isinstance(refers[-1], functools.partial):
        inner = refers[-1]
        refers += [*inner.args, *inner.keywords.values(), inner.func]
    inner = refers[-1]
    code = getattr(inner, "__code__", None)
    if code is not None:
        refers += [cell.cell_contents for cell in inner.__closure__ or () if _is_set(cell)]
        refers += [inner.__globals__[name] for name in code.co_names if name in inner.__globals__]
        refers += inner.__defaults__ or ()
    elif _kind(inner) == "":  # an object of the user's own
        refers += vars(inner).values() if hasattr(inner, "__dict__") else ()
    for one in refers:
        is_group = _kind(one) in ("RandomChoice", "RandomApply")
        kinds = {_kind(part) for part in (one.transforms if is_group else [one])}
        if kinds and kinds <= set(_KINDS):
            return " and ".join(sorted(kinds))
    return ""


def _is_set(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _classes(chosen: list[Any], dataset: Any) -> int:
    named = {one.num_classes for one in chosen} - {None}
    if len(named) > 1:
        raise ValueError(f"mix has transforms with different num_classes: {sorted(named)}")
    if named:
        return int(named.pop())
    classes = getattr(dataset, "classes", None)
    if not classes:
        raise ValueError("mix needs num_classes, because the dataset has no list of classes")
    return len(classes)
