"""The position of a DataLoader: its next epoch, the progress of the live one, and its saved states.

The native loader keeps the position in its own order. For a user's sampler the position is kept
here, with the batches pushed to the native loader and not yet returned.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Any

from . import _arguments as arguments, _state as states
from ._epoch_line import EpochLine
from ._feed import Feed
from ._order import Dealt, Order
from ._surroundings import Part


class Epoch:
    """The progress of one pass over the data. The loader keeps it after a ``break``. It refers to
    neither loader nor iterator, so that all are freed without a garbage collection."""

    def __init__(self, number: int, resume: dict[str, Any] | None, core: Any) -> None:
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
    """A lock that never waits: a second thread gets a RuntimeError; the first is not affected."""

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
    """The part of the DataLoader that counts epochs and keeps positions.

    An :class:`Iteration` (``_iteration.py``) is one pass over the data. It reaches the native
    loader through the abstract methods.
    """

    # Set by the DataLoader when it is made:
    batch_size: int | None
    sampler: Any
    seed: int
    shuffle: bool
    _batches_ahead: int  # of a sampler, pushed before they are needed
    _source: Any  # the core dataset, or what stands for it
    _feed: Feed | None  # the user's sampler; None: the native order
    _dealt: Dealt | None  # the DistributedSampler that the native order replaces
    _options: dict[str, Any]  # of the native loader
    _capacity: int  # samples that a batch of the native loader can have
    _core: Any  # the native loader, or Workers
    _part: Part
    _line: EpochLine | None  # verbose: printed at the end of each epoch

    def _begin_at(self, epoch: int) -> None:
        """Initialises the position; called once, when the loader is made."""
        self._next_epoch = epoch
        self._ahead = 0  # epochs that a stream was ahead of this loader's when it joined
        self._joined = False  # whether the place in a stream is this loader's, or to be found
        self._resume: dict[str, Any] | None = None  # a loaded state that iter() starts from
        self._live: Epoch | None = None  # the epoch that was begun and not finished
        self._reader = OneReader()
        self._digest: str | None = None  # of the dataset, once it was needed

    @property
    @abstractmethod
    def batch_sampler(self) -> Any: ...

    @property
    @abstractmethod
    def world_size(self) -> int: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def stats(self) -> dict[str, Any]: ...

    @abstractmethod
    def skipped(self) -> list[Any]: ...

    @abstractmethod
    def _check_open(self) -> None:
        """Raises RuntimeError if the loader is closed."""

    @abstractmethod
    def _check_fork(self) -> None:
        """Resets the loader in a forked child, which has none of its threads."""

    @abstractmethod
    def _native(self) -> Any:
        """The native loader of this process."""

    @abstractmethod
    def _seed_of_draws(self) -> int:
        """The native loader's seed."""

    @abstractmethod
    def _grow(self, batch: int) -> Any:
        """A native loader whose batches may have ``batch`` samples."""

    @abstractmethod
    def _expect(self, core: Any, position: int) -> None:
        """Tells a cache what the user's sampler gives from a position of the epoch on."""

    @abstractmethod
    def _agree(self, epoch: int, position: int) -> None:
        """Exchanges data that the ranks need before an epoch."""

    @abstractmethod
    def _tensors(self, batch: Any) -> Any:
        """Converts a batch of the native loader, or of Workers, to what the training loop gets."""

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next ``iter()``, and of the sampler if it has ``set_epoch``.

        Epochs differ without it. Until the first batch of an epoch is taken, even after
        ``iter()``, it changes that epoch. A loaded state of the same epoch keeps its position. If
        the loader joined a stream late, ``epoch`` counts the loader's own epochs;
        :meth:`state_dict` has the stream's."""
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
        if self._feed is not None:
            self._feed.moved()  # by this call, not by the script

    def _aim(self, number: int) -> None:
        """Sets the next epoch, or the live one if no batch was taken from it yet."""
        if self._resume is not None and self._resume["epoch"] != number:
            self._resume = None
        self._next_epoch = number

    def _follow_sampler(self) -> None:
        """Follows set_epoch calls on the sampler.

        Where the native order replaces it, its epoch is the loader's. Otherwise it decides on the
        indices, and the epoch on what transforms draw: a run that begins at a later epoch draws
        what is drawn there. A sampler that goes back repeats its order, not these draws, as with
        torch's loader."""
        if self._dealt is not None:
            moved = self._dealt.moved()
            if moved is not None:
                self._aim(moved + self._ahead)
        elif self._feed is not None and self._resume is None:
            moved = self._feed.moved()
            if moved is not None:
                self._next_epoch = max(self._next_epoch, moved)

    # Resuming

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of training, after the batches taken so far: a small dict of
        plain types, for torch.save or json.

        With Headrace's own order it is valid for any number of ranks and any batch size, and
        all ranks return the same. After the last batch but before the loop has ended, the
        state is the end of that epoch. ``"dataset"`` identifies the dataset.
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
        """Makes the next ``iter()`` continue where ``state`` was taken: its first batch is, bit
        for bit, the one that would have come next.

        Takes ``seed`` and ``shuffle`` from the state. Raises ValueError for a state of another
        dataset (other names, labels or order), version or kind of sampler, and for numbers out
        of range. States from before 2026-12 do not identify their dataset, which is logged.
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
        """Returns whether set_epoch has changed the epoch since it began."""
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
        """Takes the stream's epoch from the first batch received."""
        ahead = number - epoch.number
        epoch.number = number
        self._ahead += ahead
        self._next_epoch += ahead
        self._joined = True
