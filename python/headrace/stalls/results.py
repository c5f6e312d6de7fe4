"""The files of a result, in a folder that may hold those of an earlier one."""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import Any

from .. import _core

LEAST_COLUMNS, MOST_COLUMNS = 60, 120


def write(out: str, records: dict[int, str]) -> Any:
    """Analyses the records and writes everything into ``out``; the records first, so that
    they are there even where they do not suffice. Returns the result. ValueError or OSError
    with what is missing."""
    folder = os.path.join(out, "records")
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        if re.fullmatch(r"rank-\d+\.json", name):
            os.remove(os.path.join(folder, name))
    for rank, text in records.items():
        _write(os.path.join(folder, f"rank-{rank}.json"), text)
    result = _core.Stalls.analyse(list(records.values()))
    result.write(os.path.join(out, "stalls.json"))
    result.write_page(os.path.join(out, "report.html"))
    result.write_trace(os.path.join(out, "trace.json"))
    return result


def _write(path: str, text: str) -> None:
    partial = f"{path}~"
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(partial, path)


def print_text(result: Any) -> None:
    """As wide as the terminal, within limits."""
    columns = shutil.get_terminal_size((80, 24)).columns
    sys.stdout.flush()
    result.write_text("-", min(MOST_COLUMNS, max(LEAST_COLUMNS, columns)))


def print_json(result: Any) -> None:
    sys.stdout.flush()
    result.write("-")
