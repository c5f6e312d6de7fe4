"""The timed part of a segment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .. import _core
from . import counters, load
from .channel import Channel
from .findings import HOST, Findings
from .sources import Source


class Timer:
    """Times a segment. Calls ``synchronize`` at both ends, but not in between. ``step_s``: the
    seconds of a step that overlaps with nothing."""

    def __init__(
        self,
        segment: dict[str, Any],
        source: Source,
        channel: Channel,
        findings: Findings,
        synchronize: Callable[[], None],
        step_s: float,
    ) -> None:
        self._segment, self._source, self._channel = segment, source, channel
        self._findings, self._synchronize, self._step_s = findings, synchronize, step_s
        self._asked: list[float] = []
        self._got: list[float] = []
        self._samples: list[int] = []
        self._left_out = 0.0
        # CPU seconds of this process: at ask(); in parts left out; in next().
        self._cpu = self._cpu_left_out = self._cpu_in_next = self._last_next_cpu = 0.0

    def begin(self) -> None:
        self._synchronize()
        if self._findings.begun_s is None:
            self._findings.begun_s = time.perf_counter()
        self._before = counters.read(self._source.pids())
        self._load = load.read()
        self._received = counters.received()
        self._start = time.perf_counter()

    def leave_out(self, seconds: float) -> None:
        """Excludes the last ``seconds``, which were not part of training."""
        self._left_out += seconds

    def ask(self) -> None:
        self._cpu = time.process_time()
        self._asked.append(time.perf_counter() - self._left_out)

    def got(self, samples: int) -> None:
        self._got.append(time.perf_counter() - self._left_out)
        self._last_next_cpu = time.process_time() - self._cpu
        self._cpu_in_next += self._last_next_cpu
        self._samples.append(samples)

    def drop_last(self) -> None:
        """Excludes the last batch and the time since, because the script left its loop after it and
        has come back now."""
        self._left_out += time.perf_counter() - self._left_out - self._asked.pop()
        self._cpu_left_out += time.process_time() - self._cpu
        self._cpu_in_next -= self._last_next_cpu
        self._got.pop()
        self._samples.pop()

    def end(self) -> dict[str, Any]:
        segment, source, findings = self._segment, self._source, self._findings
        self._synchronize()
        end = time.perf_counter() - self._left_out
        if source.wrapped:
            findings.note(
                "the loader's stream ends within a segment and is started again: the time for that "
                "counts as preparation"
            )
        used = counters.read(source.pids()).since(self._before)
        others = load.read().since(self._load)
        network_bytes = counters.received_since(self._received)
        if not self._asked:
            raise RuntimeError("too few batches between two times that the script leaves its loop")
        asked = [*self._asked, end]
        assert findings.begun_s is not None
        wait_s = [g - a for a, g in zip(self._asked, self._got)]
        batch_s = [b - a for a, b in zip(asked, asked[1:])]
        pauses = set_pauses_apart(wait_s, batch_s, self._step_s)
        run_s = self._channel.of_host(others.root, others.own_s)
        return {
            "phase": segment["phase"],
            "round": segment["round"],
            "set": segment["set"],
            "alone_rank": segment["rank"],
            "batches": len(self._asked),
            "samples": sum(self._samples),
            "begin_s": self._start - findings.begun_s,
            "elapsed_s": end - self._asked[0] - sum(pauses),
            "process_cpu_s": used.process_cpu_s - self._cpu_left_out,
            "worker_cpu_s": used.worker_cpu_s,
            "next_cpu_s": self._cpu_in_next,
            "read_bytes": used.read_bytes,
            "expected_bytes": None,
            **_core.stalls_judge({"phase": HOST, **others.evidence(run_s)}),
            "run_delay_s": others.delay_s,
            "throttled_s": others.throttled_s,
            "network_bytes": network_bytes,
            "pauses": len(pauses),
            "paused_s": sum(pauses),
            "wait_s": [round(s, 7) for s in wait_s],
            "batch_s": [round(s, 7) for s in batch_s],
        }


def set_pauses_apart(wait_s: list[float], batch_s: list[float], step_s: float) -> list[float]:
    """Takes out of ``batch_s`` what is no step but something that the script does now and then
    (evaluation, logging, a checkpoint); its seconds, each. ``step_s``: a step with its work on
    the device: a step that waits for those before it, which an accelerator still does, is no
    pause."""
    pauses = _core.stalls_pauses(wait_s, batch_s, step_s)
    batch_s[:] = [batch - pause for batch, pause in zip(batch_s, pauses)]
    return [pause for pause in pauses if pause]
