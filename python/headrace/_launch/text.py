"""What launchers print: paths, and the width of reports."""

from __future__ import annotations

import os

USUAL_COLUMNS, LEAST_COLUMNS, MOST_COLUMNS = 80, 60, 120


def short(path: str) -> str:
    """Returns the path relative to the current folder if it lies inside it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def columns() -> int:
    """Returns the width of the report, by the same rules as the headrace command."""
    try:
        width = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(1).columns
    except (OSError, ValueError):
        width = USUAL_COLUMNS
    return min(max(width, LEAST_COLUMNS), MOST_COLUMNS)
