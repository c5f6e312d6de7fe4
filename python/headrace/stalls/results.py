"""Writes the result's files, replacing those of an earlier run."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from typing import Any

from .. import _core
from .._launch.folders import write_whole

LEAST_COLUMNS, MOST_COLUMNS = 60, 120


def write(out: str, records: dict[int, str]) -> tuple[Any, list[OSError]]:
    """Analyses the records (texts by rank) and writes the records and the result into ``out``.

    Returns the result and the errors of files that could not be written: the result is reported
    even if the disk is full. Raises ValueError if the records do not suffice; they are written
    nevertheless.
    """
    unwritten: list[OSError] = []

    def attempt(write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            unwritten.append(error)

    attempt(lambda: _write_records(os.path.join(out, "records"), records))
    result = _core.Stalls.analyse(list(records.values()))
    attempt(lambda: result.write(os.path.join(out, "stalls.json")))
    attempt(lambda: result.write_page(os.path.join(out, "report.html")))
    attempt(lambda: result.write_trace(os.path.join(out, "trace.json")))
    return result, unwritten


def _write_records(folder: str, records: dict[int, str]) -> None:
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        if re.fullmatch(r"rank-\d+\.json", name):
            os.remove(os.path.join(folder, name))
    for rank, text in records.items():
        _write(os.path.join(folder, f"rank-{rank}.json"), text)


def _write(path: str, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise OSError(error.errno, f"{path} could not be written: {error.strerror}") from error


def print_text(result: Any) -> None:
    """Prints the result, as wide as the terminal within limits."""
    columns = shutil.get_terminal_size((80, 24)).columns
    sys.stdout.flush()
    result.write_text("-", min(MOST_COLUMNS, max(LEAST_COLUMNS, columns)))


def print_json(result: Any) -> None:
    sys.stdout.flush()
    result.write("-")
