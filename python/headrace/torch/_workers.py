"""A loader whose samples Python code makes, in torch's worker processes.

:class:`Workers` has the interface of the native loader, ``_core.Loader``, so that order, samplers,
ranks, resuming and epochs are the DataLoader's for both. Inside is torch's own DataLoader: it
starts, seeds, watches and ends the processes, pins memory and passes tasks and messages. It gets
its tasks from here, and batches come through the slots of a ring (``_ring.py``).
"""

from __future__ import annotations

import sys
import time
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.data
from torch.utils.data import IterableDataset

from .._errors import SampleError, TooManyBadSamples
from ._publication import Publication
from ._ring import Ring, Window
from ._stats import ZEROS
from ._worker import Begin, Collate, Message, Stream, Task, Work, order

_JUDGED_FROM = 100  # samples of an epoch, before which bad ones end it only at its end
_KEPT = 10_000  # bad samples that are listed
_HELD = 4  # batches that the consumer may hold before others go torch's way


class Workers:
    """Makes the batches of an epoch after the other. See ``_core.Loader`` for the methods.

    Args:
        samples: makes one sample, see ``_worker.py``; the dataset itself if it is iterable.
        collate_fn: the user's, or None.
        batched: whether samples are collated to batches.
        torch_options: torch's arguments about worker processes, for its DataLoader.

    The others are the native loader's.
    """

    def __init__(
        self,
        samples: Any,
        *,
        collate_fn: Any,
        worker_init_fn: Any,
        batched: bool,
        torch_options: dict[str, Any],
        batch_size: int,
        shuffle: bool,
        drop_last: bool,
        seed: int,
        rank: int,
        world_size: int,
        external_order: bool,
        on_error: str,
        max_bad_share: float,
        publication: Publication,
    ) -> None:
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
        if not 0 <= max_bad_share <= 1:
            raise ValueError(f"max_bad_share = {max_bad_share}: must be from 0 to 1")
        self._samples = samples
        self._is_stream = isinstance(samples, IterableDataset)
        self._batch_size, self._drop_last, self._shuffle = batch_size, drop_last, shuffle
        if self._is_stream and not batched:
            self._batch_size = 1
        self._seed, self._rank, self._ranks = seed, rank, world_size
        self._external = external_order
        self._skips, self._max_bad_share = on_error == "skip", max_bad_share
        self._collate_fn, self._batched, self._begin_fn = collate_fn, batched, worker_init_fn
        self._torch_options = torch_options
        self._workers = int(torch_options["num_workers"])
        self._ahead = self._workers * int(torch_options["prefetch_factor"] or 0)
        self._ring: Ring | None = Ring(self._ahead + _HELD) if self._workers else None
        self._generator = torch.Generator()
        self._tasks = _Tasks(self)
        self._torch = self._make_torch()
        self._iterator: Iterator[Message] | None = None
        self._next_number = 0
        self._counters = dict.fromkeys(
            ("samples", "batches", "bad_samples", "wait_ns", "step_ns"), 0
        )
        self._publication = publication
        self._wait = [0] * 48
        self.cost_ns = {"head": 0, "samples": 0, "batch": 0}  # of the samples so far
        self._bad: deque[tuple[int, int, str, str]] = deque(maxlen=_KEPT)
        self._plan(0, 0)

    def _make_torch(self) -> torch.utils.data.DataLoader[Any]:
        window = None if self._ring is None else Window(self._ring)
        options: dict[str, Any] = {
            **self._torch_options,
            "collate_fn": Collate(self._collate_fn, self._batched, window),
            "generator": self._generator,
        }
        if self._workers:
            dataset = self._samples if self._is_stream else getattr(self._samples, "dataset", None)
            options["worker_init_fn"] = Begin(self._begin_fn, dataset)
        loader: torch.utils.data.DataLoader[Any]
        if self._is_stream:
            is_pipe = isinstance(self._samples, torch.utils.data.IterDataPipe)
            data = self._samples if is_pipe else Stream(self._samples)
            # Without batches a task is one sample: a fetcher of torch looks at tasks of batches only.
            drop = self._drop_last if self._batched else False
            loader = _OfTasks(data, batch_size=self._batch_size, drop_last=drop, **options)
            loader.tasks = self._tasks
        else:
            work = Work(
                self._samples,
                samples_in_all=_length(self._samples),
                shuffle=self._shuffle and not self._external,
                skips=self._skips,
            )
            loader = torch.utils.data.DataLoader(work, batch_sampler=self._tasks, **options)  # type: ignore[arg-type]
        vars(loader)["_headrace_measured"] = True  # `headrace stalls` looks at ours
        return loader

    # The order

    def start_epoch(self, epoch: int) -> None:
        self._leave()
        self._plan(epoch, 0)
        self._publication.start(self)

    def restore(
        self, *, version: int, shuffle: int, seed: int, epoch: int, position: int, samples: int
    ) -> None:
        self._leave()
        self._seed, self._shuffle = seed, bool(shuffle)
        self._plan(epoch, position)
        self._publication.start(self)

    def _plan(self, epoch: int, start: int) -> None:
        self._epoch, self._start = epoch, start
        self._taken = self._given = 0  # batches handed out, and tasks made
        self._epoch_samples = self._epoch_bad = 0
        self._order: Any = None
        self._pushed: deque[tuple[Any, int]] = deque()
        self._pushed_to = start  # samples pushed so far, from the beginning of the epoch
        self._ended = False
        self._interrupted = ""  # what stopped the epoch, if no exception of its own did

    def push(self, indices: Any) -> None:
        self._pushed.append((indices, self._pushed_to))
        self._pushed_to += len(indices)

    def push_end(self) -> None:
        pass  # tasks end where nothing is pushed any more

    def get_state(self) -> dict[str, int]:
        if self._is_stream:
            return {"epoch": self._epoch, "position": self._start + self._taken}
        total = len(self._samples)
        reached = self._start + self._taken * self._batch_size * self._ranks
        return {"epoch": self._epoch, "position": min(total, reached)}

    def _next_task(self) -> Task | None:
        """Returns the next task in order, or None at the end."""
        indices: Any
        if self._is_stream:
            indices = positions = ()
        elif self._external:
            if not self._pushed:
                return None
            indices, first = self._pushed.popleft()
            positions = range(first, first + len(indices))
        else:
            positions = self._cut(self._given)
            if not positions:
                return None
            if self._order is None:
                self._order = order(len(self._samples), self._shuffle, self._seed, self._epoch)
            indices = [self._order[position] for position in positions]
        task = Task(
            self._next_number,
            self._epoch,
            self._seed,
            None if self._ring is None else self._ring.take(self._next_number),
            list(indices),
            positions,
            self._external,
            self._batch_size if self._is_stream else 0,
        )
        self._next_number += 1
        self._given += 1
        return task

    def _cut(self, number: int) -> list[int]:
        """Returns the positions of this rank's batch `number`, as hr__cut_batch in C."""
        samples, together = len(self._samples), self._batch_size * self._ranks
        first = self._start + number * together
        left = samples - first
        if left <= 0 or (self._drop_last and left < together):
            return []
        share = min(self._batch_size, -(-left // self._ranks))
        offsets = range(self._rank, self._rank + share * self._ranks, self._ranks)
        return [first + at if at < left else (at - left) % samples for at in offsets]

    # Batches

    def next(self) -> Message | None:
        self._counters["step_ns"] += self._publication.enter(self)
        begin, message = time.perf_counter_ns(), None
        try:
            message = self._next()
            if message is not None:
                self._count(message, time.perf_counter_ns() - begin)
        finally:
            self._publication.leave(self, message is not None)
        return message

    def _next(self) -> Message | None:
        if self._interrupted:
            raise RuntimeError(
                f"this epoch was stopped by {self._interrupted} and its worker processes have ended: "
                "begin another, or take state_dict() before this error and give it to "
                "load_state_dict(), which goes on where the last batch ended"
            )
        if self._ended:
            return None
        try:
            if self._iterator is None:
                self._begin()
            assert self._iterator is not None
            message = next(self._iterator)
        except StopIteration:
            if self._ring is not None:  # of a stream's workers that had nothing left
                self._ring.give_back(self._ring.abandon())
            self._leave()
            self._ended = True
            self._judge(at_end=True)
            return None
        except BaseException as error:
            self._leave(with_processes=True)
            self._ended = True
            if not isinstance(error, Exception):
                self._interrupted = type(error).__name__
            raise
        self._bad.extend(message.skipped)
        self._epoch_bad += len(message.skipped)
        if message.failure is not None:
            self._fail(message)
        self._taken += 1
        self._epoch_samples += message.samples
        self._judge(at_end=False)
        return message

    def _begin(self) -> None:
        """Starts torch's iterator, and its processes unless they persist."""
        self._generator.manual_seed(hash_of(self._seed, self._epoch))
        skip = self._start if self._is_stream else 0
        self._iterator = iter(self._torch)
        for _ in range(skip):  # the stream again, up to where it was
            message = next(self._iterator, None)
            if message is None:
                break
            if message.failure is not None:
                self._fail(message)

    def _leave(self, with_processes: bool = False) -> None:
        """Ends an epoch, perhaps before its end. Worker processes end too, unless they persist."""
        iterator, self._iterator = self._iterator, None
        if self._torch.persistent_workers:
            # Batches that are on their way arrive when the next epoch begins, and are dropped.
            if not with_processes:
                return
            vars(self._torch)["_iterator"] = None
        if self._ring is None or iterator is None:
            return
        slots = self._ring.abandon()
        end = getattr(iterator, "_shutdown_workers", None)
        if end is not None:
            end()  # now: an exception's traceback may refer to the iterator
            self._ring.give_back(slots)

    def _fail(self, message: Message) -> None:
        failure = message.failure
        assert failure is not None
        self._leave()
        self._ended = True
        if failure.index is None:
            failure.wrapper.reraise()
        try:
            failure.wrapper.reraise()
        except Exception as cause:
            raise SampleError(failure.path, int(failure.index or 0), failure.reason) from cause

    def _judge(self, at_end: bool) -> None:
        bad, seen = self._epoch_bad, self._epoch_samples
        if not bad or (not at_end and seen < _JUDGED_FROM) or bad <= self._max_bad_share * seen:
            return
        self._leave()
        self._ended = True
        listed = "".join(
            f" sample {index} ({path}): {reason};"
            for epoch, index, path, reason in list(self._bad)[-8:]
            if epoch == self._epoch
        )
        raise TooManyBadSamples(
            f"{bad} of {seen} samples of epoch {self._epoch} are bad, more than max_bad_share = "
            f"{self._max_bad_share:g}: repair the dataset or raise it;{listed}"
        )

    # Watching

    def _count(self, message: Message, wait_ns: int) -> None:
        counters = self._counters
        counters["samples"] += message.samples
        counters["batches"] += 1
        counters["bad_samples"] += len(message.skipped)
        counters["wait_ns"] += wait_ns
        self._wait[min(47, wait_ns.bit_length() - 1 if wait_ns else 0)] += 1
        self.cost_ns["head"] += message.head_ns
        self.cost_ns["samples"] += message.sample_ns
        self.cost_ns["batch"] += message.batch_ns

    def costs(self) -> str:
        """Returns a sentence on the mean cost of the samples so far; empty before the first."""
        samples = self._counters["samples"]
        if not samples:
            return ""
        ms = {name: ns / 1e6 / samples for name, ns in self.cost_ns.items()}
        head = f"{ms['head']:.2f} ms in C, " if ms["head"] else ""
        return (
            f". A sample costs {head}{ms['samples'] - ms['head']:.2f} ms in Python and "
            f"{ms['batch']:.2f} ms to collate"
        )

    def stats(self) -> dict[str, Any]:
        counters = self._counters
        made = self.cost_ns["samples"] + self.cost_ns["batch"]
        prepare = {"count": counters["samples"], "sum_ns": made, "buckets": [0] * 48}
        wait = {
            "count": counters["batches"],
            "sum_ns": counters["wait_ns"],
            "buckets": list(self._wait),
        }
        slots = {"slots": 0, "slot_bytes": 0} if self._ring is None else self._ring.stats()
        return {
            **ZEROS,
            **counters,
            **slots,
            "threads": self._workers,
            "ready_batches": self.ready(),
            "batches_ahead": self._ahead,
            "prepare": prepare,
            "wait": wait,
        }

    def about(self) -> dict[str, Any]:
        """Returns what a status says besides counters; see ``_publication.py``."""
        has_end = not self._is_stream and not self._external
        return {
            "samples": None if self._is_stream else _length(self._samples) or None,
            "batch_samples": self._batch_size if self._batch_size < sys.maxsize else None,
            "ahead_batches": self._ahead,
            "epoch": self._epoch,
            "position": self.get_state()["position"] if has_end else self._epoch_samples,
            "epoch_samples": len(self._samples) if has_end else None,
            "waits_for": self._waits_for(),
        }

    def _waits_for(self) -> str:
        ready = self.ready()
        if self._ahead and ready * 2 >= self._ahead:
            return "room"
        if self._external and not self._pushed and ready and self._given == self._taken + ready:
            return "sampler"
        return "prepare"

    def ready(self) -> int:
        """Returns how many batches are made and not taken."""
        waiting = getattr(self._iterator, "_data_queue", None)
        held = getattr(self._iterator, "_task_info", {})
        try:
            return (0 if waiting is None else int(waiting.qsize())) + sum(
                len(info) == 2 for info in held.values()
            )
        except (NotImplementedError, OSError, RuntimeError):
            return 0

    def skipped(self) -> list[tuple[int, int, str, str]]:
        return list(self._bad)

    def damaged(self) -> list[tuple[int, int, str, str]]:
        return []

    def hosts(self) -> list[dict[str, Any]]:
        return []

    def close(self) -> None:
        self._leave(with_processes=True)
        self._ended = True
        self._publication.end()


class _Tasks:
    """The batch sampler that torch's DataLoader gets. It can go on after it had nothing."""

    def __init__(self, workers: Workers) -> None:
        self._workers = weakref.ref(workers)

    def __iter__(self) -> _Tasks:
        return self

    def __next__(self) -> Task:
        workers = self._workers()
        task = None if workers is None else workers._next_task()
        if task is None:
            raise StopIteration
        return task


class _OfTasks(torch.utils.data.DataLoader[Any]):
    """torch's DataLoader for an iterable dataset: the indices of its batches are tasks."""

    tasks: _Tasks

    @property
    def _index_sampler(self) -> Any:
        return self.tasks


def hash_of(seed: int, epoch: int) -> int:
    """Mixes seed and epoch, for the generator of torch's worker seeds."""
    return (seed * 0x9E3779B97F4A7C15 + (epoch + 1) * 0xBF58476D1CE4E5B9) & ((1 << 63) - 1)


def _length(samples: Any) -> int:
    try:
        return len(samples)
    except TypeError:
        return 0  # with a sampler, a dataset needs none
