"""The command ``headrace`` of an installed package: ``python -m headrace`` is the same.

Becomes the program that lies beside the extension. It looks for the Python of the scripts that it
measures by itself; this one is what it takes where it finds none.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from . import _core

_FAILED = 3


def main() -> int:
    """Runs the program in place of this process; its exit status is the program's."""
    path = Path(_core.__file__).with_name("headrace-command")
    if sys.executable:
        os.environ.setdefault("HEADRACE_OWN_PYTHON", sys.executable)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
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
