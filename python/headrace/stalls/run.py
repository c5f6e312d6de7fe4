"""The measuring run of one rank: passes the batches of a measurement to the script's loop, and
writes the record at the end, however the run ends."""

from __future__ import annotations

import contextlib
import json
import os
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

from .._launch.folders import write_whole
from . import record
from .conclude import conclude
from .findings import DEVICE, Findings, Settings
from .folders import files_below
from .loader_state import LoaderState
from .measurement import Measurement
from .rank import EXIT_INTERNAL, Rank
from .sources import end_workers, source_of

EXIT_INTERRUPTED = 130


class Progress:
    """progress-RANK.json of the run's folder, for the launcher's bar."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fraction = 0.0

    def say(self, text: str, fraction: float | None) -> None:
        if fraction is not None:
            self._fraction = max(self._fraction, fraction)
        state = {"state": "measuring", "fraction": self._fraction, "text": text}
        with contextlib.suppress(OSError):  # the bar will not move
            write_whole(self._path, json.dumps(state))


class Run:
    """A measuring run.

    Args:
        iterator: the ProbedIterator of the measured loop.
        others: other loaders of the script.
        steps_done: returns the number of training steps, if another thread reads the loader.
    """

    def __init__(
        self,
        own: Rank,
        iterator: Any,
        device: Any,
        others: list[LoaderState],
        steps_done: Callable[[], int] | None,
    ) -> None:
        self.own, self.state = own, iterator.state
        self._iterator = weakref.ref(iterator)
        self._broken: BaseException | None = None  # raised by the loop's next()
        self._ranks = own.ranks()
        # Each host's launcher has drawn another name: use rank 0's.
        self._ranks["run"] = own.channel().share(self._ranks["run"])
        self._started = record.now()
        settings = own.settings
        self._findings = Findings(first_batch_s=self.state.first_batch_s)
        data = files_below(settings["data"]) if settings.get("data") else None
        source = source_of(iterator.loader, iterator.real, iterator.begin_of, data)
        if source.kind != "other":
            end_workers(iterator.real)
        replay = self.state.replay
        replay.freeze()
        rank = self._ranks["rank"]
        self._progress = Progress(os.path.join(own.folder, f"progress-{rank}.json"))
        steps = sorted(self.state.batch_s[1:] or self.state.batch_s or [0.0])
        self.measurement = Measurement(
            source,
            replay,
            device,
            own.channel(),
            Settings(
                batches=int(settings.get("batches") or 0),
                time_s=float(settings.get("time_s") or 150.0),
                precision=float(settings.get("precision") or 0.02),
                device_replay=bool(settings.get("device_replay", True)),
            ),
            self._findings,
            self._progress,
            step_s=steps[len(steps) // 2],
            steps_each=self.state.steps_each,
            batch_size=self.state.batch_size,
        )
        self.measurement.data = data
        self.measurement.steps_done = steps_done
        self.measurement.local_size = self._ranks["local_world_size"]
        self._batches = self.measurement.batches()
        if others:
            listed = ", ".join(f"{s.number} ({s.name}, {s.batches} batches)" for s in others)
            self._findings.note(
                f"the script has several loaders; measured: {self.state.number} "
                f"({self.state.name}); others: {listed}; --loader N chooses"
            )

    def next(self, iterator: Any) -> Any:
        """Returns the loop's next batch. Ends the process when the measurement is complete."""
        if self._broken is not None:
            self._caught(self._broken)
        if iterator is not self._iterator():
            # The script left the loop and started it again: the time between is not a step.
            self._iterator = weakref.ref(iterator)
            self.measurement.restart = True
        try:
            return next(self._batches)
        except StopIteration:
            pass
        except BaseException as error:
            if not self.measurement.failed and isinstance(error, Exception):
                self._failed(error)
            self._broken = error
            raise
        try:
            self._finish()
        except Exception as error:
            self._failed(error)
        self._batches = self.measurement.longer()
        return self.next(iterator)

    def _caught(self, error: BaseException) -> NoReturn:
        """Ends the run: the script continues although its loader raised or Ctrl-C was pressed, and
        there is no segment to continue with."""
        self.ended_early(type(error))
        if isinstance(error, KeyboardInterrupt):
            self.own.end(EXIT_INTERRUPTED)
        self.own.problem(
            "loader",
            f"the loader raised {type(error).__name__} ({error}), and the script continued: the "
            "measurement ends there",
            "find that sample and repair it, or leave it out",
        )
        self.own.end(EXIT_INTERNAL)

    def note_other(self, state: LoaderState) -> None:
        """Notes that another loader is read within the measured loop."""
        self._findings.note(
            f"loader {state.number} ({state.name}) was read within the measured loop: its time "
            "counts as compute"
        )

    def _finish(self) -> None:
        """Writes the record and ends the process. Returns if the measurements contradict each other
        and longer segments may help."""
        m = self.measurement
        document = conclude(m, self._ranks, self._started)
        if document is None:
            return
        document["files_written"] = []  # the launcher adds these
        self._write(document)
        m.channel.leave()
        self.own.end(0)

    def _record(self) -> dict[str, Any]:
        document = record.of(self.measurement, self._ranks, self._started)
        document["files_written"] = []  # the launcher adds these
        return document

    def _write(self, document: dict[str, Any]) -> None:
        path = os.path.join(self.own.folder, f"rank-{self._ranks['rank']}.json")
        record.write(path, document)

    def _failed(self, error: Exception) -> NoReturn:
        """Ends the run after an error of the measurement. Keeps what is measured so far."""
        if self._findings.segments:
            self._findings.ended = "script"
            self._write(self._record())
        self.own.give_up(error)

    def ended_early(self, crashed: type[BaseException] | None) -> None:
        """Called when the script ends within the run. Keeps what is measured so far."""
        interrupted = crashed is not None and issubclass(crashed, KeyboardInterrupt)
        failed = crashed is not None and not interrupted
        if crashed is not None and failed and self.measurement.phase == DEVICE:
            self.own.problem(
                "device-replay",
                f"the script failed ({crashed.__name__}) with a batch on the device",
                "",
            )
            return
        self._findings.ended = "interrupted" if interrupted else "script"
        if self._findings.segments:
            self._write(self._record())
        elif not failed:
            self.own.problem(
                "few-batches",
                "the script ended before a segment was measured",
                "run it for more batches or epochs",
            )
