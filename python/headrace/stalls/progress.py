"""Reads the progress of a measuring run from the probes' progress files."""

from __future__ import annotations

import json
import os
from typing import Any


def progress_of(folder: str) -> tuple[float, str]:
    """Returns the fraction that is done (one rank knows it for all), and the first rank's status."""
    found = [one for name in _names(folder) if (one := _read(os.path.join(folder, name)))]
    if not found:
        return 0.0, "waiting until the training loop begins"
    fractions = [float(one.get("fraction") or 0.0) for one in found]
    text = str(found[0].get("text") or found[0].get("state") or "")
    return min(1.0, max(0.0, *fractions)), " ".join(text.split())


def _names(folder: str) -> list[str]:
    """Lists the progress files, sorted by rank."""
    found = []
    for name in os.listdir(folder):
        rank = name.removeprefix("progress-").removesuffix(".json")
        if name == f"progress-{rank}.json" and rank.isdigit():
            found.append((int(rank), name))
    return [name for _, name in sorted(found)]


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
