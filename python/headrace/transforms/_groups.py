"""Transforms that apply others: in sequence, at random, one of them, in random order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._torchvision import translate as _translate
from . import _arguments as _a
from ._base import Operation, Transform, make


class Compose(Transform):
    """Applies several transforms in sequence.

    Args:
        transforms: transforms of this module, of torchvision, or lists of them.
    """

    def __init__(self, transforms: Sequence[Any]) -> None:
        self.transforms = _members("Compose", transforms)

    @property
    def _is_random(self) -> bool:  # type: ignore[override]
        return any(t._is_random for t in self.transforms)

    def _operations(self) -> list[Operation]:
        return [operation for t in self.transforms for operation in t._operations()]

    def __repr__(self) -> str:
        return "Compose([\n" + "".join(f"    {t!r},\n" for t in self.transforms) + "])"


class _Group(Transform):
    """A transform that applies others."""

    transforms: list[Transform]

    def __repr__(self) -> str:
        rest = "".join(f", {k}={v!r}" for k, v in self._arguments().items() if k != "transforms")
        inner = "".join(f"    {t!r},\n".replace("\n    ", "\n        ") for t in self.transforms)
        return f"{type(self).__name__}([\n{inner}]{rest})"


class RandomApply(_Group):
    """Applies all of several transforms, or with probability 1 - ``p`` none of them."""

    _is_random = True

    def __init__(self, transforms: Sequence[Any], p: float = 0.5) -> None:
        self.transforms = _members("RandomApply", transforms)
        self.p = _a.probability("RandomApply", p)

    def _operations(self) -> list[Operation]:
        return _group("RandomApply", self.transforms, p=self.p)


class RandomChoice(_Group):
    """Applies one of several transforms.

    Args:
        transforms: what to choose from; a Compose or a list counts as one.
        p: their weights; equal by default.
    """

    _is_random = True

    def __init__(self, transforms: Sequence[Any], p: Sequence[float] | None = None) -> None:
        self.transforms = [_one("RandomChoice", t) for t in _listed("RandomChoice", transforms)]
        weights = _a.numbers("RandomChoice: p", [1.0] * len(self.transforms) if p is None else p)
        if len(weights) != len(self.transforms):
            raise ValueError(
                f"RandomChoice: p has {len(weights)} weights for {len(self.transforms)} transforms"
            )
        if any(not 0 <= w < float("inf") for w in weights) or sum(weights) <= 0:
            raise ValueError(f"RandomChoice: p must be weights that are not negative, got {p!r}")
        self.p = tuple(w / sum(weights) for w in weights)

    def _operations(self) -> list[Operation]:
        choices = [
            operation
            for transform, weight in zip(self.transforms, self.p)
            for operation in _group("Sequence", [transform], weight=weight)
        ]
        return [("RandomChoice", {"count": len(self.transforms)}), *choices]


class RandomOrder(_Group):
    """Applies several transforms in random order."""

    _is_random = True

    def __init__(self, transforms: Sequence[Any]) -> None:
        self.transforms = [_one("RandomOrder", t) for t in _listed("RandomOrder", transforms)]

    def _operations(self) -> list[Operation]:
        members = [o for t in self.transforms for o in _group("Sequence", [t])]
        return [("RandomOrder", {"count": len(self.transforms)}), *members]


class Views(_Group):
    """Makes several views of each image, which is decoded once for all of them.

    A batch then has a list of image tensors, one for each view. The views draw different random
    parameters. What is the same for all of them may be said once::

        Compose([Views([T.RandomResizedCrop(224), T.RandomResizedCrop(96)] ), T.ToTensor()])

    Args:
        transforms: for each view a transform, or a list of them.
        repeats: how often each of them counts; once by default. DINO's two global and eight
            local crops: ``Views([global_crop, local_crop], repeats=[2, 8])``.
    """

    _is_random = True

    def __init__(self, transforms: Sequence[Any], repeats: Sequence[int] | None = None) -> None:
        self.transforms = [_one("Views", t) for t in _listed("Views", transforms)]
        wanted = [1] * len(self.transforms) if repeats is None else list(repeats)
        self.repeats = tuple(_a.integer("Views: repeats", n, 1, 32) for n in wanted)
        if not self.transforms or len(self.repeats) != len(self.transforms):
            raise ValueError(
                f"Views: {len(self.repeats)} repeats for {len(self.transforms)} transforms"
            )

    def _operations(self) -> list[Operation]:
        raise ValueError(
            "Views makes several images of one: it may stand in a Compose or list, not in another "
            "transform"
        )


def views_of(transforms: Sequence[Transform]) -> list[list[Transform]]:
    """Returns the transforms of each view: one list if there is no Views."""
    at = [i for i, t in enumerate(transforms) if isinstance(t, Views)]
    if not at:
        return [list(transforms)]
    if len(at) > 1:
        raise ValueError("Views comes twice: list all views in one")
    before, views, after = transforms[: at[0]], transforms[at[0]], transforms[at[0] + 1 :]
    if any(t._is_random for t in before):
        # Each view draws for itself, so a crop before Views would not be shared.
        raise ValueError(
            "a random transform before Views would act differently on each view: put it into Views"
        )
    assert isinstance(views, Views)
    each = [t for t, n in zip(views.transforms, views.repeats) for _ in range(n)]
    return [[*before, t, *after] for t in each]


def _listed(who: str, transforms: Any) -> list[Any]:
    if not isinstance(transforms, Sequence) or isinstance(transforms, str):
        kind = type(transforms).__name__
        raise TypeError(f"{who} takes a list of transforms, not {kind}")
    return list(transforms)


def _members(who: str, transforms: Any) -> list[Transform]:
    """Translates what is not of this module, and flattens each Compose."""
    members: list[Transform] = []
    for made in _translate(_listed(who, transforms), make):
        members += made.transforms if isinstance(made, Compose) else [made]
    return members


def _one(who: str, transform: Any) -> Transform:
    members = _members(who, transform if isinstance(transform, (list, tuple)) else [transform])
    return members[0] if len(members) == 1 else Compose(members)


def _group(name: str, transforms: Sequence[Transform], **arguments: float) -> list[Operation]:
    """Returns a group operation and its members, each of which is one operation or a group."""
    members: list[Operation] = []
    count = 0
    for transform in transforms:
        operations = transform._operations()
        members += operations
        count += _top_level(operations)
    return [(name, {"count": count, **arguments}), *members]


def _top_level(operations: Sequence[Operation]) -> int:
    """Returns how many of the operations belong to no group among them."""
    count, at = 0, 0

    def skip(at: int) -> int:
        members = operations[at][1].get("count", 0)
        at += 1
        for _ in range(members):
            at = skip(at)
        return at

    while at < len(operations):
        at = skip(at)
        count += 1
    return count
