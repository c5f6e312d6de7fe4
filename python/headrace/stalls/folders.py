"""The folder that takes the results."""

from __future__ import annotations

import json
import os
import tempfile

PREFIX = "headrace-stalls-"  # of the folder in which launcher and probe talk
MOST_NUMBERS = 1000


def is_ours(path: str) -> bool:
    """Whether a folder holds results of an earlier run, or nothing. Where these did not
    suffice, there are only records."""
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
    """``wanted``, or with a number where that is something else's; made. OSError where it
    cannot be written."""
    for number in range(1, MOST_NUMBERS):
        path = wanted if number == 1 else f"{wanted}-{number}"
        try:
            os.makedirs(path)
            return path
        except FileExistsError:
            if os.path.isdir(path) and is_ours(path):
                with tempfile.TemporaryFile(dir=path):  # can it be written?
                    return path
    raise FileExistsError(f"{wanted} and {MOST_NUMBERS - 2} numbered ones are in use")


def leave_no_empty(path: str) -> None:
    """Removes a folder for results that got none."""
    try:
        os.rmdir(path)
    except OSError:
        pass


def files_below(folder: str) -> list[str]:
    """All regular files in a folder."""
    found = []
    for root, _, names in os.walk(folder):
        found += [os.path.join(root, name) for name in names]
    return [path for path in found if os.path.isfile(path)]
