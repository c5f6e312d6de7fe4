"""State of one loader of a measured script."""

from __future__ import annotations

import time
import weakref
from typing import Any


class LoaderState:
    """State of one loader of the script, or of equal loaders that it makes anew for each epoch."""

    def __init__(self, number: int, name: str, key: tuple[Any, ...], where: str) -> None:
        self.number, self.name, self.key = number, name, key
        self.where = where  # the script's line that iterates it
        self.thread = 0  # the thread that requested its newest batch
        self.newest: weakref.ref[Any] | None = None  # its ProbedIterator
        self.outside: set[type] = set()  # classes whose iterators iterate another loader
        self.watched = False  # it was passed to headrace.watch
        self.not_kept = ""  # why its batches cannot be replayed
        self.trained = False  # the script trained between two of its batches
        self.batches = 0
        self.first_batch_s: float | None = None
        self.first_ns = 0
        self.steps: list[float] = []  # seconds of the newest steps
        self.batch_s: list[float] = []  # seconds from one next() to the following
        self.optimizer_steps = 0  # between its batches
        self.steps_before = 0
        self.steps_each = 1  # batches for one step of the optimizer
        self.stepped_at = 0  # the batch of its last step
        self.backwards = 0
        self.backwards_before = 0
        self.replay: Any = None
        self.batch_size: int | None = None

    @property
    def is_outside(self) -> bool:
        """Whether all its batches come from another loader."""
        newest = self.newest() if self.newest is not None else None
        return not self.batches and newest is not None and newest.demoted

    def count(self, optimizer_steps: int, backwards: int) -> None:
        """Counts the optimizer steps and backward passes since the last batch."""
        if not self.trained and (optimizer_steps or backwards):
            # Batches before the first training step (to compute means, say) are no warm-up.
            self.trained, self.batches, self.first_ns = True, 1, time.perf_counter_ns()
            self.steps, self.batch_s = [], []
            self.replay, self.not_kept = None, ""
        elif len(self.steps) > 64:
            del self.steps[:32], self.batch_s[:32]
        self.backwards += backwards
        if optimizer_steps:
            self.optimizer_steps += optimizer_steps
            self.steps_each = max(1, self.batches - self.stepped_at)
            self.stepped_at = self.batches

    def note_steps(self, optimizer_steps: int, backwards: int) -> None:
        """Notes the process' totals, from which later steps are counted."""
        self.steps_before, self.backwards_before = optimizer_steps, backwards

    def described(self) -> str:
        where = f", read at {self.where}" if self.where else ""
        steps = self.optimizer_steps or self.backwards
        kind = "optimizer steps" if self.optimizer_steps else "backward passes"
        between = f"{steps} {kind}" if steps else "no optimizer step and no backward pass"
        return (
            f"loader {self.number} ({self.name}{where}): {self.batches} batches, {between} "
            "between them"
        )

    def goes_on(self) -> bool:
        """Whether its newest iterator is still in use."""
        newest = self.newest() if self.newest is not None else None
        return newest is not None and not newest.done
