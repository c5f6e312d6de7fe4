"""The base of all transforms."""

from __future__ import annotations

from typing import Any

Operation = tuple[str, dict[str, Any]]


# The transforms of this package, by name.
_CLASSES: dict[str, type[Transform]] = {}


class Transform:
    """Base of all transforms, which compare, print and pickle by their arguments."""

    def __init_subclass__(cls) -> None:
        if cls.__module__.startswith(f"{__package__}."):
            _CLASSES[cls.__name__] = cls

    _is_random = False  # whether two results for one image may differ
    _is_of_sounds = False

    def _operations(self) -> list[Operation]:
        """Returns the C library's operations for this transform."""
        raise NotImplementedError

    def _arguments(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if not k.startswith("_")}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._arguments() == other._arguments()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        arguments = ", ".join(f"{k}={v!r}" for k, v in self._arguments().items())
        return f"{type(self).__name__}({arguments})"

    def __call__(self, *inputs: Any) -> Any:
        raise TypeError(
            f"{type(self).__name__} is not called on images: give it to headrace.ImageFolder, "
            "headrace.torch.DataLoader or headrace.Preparer as transform="
        )


def make(name: str, **arguments: Any) -> Transform:
    """Makes a transform of this package by the name of its class."""
    return _CLASSES[name](**arguments)
