"""Queries the status of an agent.

This is not in headrace.agent, because that module runs as a command (``python -m``) and must not
be imported before.
"""

from __future__ import annotations

import json
import os
from typing import Any

from . import _core


def agent_status(socket: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Returns an agent's current state: streams, their ranks, subscribers, queues, cache, reads.

    Args:
        socket: the agent's socket; ``None``: HEADRACE_AGENT if set, else this user's default.

    Raises:
        OSError: FileNotFoundError or ConnectionRefusedError if no agent serves the socket.

    docs/agent.md lists the keys.
    """
    status: dict[str, Any] = json.loads(_core.agent_status(socket))
    return status
