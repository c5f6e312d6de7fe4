"""Chooses the folder for the results."""

from __future__ import annotations

import json
import os
import tempfile

PREFIX = "headrace-stalls-"  # of the folder through which launcher and probe communicate
MOST_NUMBERS = 1000


def is_ours(path: str) -> bool:
    """Whether a folder is empty or holds results of an earlier run (only records if these did not
    suffice for a result)."""
    try:
        names = os.listdir(path)
        if "stalls.json" not in names:
            return not set(names) - {"records"}
        with open(os.path.join(path, "stalls.json"), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and "headrace_stalls" in found


def choose_out(wanted: str) -> str:
    """Creates and returns the folder ``wanted``, with a number appended if that path is in use for
    something else. Raises OSError if it cannot be written."""
    for number in range(1, MOST_NUMBERS):
        path = wanted if number == 1 else f"{wanted}-{number}"
        try:
            os.makedirs(path)
            return path
        except FileExistsError:
            if os.path.isdir(path) and is_ours(path):
                with tempfile.TemporaryFile(dir=path):  # checks that the folder is writable
                    return path
    raise FileExistsError(f"{wanted} and {MOST_NUMBERS - 2} numbered ones are in use")


def leave_no_empty(path: str) -> None:
    """Removes the results' folder if it is empty."""
    try:
        os.rmdir(path)
    except OSError:
        pass


def files_below(folder: str) -> list[str]:
    """Lists all regular files below a folder."""
    found = []
    for root, _, names in os.walk(folder):
        found += [os.path.join(root, name) for name in names]
    return [path for path in found if os.path.isfile(path)]
