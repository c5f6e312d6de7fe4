"""Predicts from traces of PyTorch's profiler what an optimisation would bring ("Daydream", ATC'20).

    replay = headrace.replay.Replay("trace.json.gz")
    print(replay.text())                       # tries what applies, and ranks it
    scenario = replay.scenario()
    scenario.apply("gpu x2")
    gemms = scenario.select(name="gemm", kinds=["kernel"])
    scenario.scale(gemms, 0.5)
    print(scenario.predict()["iteration_s"])

docs/replay.md says how, and how far to trust it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, cast

from .. import _core

__all__ = ["KINDS", "PHASES", "Replay", "Scenario"]

_Path = str | os.PathLike[str]

#: Kinds of tasks. On the CPU: an operator's own time, a call of CUDA or HIP, time outside both, the
#: end of a blocking call. On a device: a kernel, a copy, a memory set, a kernel that communicates.
KINDS = ("operator", "call", "untraced", "return", "kernel", "copy", "set", "collective", "inserted")
PHASES = ("other", "data", "forward", "backward", "optimizer")


def _bits(words: Sequence[str] | None, known: tuple[str, ...], what: str) -> int:
    bits = 0
    for word in words or ():
        if word not in known:
            raise ValueError(f"{what} {word!r}: there are {', '.join(known)}")
        bits |= 1 << known.index(word)
    return bits


class Replay:
    """Traces, one of each rank of a run (or a folder of them), and their graph.

    Args:
        paths: one path or several; files may be gzipped.
        window: replay the annotations whose names contain this; None: the profiler's steps, or
            else the whole trace.
        instance: which of these, from 0; None: from the first to the last.
        limit: scenarios are refused if the replay without a change, with the recorded or with
            the usual latencies, differs by more from the trace.

    Raises OSError, and ValueError for what is no trace or has nothing to replay.
    """

    def __init__(
        self,
        paths: _Path | Sequence[_Path],
        *,
        window: str | None = None,
        instance: int | None = None,
        limit: float = 0.05,
    ) -> None:
        all_paths = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        self._core = _core.Replay(all_paths, window, -1 if instance is None else instance, limit)

    @property
    def summary(self) -> dict[str, Any]:
        """Counts, and how well the graph explains the trace: ``recorded_s`` and ``replayed_s`` of an
        iteration, ``error``, ``start_median`` and ``start_max`` of the replay without a change,
        ``usual_error``, ``unexplained``, ``trusted``, ``checked`` (0: the errors are 0 by
        construction)."""
        return self._core.summary()

    def report(self, *what_ifs: str) -> dict[str, Any]:
        """The report that ``headrace replay --json`` prints. The what-ifs are made one upon the
        other; without any, those that apply are tried and ranked."""
        return cast("dict[str, Any]", json.loads(self._core.report(list(what_ifs), -1)))

    def text(self, *what_ifs: str, columns: int = 80) -> str:
        """The same as text."""
        return self._core.report(list(what_ifs), max(columns, 0))

    def write_page(self, path: _Path, *what_ifs: str) -> None:
        """Writes the same as one HTML page that needs no network."""
        self._core.write_page(list(what_ifs), os.fspath(path))

    def scenario(self) -> Scenario:
        """A copy of the graph to change. Raises NotImplementedError if the replay without a change
        differs by more than the limit from the trace."""
        return Scenario(self)


class Scenario:
    """A copy of a replay's graph. Tasks are numbers. One thread at a time."""

    def __init__(self, replay: Replay) -> None:
        self._core = _core.Scenario(replay._core)

    def select(
        self,
        *,
        name: str | None = None,
        within: str | None = None,
        kinds: Sequence[str] | None = None,
        phases: Sequence[str] | None = None,
        stream: int | None = None,
        rank: int | None = None,
    ) -> list[int]:
        """Finds the tasks for which all of these hold.

        Args:
            name: an extended regular expression found in the task's own name.
            within: the same, in the name of an operator, annotation or module around the task,
                around its launch, or around the forward operator of a backward one.
            kinds, phases: of :data:`KINDS` and :data:`PHASES`; None: any.
            stream: of a device.
            rank: of a run of several.
        """
        return self._core.select(
            name,
            within,
            _bits(kinds, KINDS, "kind"),
            _bits(phases, PHASES, "phase"),
            -1 if stream is None else stream,
            -1 if rank is None else rank,
        )

    def task(self, task: int) -> dict[str, Any]:
        """``name``, ``kind``, ``phase``, ``rank``, ``lane`` (its thread, stream or channel),
        ``begin_ns`` as recorded, ``length_ns``; ``bytes``: that a copy or collective moves, of an
        operator the bytes of its first input if shapes were recorded; -1: unknown."""
        found = self._core.task(task)
        return {**found, "kind": KINDS[found["kind"]], "phase": PHASES[found["phase"]]}

    def scale(self, tasks: Sequence[int], factor: float) -> None:
        """Multiplies the lengths of tasks."""
        self._core.scale(tasks, factor)

    def remove(self, tasks: Sequence[int]) -> None:
        """Removes tasks, and what removed calls launched. What waited for them waits for what they
        waited for."""
        self._core.remove(tasks)

    def insert(
        self,
        length_ns: int,
        *,
        after: Sequence[int],
        before: Sequence[int] = (),
        channel: str | None = None,
        priority: int = 0,
    ) -> int:
        """Inserts a task that waits for those of ``after``, and for which those of ``before`` wait.
        It runs on a channel, one task at a time, those with the highest priority first; None: on
        the thread or stream of ``after[0]``, right after it. Returns the new task."""
        return self._core.insert(length_ns, after, before, channel, priority)

    def reschedule(self, lane: int, tasks: Sequence[int], priorities: Sequence[int]) -> None:
        """Replaces the recorded order of a lane: its tasks run one at a time, by priority."""
        self._core.reschedule(lane, tasks, priorities)

    def apply(self, what_if: str) -> None:
        """Applies a what-if of ``headrace replay`` by its name, as "gpu x2". Raises ValueError if
        there is none, or if the trace has nothing that it would change."""
        self._core.apply(what_if)

    def predict(self) -> dict[str, Any]:
        """Replays the scenario: ``iteration_s``, ``recorded_s``, and the shares of the critical
        path by kind of task (``critical_path``; ``latency`` is between tasks)."""
        found = self._core.predict()
        path = dict(zip(KINDS, found.pop("kind")))
        path["latency"] = found.pop("latency")
        return {**found, "critical_path": path}

    def write_trace(self, path: _Path) -> None:
        """Writes the predicted run as a trace that Perfetto (ui.perfetto.dev) opens."""
        self._core.write_trace(path)
