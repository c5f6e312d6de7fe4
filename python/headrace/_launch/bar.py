"""Progress of a watched run on standard error: a bar on a terminal, otherwise a line now and then.

The script writes to the same terminal, so the cursor stays at the beginning of the bar's line:
what the script prints overwrites the bar, which is drawn again below."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable

WIDTH = 30
EVERY_S = 10.0


class Bar:
    """The bar of the command ``verb``. ``progress`` returns the part done, from 0 to 1 (None:
    unknown), and a text."""

    def __init__(
        self, verb: str, progress: Callable[[], tuple[float | None, str]], quiet: bool
    ) -> None:
        self._verb, self._progress, self._quiet = verb, progress, quiet
        self._terminal = sys.stderr.isatty()
        self._drawn = False
        self._said = ""
        self._next_s = time.monotonic() + EVERY_S

    def update(self) -> None:
        """Draws or prints the current progress."""
        if self._quiet:
            return
        fraction, text = self._progress()
        if self._terminal:
            self._draw(fraction, text)
        elif time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + EVERY_S
            line = text if fraction is None else f"{fraction:4.0%}  {text}"
            if line != self._said:
                self._said = line
                print(f"headrace {self._verb}: {line}", file=sys.stderr, flush=True)

    def _draw(self, fraction: float | None, text: str) -> None:
        line = f"{self._verb}  {text}"
        if fraction is not None:
            full = int(fraction * WIDTH)
            line = f"{self._verb} [{'#' * full}{'-' * (WIDTH - full)}] {fraction:4.0%}  {text}"
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
