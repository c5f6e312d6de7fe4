"""Runs compiled code eagerly during a recording.

Under a dispatch mode, PyTorch also falls back to eager execution. But it then marks the code as
impossible to compile for the rest of the process, so training would stay slow after the recording.
Switching the compiler off for the duration of the recording avoids that: code that is already
compiled is kept.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch


class Uncompiled:
    """Makes compiled code run eagerly between begin() and end()."""

    def __init__(self) -> None:
        self._stance: Any = None
        self._before: Callable[..., Any] | None = None
        self._wrapped: Callable[..., Any] | None = None

    def begin(self) -> None:
        # Importing the compiler takes seconds, so wait until the program itself uses it.
        if "torch._dynamo" in sys.modules:
            self._stand_aside()
        before = torch.compile

        @functools.wraps(before)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            result = before(*args, **kwargs)
            if self._wrapped is wrapped:
                self._stand_aside()
            return result

        self._before, self._wrapped = before, wrapped
        torch.compile = wrapped  # type: ignore[assignment]

    def end(self) -> None:
        if self._before is not None and torch.compile is self._wrapped:
            torch.compile = self._before  # type: ignore[assignment]
        self._before = self._wrapped = None
        stance, self._stance = self._stance, None
        # Leave the stance alone if the training has set another one since.
        if stance is not None and sys.modules["torch._dynamo.eval_frame"]._stance is stance.stance:
            stance.__exit__(None, None, None)

    def _stand_aside(self) -> None:
        if self._stance is None and hasattr(torch.compiler, "set_stance"):
            try:
                self._stance = torch.compiler.set_stance("force_eager")
            except RuntimeError:  # called from code that is being compiled
                pass
