"""A working directory with a script, for tests of the launchers."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

from headrace import _core

class Place:
    """``common`` begins each script."""

    common = ""

    def __init__(self, folder: Path) -> None:
        self.work, self.temporary = folder / "work", folder / "tmp"
        self.work.mkdir(parents=True)
        self.temporary.mkdir()
        package = str(Path(_core.__file__).parents[1])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "TMPDIR": str(self.temporary),
        }

    def script(self, text: str, name: str = "train.py", common: str | None = None) -> None:
        common = self.common if common is None else common
        (self.work / name).write_text(common + textwrap.dedent(text))
