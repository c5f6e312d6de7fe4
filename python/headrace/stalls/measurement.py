"""Measures one rank, segment by segment.

The measurement is a generator that yields the batches for the script's loop, so the time between
two of them is a training step. Segments follow the schedule of the C library (VLDB'21, section 3,
differential measurement). Everything that is not training (dropping files, waiting for workers,
synchronising with other ranks) happens between the timed parts of segments.
"""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from .. import _core
from . import counters, work
from .channel import Channel
from .findings import ALONE, COLD, DEVICE, HOST, WARM, Findings, Inconclusive, Settings
from .replay import NotReplayable, Replay, samples_in
from .sources import HELD_SHARE, MOST_AHEAD, IndexSet, Other, Source
from .timer import Timer

SHARE_OF_TIME = 0.8  # share of the time limit for the rounds; the rest is for later measurements
LONGEST_FILL_S = 30.0
TRIES = 2  # how often a segment of real batches is tried if the script leaves its loop
LEAST_ROUNDS = 4  # rounds that the schedule always runs
PERHAPS_NETWORK = "the samples perhaps come over the network"


class Measurement:
    """The measurement of one rank. ``replay`` is frozen; ``device`` holds the parameters."""

    def __init__(
        self,
        source: Source,
        replay: Replay,
        device: Any,
        channel: Channel,
        settings: Settings,
        findings: Findings,
        progress: Any,
        step_s: float,
        steps_each: int,
        batch_size: int | None = None,
    ) -> None:
        self.source, self.replay, self.device = source, replay, device
        self.channel, self.settings, self.findings = channel, settings, findings
        self.progress = progress
        self.data: list[str] | None = None
        self.batch_size = batch_size or samples_in(replay.give(0, False))
        source.batch_size = self.batch_size
        self.local_size = 1  # ranks of this host
        self.batch_size_given = batch_size is not None  # by the script, else seen from batches
        self._step_s, self._steps_each = step_s, steps_each
        self._given = 0  # number of the next replayed batch
        self._sets: dict[int, IndexSet] = {}
        self.phase = ""  # of the current segment
        self.restart = False  # the script left the loop and came back
        self._tries = 0  # of the current segment
        self.failed = False  # the script's loader raised
        self._size = 0  # batches of an index set
        self._preread = False  # all files of a whole dataset are in memory
        self._hold: _core.StorageHold | None = None  # the files of a warm segment
        self._unheld = ""  # why not all files could be held
        self._cold_bytes = 0  # the most that a cold segment read
        self._plan: dict[str, int] = {}  # batches of a segment, by phase
        self._usable: list[str] = []  # phases that all ranks can measure
        # Returns the number of training steps, if another thread of the script reads the loader.
        self.steps_done: Callable[[], int] | None = None
        self._queued = 0  # batches that this thread reads ahead
        self._is_longer = False  # segments were made longer
        self.single_step_s = 0.0  # seconds of a step that overlaps with nothing

    def samples_in(self, batch: Any) -> int:
        return self.batch_size if self.batch_size_given else samples_in(batch)

    # -- devices --

    def synchronize(self) -> None:
        if self.device is not None and self.device.type != "cpu":
            import torch

            torch.accelerator.synchronize(self.device)

    def _phases(self) -> list[str]:
        """Lists the phases that this rank can measure, and the reasons why it cannot others."""
        found = [HOST]
        reasons = self.findings.phases
        on_cpu = self.device is None or self.device.type == "cpu"
        if on_cpu:
            reasons[DEVICE] = "training runs on the CPU: there is no copy to a device"
        elif self.replay.on_device:
            found = [DEVICE]
            reasons[HOST] = "batches come from the loader already on the device"
        elif not self.settings.device_replay:
            reasons[DEVICE] = (
                "the script failed with batches that were already on the device: the copy is not "
                "separated from the step"
            )
        else:
            try:
                self.replay.to_device(self.device)
                found.append(DEVICE)
            except Exception as error:  # from torch, or from a batch's own .to()
                text = str(error) if isinstance(error, NotReplayable) else repr(error)
                reasons[DEVICE] = f"{text}; the copy is not separated from the step"
        found.append(WARM)
        reason = self._why_not_cold()
        if reason:
            reasons[COLD] = reason
        else:
            found.append(COLD)
        return found

    def _why_not_cold(self) -> str:
        """Tries to drop the first set's files. Returns why that is not possible; "" if it is."""
        chosen = self._set(0)
        learned = self.source.learned
        if self.source.store():
            self.findings.filesystem = self.source.store()
            return ""
        self.findings.network = learned.network
        if learned.nothing:
            self.findings.reads_files = False
            return "the samples read no files: there is nothing to fetch"
        if learned.network:
            return (
                "the samples come over the network: no memory of this machine holds them that could "
                "be dropped, and waiting for them counts as preparation"
            )
        if learned.network_bytes:
            return (
                f"{PERHAPS_NETWORK}: they read no files, and this machine received "
                f"{learned.network_bytes / 1e6:.2g} MB while {learned.samples} were loaded, though "
                "no connection of the loader's processes was seen to; measure again while nothing "
                "else uses the network"
            )
        megabytes = f"{learned.unknown_bytes / max(1, learned.samples) / 1e6:.2g} MB"
        if learned.unknown_bytes and chosen.files:
            self.findings.note(
                f"a sample reads {megabytes} that no known file explains (opened underneath Python, "
                "as OpenCV and torchvision.io do): where its files lie in memory, cold segments are "
                "faster than storage; name their folder with --data"
            )
        if not chosen.files:
            what = "which files the loader reads is not known"
            if learned.unknown_bytes:
                what += (
                    f", though a sample reads {megabytes} (opened underneath Python, as OpenCV and "
                    "torchvision.io do)"
                )
            return f"{what}: name their folder with --data, and they can be dropped from memory"
        if chosen.repeats:
            return (
                f"an epoch has fewer than the {self._size} batches of a segment: the same files "
                "would be read twice"
            )
        self.findings.files = chosen.files
        self.progress.say("dropping the files from memory", None)
        state = self.drop(chosen.files)
        self.findings.filesystem = state["filesystem"]
        evidence = {"read_bytes": counters.bytes_read("self"), "expected_bytes": 0}
        reason = _core.stalls_judge({"phase": COLD, **state, **evidence})["reason"]
        if reason:
            return reason
        if state["network"]:
            self.findings.note(
                f"the files lie on {state['filesystem']}: they are fetched over the network, where "
                "the server's memory cannot be dropped, and the kernel counts no such reads"
            )
        return ""

    def drop(self, files: list[str]) -> dict[str, Any]:
        """Drops files from memory, even if this process and its workers have mapped them."""
        self.source.release(files)
        return dict(_core.storage_drop(files))

    # -- index sets --

    def _set(self, number: int) -> IndexSet:
        chosen = self._sets.get(number)
        if chosen is None:
            try:
                chosen = self.source.plan(self._size)
            except Exception:  # from the script's sampler or dataset
                self.failed = True
                raise
            self._sets[number] = chosen
            for old in [n for n in self._sets if n < number - 2]:
                del self._sets[old]
        return chosen

    def new_set(self) -> IndexSet:
        """Returns an index set that no segment has used."""
        return self._set(max(self._sets, default=-1) + 1)

    # -- the run --

    def batches(self) -> Iterator[Any]:
        """Yields the batches that the script's loop gets from now on."""
        # A full garbage collection is slow and rare: run it now, not within a segment.
        gc.collect()
        gc.freeze()
        yield from self._calibrate()
        if isinstance(self.source, Other):
            self.source.learn_ahead(self._step_s)
        self._plan = self._lengths()
        self._begin_with(self._plan)
        work.record(True)
        phases = self._phases()
        everybody = self.channel.gather(phases)
        self._usable = [phase for phase in phases if all(phase in other for other in everybody)]
        if self.channel.rank == 0:
            self._warn_if_too_short()
        yield from self._rounds()

    def _begin_with(self, plan: dict[str, int]) -> None:
        self._size = plan["settle"] + plan["batches"] + self.source.ahead

    def can_be_longer(self) -> bool:
        """Whether all segments can be repeated with twice the batches, which is done once."""
        epoch, asked = self.source.epoch(), self.settings.batches
        fits = epoch is None or self._size + self._plan["batches"] <= epoch
        return not self._is_longer and not asked and fits and self.channel.size == 1

    def longer(self) -> Iterator[Any]:
        """Runs all segments again, twice as long."""
        self._is_longer = True
        self._plan = {**self._plan, "batches": 2 * self._plan["batches"]}
        self._begin_with(self._plan)
        self._sets.clear()
        for found in (self.findings.segments, self.findings.drains, self.findings.preparation):
            found.clear()
        for phase in self._usable:
            self.findings.phases.pop(phase, None)
        yield from self._rounds()

    def _rounds(self) -> Iterator[Any]:
        schedule: Any = None
        if self.channel.rank == 0:
            schedule = _core.StallsSchedule(
                self._usable,
                ranks=self.channel.size,
                max_batches=self.settings.batches,
                max_s=self.settings.time_s * SHARE_OF_TIME,
                precision=self.settings.precision,
                **self._plan,
            )
        tried: list[tuple[float, dict[str, Any], float]] = []
        while True:
            segment = self.channel.share(schedule.next() if schedule else None)
            if segment is None:
                break
            begin = time.perf_counter()
            self._tries = 0
            while (record := (yield from self._segment(segment))) is None:
                self._tries += 1
            took_s = time.perf_counter() - begin
            evidence = self._of_all_ranks(record, took_s)
            again = self.channel.share(schedule.again(evidence) if schedule else None)
            if again in ("unsettled", "none settled"):
                tried.clear()
                if again == "none settled":
                    self._unsettle(segment["phase"])
                continue
            tried.append((evidence["others"], record, took_s))
            if again:
                continue
            _, best, took_s = min(tried, key=lambda one: one[0])
            best["tries"] = len(tried)
            tried.clear()
            if best["verified"] is False:
                phase = COLD if best["phase"] == COLD else WARM
                self.findings.phases.setdefault(phase, best["reason"])
            self.findings.segments.append(best)
            if schedule:
                schedule.report(best["elapsed_s"], took_s)
                self.progress.say(_title(segment), schedule.progress)
        for note in _core.stalls_notes(self.findings.segments, self._unheld):
            self.findings.note(note)
        self.findings.ended = self.channel.share(schedule.end if schedule else None) or "limit"

    def _calibrate(self) -> Iterator[Any]:
        """Measures a step without loading."""
        self.progress.say("measuring a step", 0.0)
        for _ in range(3):
            yield self._replayed(False)
        self.synchronize()
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            yield self._replayed(False)
            times.append(time.perf_counter() - begin)
        self.synchronize()
        self._host_step_s = sorted(times)[len(times) // 2]
        singles = []
        for _ in range(3):
            begin = time.perf_counter()
            yield self._replayed(False)
            self.synchronize()
            singles.append(time.perf_counter() - begin)
        self.single_step_s = max(sorted(singles)[1], self._host_step_s)
        if self.steps_done is not None:
            yield from self._count_queued()

    def _count_queued(self) -> Iterator[Any]:
        """Counts the batches that a thread of the script reads ahead: after training has used up
        its earlier batches, this many more batches than training steps are requested."""
        time.sleep(min(LONGEST_FILL_S, 2 * MOST_AHEAD * max(self._host_step_s, self._step_s)))
        assert self.steps_done is not None
        took = []
        before, last = self.steps_done(), time.perf_counter()
        for _ in range(2 * MOST_AHEAD):
            yield self._replayed(False)
            now = time.perf_counter()
            took.append(now - last)
            last = now
        steps = (self.steps_done() - before) * self._steps_each
        self._queued = max(0, len(took) - steps) + 1
        self._host_step_s = max(self._host_step_s, sorted(took[MOST_AHEAD:])[MOST_AHEAD // 2])
        if self._queued > MOST_AHEAD:
            raise Inconclusive(
                "it is not known what training waits for, because a thread of the script reads its "
                f"loader more than {MOST_AHEAD} batches ahead"
            )
        self.findings.note(
            f"a thread of the script's own reads the loader, {self._queued} batches ahead of "
            "training: the time blocked in next() is that thread's"
        )

    def _lengths(self) -> dict[str, int]:
        """Chooses the batches of a segment; rank 0 decides, by the slowest rank."""
        mine = (self._host_step_s, max(self._step_s, self._host_step_s))
        source = self.source
        everybody = self.channel.gather(
            [*mine, source.workers, source.ahead + self._queued, source.epoch()]
        )
        step = max(1e-5, max(one[0] for one in everybody))
        real = max(one[1] for one in everybody)
        workers = max(one[2] for one in everybody) if source.kind == "torch" else 1
        self._slowest_s = step, real
        lengths = _core.stalls_lengths(
            [DEVICE, HOST, WARM, COLD],
            step_s=step,
            load_s=real,
            ahead=max(one[3] for one in everybody),
            unit=math.lcm(max(1, workers), self._steps_each),
            epoch_batches=min((one[4] for one in everybody if one[4] is not None), default=0),
            max_s=self.settings.time_s * SHARE_OF_TIME,
            max_batches=self.settings.batches,
        )
        return {"batches": lengths["batches"], "settle": lengths["settle"]}

    def _warn_if_too_short(self) -> None:
        """Warns at the start if --time does not suffice for the least number of rounds."""
        step_s, real_s = self._slowest_s
        batches = self._plan["settle"] + self._plan["batches"]
        round_s = batches * sum(
            real_s if phase in (WARM, COLD) else step_s for phase in self._usable
        )
        asked_s, needed_s = self.settings.time_s, LEAST_ROUNDS * round_s
        if self.settings.batches or needed_s <= asked_s:
            return
        text = (
            f"this loop needs about {needed_s:.0f} s, more than the {asked_s:.0f} s of --time: "
            f"fewer than {LEAST_ROUNDS} rounds of segments give no interval"
        )
        self.findings.note(text)
        print(f"headrace stalls: {text}", file=sys.stderr, flush=True)

    def _replayed(self, device: bool) -> Any:
        self._given += 1
        return self.replay.give(self._given, device)

    def _of_all_ranks(self, record: dict[str, Any], took_s: float) -> dict[str, Any]:
        """Combines the ranks' records to their worst values, so that all ranks decide alike."""
        ahead, left = self.source.ahead, record.get("queue_end")
        everybody = self.channel.gather(
            [
                record["disturbed"],
                record["others"] or 0.0,
                took_s,
                sum(record["wait_s"]) / record["elapsed_s"],
                -(ahead if left is None else left),
            ]
        )
        disturbed, others, all_s, waited, left = (max(one) for one in zip(*everybody))
        return {
            "disturbed": disturbed,
            "others": others,
            "all_s": all_s,
            "waited_s": waited,
            "elapsed_s": 1.0,
            "queue_ahead": ahead,
            "queue_end": -left,
        }

    def _unsettle(self, phase: str) -> None:
        """Marks a phase as unsettled: its segments took batches that were prepared before them."""
        for one in self.findings.segments:
            if one["phase"] == phase:
                one.update(_core.stalls_judge({**one, "unsettled": True}))

    def _segment(
        self, segment: dict[str, Any]
    ) -> Generator[Any, None, dict[str, Any] | None]:
        """Runs a segment. Returns its record, or ``None`` if it has to be run again."""
        self.phase = segment["phase"]
        real = self.phase in (WARM, COLD)
        if self.phase == ALONE:
            real = segment["rank"] == self.channel.rank
        self.replay.settle()
        if real:
            try:
                return (yield from self._real_segment(segment))
            finally:
                if self._hold is not None:
                    self._hold.close()
                    self._hold = None
        return (yield from self._replay_segment(segment))

    def _timer(self, segment: dict[str, Any]) -> Timer:
        self.restart = False
        return Timer(
            segment,
            self.source,
            self.channel,
            self.findings,
            self.synchronize,
            self.single_step_s,
        )

    def _replay_segment(self, segment: dict[str, Any]) -> Generator[Any, None, dict[str, Any]]:
        device = segment["phase"] == DEVICE or self.replay.on_device
        self.channel.gather(0)
        settle = min(3 + self._queued, segment["settle"])
        if segment["phase"] == ALONE:
            settle = segment["settle"]
        for _ in range(settle):
            yield self._replayed(device)
        timer = self._timer(segment)
        timer.begin()
        for _ in range(segment["batches"]):
            restored = self.replay.restoring_s
            batch = self._replayed(device)
            timer.leave_out(self.replay.restoring_s - restored)
            timer.ask()
            timer.got(
                self.batch_size
                if self.batch_size_given
                else self.replay.samples(self._given, 1, device)
            )
            yield batch
            if self.restart:
                self.restart = False
                timer.drop_last()
        record = timer.end()
        if self.replay.in_place:
            self.findings.note(
                "the script changes batches in place: replayed ones were restored, outside the "
                "timed parts"
            )
        return record

    def _real_segment(
        self, segment: dict[str, Any]
    ) -> Generator[Any, None, dict[str, Any] | None]:
        chosen = self._set(segment["set"])
        cold = segment["phase"] == COLD
        if cold:  # wait until no rank of this host holds files, which would keep them in memory
            self.channel.gather(0)
        state = self._ready(chosen, cold, bool(segment["preread"]) or segment["phase"] == ALONE)
        self.channel.gather(0)
        before = self.source.read()
        self.source.expect(cold)
        self.source.worked()
        started_ns = time.perf_counter_ns()
        iterator = self._guard(self.source.open(chosen))
        batch = self._next(iterator, chosen)  # some loaders start only at the first request
        if segment["full"]:
            self._let_it_get_ahead(started_ns)
        yield batch
        for _ in range(segment["settle"] - 1):
            yield self._next(iterator, chosen)
        timer = self._timer(segment)
        taken = segment["settle"]
        queue_begin = self.source.prepared(started_ns, taken)
        timer.begin()
        for _ in range(segment["batches"]):
            timer.ask()
            batch = self._next(iterator, chosen)
            timer.got(self.samples_in(batch))
            yield batch
            if self.restart:
                if self._again():
                    self.source.finish()
                    return None
                self.restart = False
                timer.drop_last()
        record = timer.end()
        taken += segment["batches"]
        record["queue_begin"] = queue_begin
        record["queue_end"] = self.source.prepared(started_ns, taken)
        if not self.source.same_samples:  # finish() ends its workers and their counters
            after = self.source.read()
        self.source.finish()
        ended_ns = time.perf_counter_ns()
        if self.source.same_samples:
            after = self.source.read()
        read = after.since(before).read_bytes
        self._verify(record, chosen, cold, read, state)
        if segment["phase"] != ALONE:
            self._keep_rows(segment["phase"], started_ns, ended_ns)
        return record

    def _let_it_get_ahead(self, started_ns: int) -> None:
        """Waits until the loader has prepared all that it prepares ahead."""
        end = time.perf_counter() + LONGEST_FILL_S
        while time.perf_counter() < end:
            ready = self.source.prepared(started_ns, 1)
            if ready is None or ready >= self.source.ahead:
                return
            time.sleep(0.01)

    def _again(self) -> bool:
        """Whether to run a segment again because the script left its loop while workers continued.
        Not if the script leaves its loop all the time, and not with several ranks, since not all
        of them may be in a segment of real batches."""
        if self.channel.size == 1 and self._tries < TRIES:
            return True
        self.findings.note(
            "the script leaves its loop and comes back every few batches: the time in between is "
            "left out, and what the loader prepared then counts as prepared in no time"
        )
        return False

    def _next(self, iterator: Iterator[Any], chosen: IndexSet) -> Any:
        batch = next(iterator, None)
        if batch is None:
            raise _too_few(chosen)
        return batch

    def _guard(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """Passes batches on, and notes that an exception came from the script's loader."""
        while True:
            try:
                batch = next(iterator)
            except StopIteration:
                return
            except BaseException:
                self.failed = True
                raise
            yield batch

    def _ready(self, chosen: IndexSet, cold: bool, preread: bool) -> dict[str, Any] | None:
        """Drops the files of a set from memory, or loads them into it."""
        if self.source.store():
            if not cold:
                self.source.keep(chosen)
            return None
        if not chosen.files:
            return None
        if cold:
            self._preread = False
            return self.drop(chosen.files)
        # Without sets of known files, a warm segment may read other files than the cold one.
        state = None
        if preread or (chosen.whole and not self._preread):
            self._preread = chosen.whole
            state = dict(_core.storage_preread(chosen.files))
        self._hold = self.hold(chosen.files)
        return state

    def hold(self, files: list[str]) -> _core.StorageHold:
        """Holds files in memory, and reads those that the kernel has evicted: it evicts pages that
        no process has mapped even if there is enough memory."""
        most = _core.machine()["page_cache_bytes"] * HELD_SHARE / self.local_size
        hold = _core.StorageHold(files, most_bytes=int(most))
        if hold.held_bytes < hold.bytes:
            self._unheld = (
                f"; {hold.held_bytes / 1e6:.1f} of {hold.bytes / 1e6:.1f} MB could be held there "
                f"({hold.problem})"
            )
        return hold

    def _verify(
        self,
        record: dict[str, Any],
        chosen: IndexSet,
        cold: bool,
        read: int | None,
        state: dict[str, Any] | None,
    ) -> None:
        """Checks by the bytes read from storage that a cold segment was cold and a warm one warm."""
        record["read_bytes"] = read
        record["expected_bytes"] = chosen.bytes
        record["expected_samples"] = chosen.samples
        evidence = {**(state or {}), **record, "cold_bytes": self._cold_bytes}
        if self.source.store():
            evidence["reads"] = "known"
        elif chosen.files:
            evidence["reads"] = "estimated" if chosen.whole else "known"
        else:
            evidence["reads"] = "unknown" if self.findings.reads_files else "nothing"
            evidence["network"] = bool(self.source.learned.network_bytes)
        record.update(_core.stalls_judge(evidence))
        if cold and chosen.bytes is None:
            self._cold_bytes = max(self._cold_bytes, read or 0)

    def _keep_rows(self, phase: str, started_ns: int, ended_ns: int) -> None:
        """Stores the loader's work on the batches of this segment."""
        own = self.source.worked()
        if own is not None:
            self.findings.preparation.append({"phase": phase, **own})
        for row in work.rows():
            if started_ns <= row.end_ns <= ended_ns and len(self.findings.preparation) < 4000:
                self.findings.preparation.append(
                    {
                        "phase": phase,
                        "samples": self.batch_size if self.batch_size_given else row.samples,
                        "cpu_s": row.cpu_s,
                        "wall_s": row.wall_s,
                        "read_bytes": row.read_bytes,
                    }
                )


def _too_few(chosen: IndexSet) -> RuntimeError:
    return RuntimeError(
        f"the loader ended within a segment of {chosen.count} batches: it has too few to measure"
    )


def _title(segment: dict[str, Any]) -> str:
    return f"round {segment['round'] + 1}: {_core.stalls_phases[segment['phase']]}"
