"""Passes the library's log messages to the logger "headrace".

The C library logs from its own threads. The extension queues the messages, and
the next Python thread that calls it passes them on here. The library's threads
therefore never wait for the interpreter.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("headrace")

# enum hr_log_level
_LEVELS = {1: logging.WARNING, 2: logging.INFO, 3: logging.DEBUG}


def emit(level: int, message: str) -> None:
    """Logs one message. The extension calls this for each queued message, with the GIL."""
    logger.log(_LEVELS.get(level, logging.WARNING), "%s", message)
