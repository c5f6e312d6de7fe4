"""Starts a recording when a script has imported torch.

Every Python process of a recorded run loads this file by its path at startup, so the file imports
only modules that Python itself has already imported (:mod:`headrace._launch.imports`).

It reports to the launcher through :mod:`headrace._launch.hello`; :mod:`headrace.memory.watched`
reports what is recorded.
"""

from __future__ import annotations

import os

from headrace._launch.recording import record_torch

VARIABLE = "HEADRACE_MEMORY_DIR"


def install() -> None:
    """Watches for the import of torch in this process. Called once."""
    record_torch(os.environ[VARIABLE], "headrace.memory.watched", "headrace memory")
