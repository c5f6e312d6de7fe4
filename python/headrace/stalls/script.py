"""The measured command, and its environment."""

from __future__ import annotations

import os

from .._launch.process import Command, environment_with

FOLDER = "HEADRACE_STALLS_DIR"


def prepare(words: list[str], run_folder: str, scratch: str | None) -> Command:
    """The command as the user gave it, with the probe in its environment."""
    environment = environment_with(FOLDER, run_folder)
    if scratch is not None:
        words = [absolute(word, first=at == 0) for at, word in enumerate(words)]
        if "-m" in words:  # looks for its module in the working directory
            environment["PYTHONPATH"] += os.pathsep + os.getcwd()
    return Command(words, scratch, environment)


def absolute(word: str, first: bool = False) -> str:
    """A word, or what follows its equals sign, that is the relative path of something that
    exists, as an absolute path. The first word is looked for on PATH unless it has a /."""
    if first:
        return os.path.abspath(word) if "/" in word and os.path.exists(word) else word
    name, equals, value = word.partition("=")
    if equals and name.startswith("-") and value and os.path.exists(value):
        return name + equals + os.path.abspath(value)
    if word and not word.startswith("-") and os.path.exists(word):
        return os.path.abspath(word)
    return word
