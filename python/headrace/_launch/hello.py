"""Reports of a watched run's Python processes to its launcher: ``hello-PID`` in the run's folder.

The file has one JSON object per line and event. This module is loaded by its path at the start of
every Python of the run, before the package, so it imports only what Python has imported itself.
"""

from __future__ import annotations

import os
from typing import Any

PREFIX = "hello-"


def report(folder: str, what: str, text: str) -> None:
    """Adds a line: ``hello`` with "launcher" or "script", ``attached``, ``failed``, ``forked``."""
    import json

    path = os.path.join(folder, f"{PREFIX}{os.getpid()}")
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({what: text}) + "\n")
    except OSError:  # the run is over and its folder gone
        pass


def read(folder: str) -> list[dict[str, Any]]:
    """The lines of all processes, each with its ``pid``."""
    import json

    found = []
    for name in sorted(os.listdir(folder)):
        if name.startswith(PREFIX):
            pid = name.removeprefix(PREFIX)
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                for line in file:
                    try:
                        found.append({"pid": pid, **json.loads(line)})
                    except ValueError:  # the process was killed while it wrote, or the disk full
                        continue
    return found
