"""Explains why no Python of a command loaded the hook, as far as its words show."""

from __future__ import annotations

import os
import re

_PYTHON = re.compile(r"python[0-9.]*$")


def why_no_python(words: list[str]) -> str:
    at = next((at for at, word in enumerate(words) if _is_python(word)), None)
    if at is not None:
        for word in words[at + 1 :]:
            if not word.startswith("-") or word in ("-", "-c", "-m"):
                break
            flags = [flag for flag in "ISE" if flag in word and not word.startswith("--")]
            if flags and not word.startswith(("-W", "-X")):
                return f"Python's option {word} keeps it out; leave out -{flags[0]} for this run"
    return (
        "it has to be started with the environment of this command, which an option -S, -E or -I "
        "in the script's first line, `env -i`, sudo or a container leaves out; start headrace "
        "where Python itself is started"
    )


def _is_python(word: str) -> bool:
    return _PYTHON.fullmatch(os.path.basename(word)) is not None
