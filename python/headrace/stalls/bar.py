"""How far a measuring run is, on standard error: a bar on a terminal, otherwise a line now and
then. The script writes to the same terminal, so the bar's cursor stays at the line's begin:
what the script prints takes the bar's place, and the bar comes again below."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from typing import Any

WIDTH = 30
EVERY_S = 10.0


class Bar:
    """Of the run whose probes write into ``folder``."""

    def __init__(self, folder: str, quiet: bool) -> None:
        self._folder = folder
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._drawn = False
        self._said = ""
        self._next_s = time.monotonic() + EVERY_S

    def update(self) -> None:
        """Draws, or says, what the progress files tell now."""
        if self._quiet:
            return
        fraction, text = progress_of(self._folder)
        if self._terminal:
            self._draw(fraction, text)
        elif time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + EVERY_S
            line = f"{fraction:4.0%}  {text}"
            if line != self._said:
                self._said = line
                print(f"headrace stalls: {line}", file=sys.stderr, flush=True)

    def _draw(self, fraction: float, text: str) -> None:
        full = int(fraction * WIDTH)
        line = f"stalls [{'#' * full}{'-' * (WIDTH - full)}] {fraction:4.0%}  {text}"
        line = line[: max(20, shutil.get_terminal_size().columns - 1)]
        if line != self._said or not self._drawn:
            sys.stderr.write(f"\r{line}\033[K\r")
            sys.stderr.flush()
        self._said, self._drawn = line, True

    def clear(self) -> None:
        """Removes the bar."""
        if self._drawn:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
        self._drawn = False


def progress_of(folder: str) -> tuple[float, str]:
    """How far the run is, which one rank knows for all, and what the first one does."""
    found = [one for name in _names(folder) if (one := _read(os.path.join(folder, name)))]
    if not found:
        return 0.0, "until the training loop begins"
    fractions = [float(one.get("fraction") or 0.0) for one in found]
    text = str(found[0].get("text") or found[0].get("state") or "")
    return min(1.0, max(0.0, *fractions)), " ".join(text.split())


def _names(folder: str) -> list[str]:
    """Progress files by rank."""
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
