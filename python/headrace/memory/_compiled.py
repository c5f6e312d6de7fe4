"""Runs compiled code eagerly while a recording goes on.

PyTorch does so under any dispatch mode by itself, but then takes the code for one that cannot
be compiled, for good: training would stay slow after the recording. Instead the compiler is
switched off while a recording goes on, and keeps what it had compiled.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch


class Uncompiled:
    """Between begin() and end() compiled code runs eagerly."""

    def __init__(self) -> None:
        self._stance: Any = None
        self._before: Callable[..., Any] | None = None
        self._wrapped: Callable[..., Any] | None = None

    def begin(self) -> None:
        # Loading the compiler takes seconds: only once the program has used it.
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
        # The training may have taken another one since: that is its own.
        if stance is not None and sys.modules["torch._dynamo.eval_frame"]._stance is stance.stance:
            stance.__exit__(None, None, None)

    def _stand_aside(self) -> None:
        if self._stance is None and hasattr(torch.compiler, "set_stance"):
            try:
                self._stance = torch.compiler.set_stance("force_eager")
            except RuntimeError:  # within what is being compiled
                pass
