"""Builds the command to measure and its environment."""

from __future__ import annotations

from .._launch.process import Command, environment_with
from .guard import Guard

FOLDER = "HEADRACE_STALLS_DIR"


def prepare(words: list[str], run_folder: str, guard: Guard | None) -> Command:
    """Returns the user's command, with an environment that loads the probe and the guard."""
    environment = environment_with(FOLDER, run_folder)
    if guard is not None:
        guard.add_to(environment)
    return Command(words, None, environment)
