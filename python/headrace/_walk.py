"""The state of a translation of transforms; see _torchvision.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# Creates a transform of headrace.transforms from its class name and arguments.
Make = Callable[..., Any]


@dataclass
class Walk:
    """The state of the image at the current transform, and the translation so far."""

    make: Make
    tensor: bool = False
    floats: bool = False  # a ToDtype came
    steps: list[Any] = field(default_factory=list)  # translated transforms
    problems: list[str] = field(default_factory=list)

    def add(self, theirs: Any, name: str, **arguments: Any) -> None:
        """Adds a step, or a problem if our class refuses the arguments."""
        try:
            self.steps.append(self.make(name, **arguments))
        except (TypeError, ValueError) as error:
            self.refuse(theirs, str(error).removeprefix(f"{name}: "))

    def resizing(self, interpolation: Any) -> Any:
        """Returns the interpolation of a resize: Pillow has one way to find the nearest pixel, and
        torch has two others."""
        name = getattr(interpolation, "value", interpolation)
        is_nearest = name == 0 or isinstance(name, str) and name.startswith("nearest")
        return "nearest-pillow" if is_nearest and not self.tensor else interpolation

    def refuse(self, transform: Any, why: str) -> None:
        self.problems.append(f"{class_name(transform)}: {why}")


def before_tensors(what: str, handle: Callable[[Walk, Any], None]) -> Callable[[Walk, Any], None]:
    """Returns a handler that refuses its transform behind the conversion to tensors, because it
    takes ``what``."""

    def handle_before(walk: Walk, t: Any) -> None:
        if walk.tensor:
            walk.refuse(t, f"takes {what}: put it before the conversion to tensors")
        else:
            handle(walk, t)

    return handle_before


def class_name(value: Any) -> str:
    named = value if hasattr(value, "__qualname__") else type(value)  # a function or a class
    return f"{named.__module__}.{named.__qualname__}"
