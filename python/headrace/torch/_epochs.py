"""The place of a DataLoader: its next epoch, how far the live one is, and states of both.

The native loader knows the place in its own order; of a user's sampler the place is kept here,
with what was pushed and has not come back yet.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Any

from .. import _core
from . import _arguments as arguments, _state as states
from ._feed import Feed
from ._order import Dealt, Order


class Epoch:
    """How far one pass over the data is. The loader keeps it after a ``break``, so it
    refers to neither loader nor iterator, and all of them die without a collector."""

    def __init__(self, number: int, resume: dict[str, Any] | None, core: _core.Loader) -> None:
        self.number = number
        self.resume = resume  # the state that it began at
        self.core = core  # the native loader that prepares it
        self.is_taken = False  # a batch was had of it, or its end
        # Of a user's sampler:
        self.position = 0  # samples handed out
        self.batches = 0
        self.own: Any = None  # the sampler's own state after them
        self.pushed: deque[tuple[int, Any]] = deque()  # given to the native loader, not yet back
        self.held: tuple[Any, Any] | None = None  # taken, larger than the native loader's batches
        self.ended = False  # the sampler has no more
        self.failure: Exception | None = None  # what it raised, for when its turn comes


class OneReader:
    """A lock without waiting: a second thread gets a RuntimeError, and the first one goes on."""

    def __init__(self) -> None:
        # One that Ctrl-C left locked is open to its own thread.
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                "this DataLoader is being read by another thread: one reader at a time. Its batches "
                "go on there"
            )

    def __exit__(self, *exception: object) -> None:
        self._lock.release()


class Epochs(ABC):
    """The DataLoader as one that goes through its dataset again and again.

    An :class:`Iteration` (``_iteration.py``) is one pass. What it needs of the native loader are
    the abstract methods.
    """

    # Set by the DataLoader when it is made:
    batch_sampler: Any
    sampler: Any
    seed: int
    shuffle: bool
    prefetch_factor: int
    _source: _core.Dataset
    _feed: Feed | None  # the user's sampler; None: the native order
    _dealt: Dealt | None  # the DistributedSampler that the native order replaces
    _options: dict[str, Any]  # of the native loader
    _capacity: int  # samples that a batch of the native loader can have
    _core: _core.Loader | None

    def _begin_at(self, epoch: int) -> None:
        """Sets what belongs to the place; called once, when the loader is made."""
        self._next_epoch = epoch
        self._ahead = 0  # epochs that a stream was ahead of this loader's when it joined
        self._joined = False  # whether the place in a stream is this loader's, or to be found
        self._resume: dict[str, Any] | None = None  # a loaded state that iter() starts from
        self._live: Epoch | None = None  # the epoch that was begun and not finished
        self._reader = OneReader()
        self._digest: str | None = None  # of the dataset, once it was needed

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def skipped(self) -> list[Any]: ...

    @abstractmethod
    def _check_open(self) -> None:
        """RuntimeError where the loader is closed."""

    @abstractmethod
    def _check_fork(self) -> None:
        """Begins anew in a forked child, which has none of the threads."""

    @abstractmethod
    def _native(self) -> _core.Loader:
        """The native loader of this process."""

    @abstractmethod
    def _grow(self, batch: int) -> _core.Loader:
        """A native loader whose batches may have ``batch`` samples."""

    @abstractmethod
    def _agree(self, epoch: int, position: int) -> None:
        """Exchanges with the other ranks what they have to know before an epoch."""

    @abstractmethod
    def _tensors(self, batch: _core.Batch) -> tuple[Any, ...]:
        """What the loop gets for a native batch."""

    def set_epoch(self, epoch: int) -> None:
        """The next ``iter()`` is this epoch; passed on to the sampler where it has a
        ``set_epoch`` too. Not needed for epochs to differ. Before the first batch of an epoch it
        changes that one, also after ``iter()``. A loaded state of this very epoch stays: its
        place in it is gone on from. A loader whose first epoch was a later one of its stream
        goes on counting its own here; :meth:`state_dict` has the stream's."""
        number = arguments.epoch(epoch) + self._ahead
        if number < 0:
            raise ValueError(
                f"epoch {epoch} of this loader was over before its stream began: it joined "
                f"{-self._ahead} epochs behind its own count"
            )
        self._aim(number)
        if self._dealt is not None:
            self._dealt.set_epoch(int(epoch))
            return
        inner = getattr(self.batch_sampler, "sampler", self.sampler)
        for sampler in (self.batch_sampler, inner):
            if not isinstance(sampler, Order):
                getattr(sampler, "set_epoch", lambda epoch: None)(epoch)

    def _aim(self, number: int) -> None:
        """The next epoch, or the one of which nothing was taken yet, is this one."""
        if self._resume is not None and self._resume["epoch"] != number:
            self._resume = None
        self._next_epoch = number

    def _follow_sampler(self) -> None:
        """What was said to the set_epoch of a DistributedSampler that is replaced."""
        moved = None if self._dealt is None else self._dealt.moved()
        if moved is not None:
            self._aim(moved + self._ahead)

    # Resuming

    def state_dict(self) -> dict[str, Any]:
        """Where training stands: after the batches that were taken. Small, of plain
        types: torch.save and json both keep it.

        With Headrace's own order it holds for any number of ranks and any batch size;
        each rank gives the same. After the last batch but before the loop has ended,
        the state is the end of that epoch. It says which dataset it is of (``"dataset"``).
        """
        self._check_fork()
        self._follow_sampler()
        if self._resume is not None:
            return {**self._resume}
        epoch = self._live
        if epoch is None or self._was_moved(epoch):
            return self._state(self._next_epoch, 0)
        if self._feed is None:
            place = self._native().get_state()
            return self._state(place["epoch"], place["position"])
        sampler = self._feed.state(epoch.position, epoch.batches, epoch.own)
        return self._state(epoch.number, epoch.position, sampler)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next ``iter()`` goes on where ``state`` was taken: its first batch is, bit
        for bit, the one that would have come; the epochs after it follow.

        ``seed`` and ``shuffle`` become the state's. Raises ValueError for a state of
        another dataset (of other names, labels or order), version or kind of sampler, and for
        numbers that are out of range. States of before 2026-12 do not say their dataset; one line
        says so.
        """
        states.check(
            state,
            samples=len(self._source),
            has_sampler=self._feed is not None,
            digest=self._names_digest,
        )
        self._check_fork()
        with self._reader:
            self._live = None
            self.seed = int(state["seed"])
            self.shuffle = bool(state["shuffle"])
            self._next_epoch = int(state["epoch"])
            self._ahead = int(state.get("stream_ahead", 0))
            self._resume = dict(state)

    def _was_moved(self, epoch: Epoch) -> bool:
        """Whether set_epoch has made it another one since it was begun."""
        if epoch.is_taken:
            return False
        moved = self._feed is not None and self._feed.was_moved()
        return moved or epoch.number != self._next_epoch

    def _names_digest(self) -> str:
        if self._digest is None:
            self._digest = self._source.names_digest()
        return self._digest

    def _state(self, epoch: int, position: int, sampler: Any = None) -> dict[str, Any]:
        state = {
            "format": states.FORMAT,
            "version": states.VERSION,
            "epoch": epoch,
            "position": position,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "samples": len(self._source),
            "dataset": self._names_digest(),
            "external": self._feed is not None,
            "sampler": sampler,
        }
        if self._ahead:
            state["stream_ahead"] = self._ahead
        return state

    def _follow_stream(self, epoch: Epoch, number: int) -> None:
        """The first batch that was had of a stream says which of its epochs this is."""
        ahead = number - epoch.number
        epoch.number = number
        self._ahead += ahead
        self._next_epoch += ahead
        self._joined = True
