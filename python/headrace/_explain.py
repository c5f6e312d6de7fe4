"""What a loader runs natively, and what in Python."""

from __future__ import annotations

from typing import Any


def explain(loader: Any) -> str:
    """Returns what of a ``headrace.torch.DataLoader``'s work runs in native threads and what in
    Python, and why; where Python makes samples, after the first batch also what a sample costs.

    The first sentence is what ``DataLoader(..., verbose=1)`` prints.
    """
    say = getattr(loader, "explain", None)
    if say is None:
        raise TypeError(f"explain takes a headrace.torch.DataLoader, got {loader!r}")
    text: str = say()
    return text
