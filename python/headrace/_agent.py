"""The status of an agent.

Not in headrace.agent, which is run as a command and must not be imported before that.
"""

from __future__ import annotations

import json
import os
from typing import Any

from . import _core


def agent_status(socket: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """What an agent does just now: streams, their ranks, subscribers, queues, cache, reads.

    Args:
        socket: the agent's; ``None``: HEADRACE_AGENT, else this user's own.

    Raises:
        OSError: FileNotFoundError or ConnectionRefusedError where no agent serves it.

    docs/agent.md lists the keys.
    """
    status: dict[str, Any] = json.loads(_core.agent_status(socket))
    return status
