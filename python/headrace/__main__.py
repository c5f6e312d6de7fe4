"""The command ``headrace`` of an installed package, also run by ``python -m headrace``.

Replaces this process by the program ``headrace`` that lies beside the extension. The program
looks for a Python to run scripts with; if it finds none, it uses the one that runs this module.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from . import _core

_FAILED = 3


def main() -> int:
    """Replaces this process by the program; returns an exit status only on failure."""
    path = Path(_core.__file__).with_name("headrace-command")
    if sys.executable:
        os.environ.setdefault("HEADRACE_OWN_PYTHON", sys.executable)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, the program must not
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(path, ["headrace", *sys.argv[1:]])
    except OSError as error:
        print(
            f"headrace: {path}, the command, cannot be started: {error.strerror}. Install the "
            "package again",
            file=sys.stderr,
        )
    return _FAILED


if __name__ == "__main__":
    sys.exit(main())
