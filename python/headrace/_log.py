"""The library's messages, as records of the logger "headrace".

The C library logs from its own threads. The extension queues the lines, and
whichever Python thread calls it next passes them on here, so that no thread of
the library ever waits for the interpreter.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("headrace")

# enum hr_log_level
_LEVELS = {1: logging.WARNING, 2: logging.INFO, 3: logging.DEBUG}


def emit(level: int, message: str) -> None:
    """Called by the extension, with the GIL, for one queued line."""
    logger.log(_LEVELS.get(level, logging.WARNING), "%s", message)
