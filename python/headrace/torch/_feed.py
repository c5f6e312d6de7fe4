"""Feeds batches of indices from a user's sampler to the C library.

The sampler is any iterable of indices, or of lists of indices, even an endless
one: only a few batches are read ahead of training.

Resuming: a sampler (or its iterator) with state_dict and load_state_dict is
asked for its state after each batch. Any other is replayed: the states of the
random generators it may use are saved when it starts. To resume, they are
restored, the sampler is started again, and the indices handed out before are
skipped. This is exact for samplers that draw when they start, as torch's do. A
sampler that draws from a global generator which training uses too needs
state_dict.
"""

from __future__ import annotations

import array
import base64
import copy
import functools
import itertools
import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

import torch

from ._datasets import int64

# A batch of indices (int64, or a list of whatever the sampler gives) and the sampler's own state after it (None: it has none).
Taken: TypeAlias = "tuple[array.array[int] | list[Any], Any]"


def feed_of(sampler: Any, batch_sampler: Any, **options: Any) -> Feed | None:
    """Returns the feed of a user's sampler or batch sampler; None if there is neither. ``options``:
    of :class:`Feed`."""
    source = sampler if batch_sampler is None else batch_sampler
    if source is None:
        return None
    if not isinstance(source, Iterable) and not hasattr(source, "__getitem__"):
        raise TypeError(f"a sampler must be iterable, got {source!r}")
    return Feed(source, batched=batch_sampler is not None, **options)


class Feed:
    """Reads batches of indices from a sampler or a batch sampler.

    Args:
        source: the sampler, or the batch sampler.
        batched: whether ``source`` gives batches.
        batch_size, drop_last: how to cut a sampler's indices; unused for batches.
        numbers: whether indices are whole numbers; others are for a dataset's own code.
        is_pure: whether the epoch's number alone determines the order.
    """

    def __init__(
        self,
        source: Iterable[Any],
        *,
        batched: bool,
        batch_size: int,
        drop_last: bool,
        numbers: bool = True,
        is_pure: bool = False,
    ) -> None:
        self.source = source
        self.is_pure = is_pure
        self.batched = batched
        self.batch_size = batch_size
        self.drop_last = drop_last
        self._indices = int64 if numbers else _listed
        self._iterator: Iterator[Any] = iter(())
        self._start: _Start | None = None  # of a sampler without a state of its own
        self._own: Any = None  # of one with: its state when it was started
        self._ready: list[Taken | None] = []
        self._epochs: list[int | None] = []  # set_epoch's argument, of each part, at the start
        self._seen: list[int | None] = [0, 0]  # the same when it was looked at last

    def __len__(self) -> int:
        """Batches per epoch. Raises TypeError if the sampler has no length."""
        count = len(self.source)  # type: ignore[arg-type]
        if self.batched:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def begin(self) -> None:
        """Starts the sampler for an epoch."""
        self._start = None if self.is_pure else _Start.now(self.source)
        self._iterator = iter(self.source)
        self._own = self._own_state()
        # Samplers draw at their first index: now, before training draws again.
        self._ready = [self._pull()]
        self._epochs = self._seen = _epochs(self.source)  # some change it themselves when they start

    def start_of(self, part: Any) -> tuple[torch.Tensor, int | None]:
        """Returns the state of the generator that a part of the sampler draws from, torch's if it
        has none of its own, and the part's epoch (set_epoch), both as the epoch began."""
        start = self._start or _Start.now(self.source)
        return start.of(self.source, part)

    def was_moved(self) -> bool:
        """Returns whether the sampler's epoch was changed by set_epoch since it started."""
        return _epochs(self.source) != self._epochs

    def moved(self) -> int | None:
        """Returns the epoch if the sampler's set_epoch changed it since the last call."""
        before, self._seen = self._seen, _epochs(self.source)
        changed = (now for now, old in zip(self._seen, before) if now is not None and now != old)
        return next(changed, None)

    def at(self, batches: int, before: dict[str, Any] | None) -> dict[str, Any]:
        """Returns the state for resume after ``batches`` batches of the epoch that begins next, or
        of that of the state ``before``."""
        state = {"position": batches * self.batch_size, "batches": batches}
        if self.is_pure:
            return state
        start = before and before.get("start")
        return {**state, "start": start or _Start.now(self.source).encoded}

    def resume(self, state: dict[str, Any]) -> int:
        """Starts the sampler where ``state`` was taken. Returns the samples handed out before."""
        position = self._resume_own(state) if "own" in state else self._replay(state)
        self._epochs = self._seen = _epochs(self.source)
        return position

    def _replay(self, state: dict[str, Any]) -> int:
        if ("start" in state) == self.is_pure:
            raise ValueError(
                "the state was taken where another sampler gave the order: make this DataLoader, or "
                "prepare it, as the one that the state is of"
            )
        self._start = None if self.is_pure else _Start.decode(state["start"])
        with nullcontext() if self._start is None else self._start.again(self.source):
            self._iterator = iter(self.source)
            wanted = state["batches"] if self.batched else state["position"]
            passed = position = 0
            for item in itertools.islice(self._iterator, wanted):
                passed += 1
                position += len(item) if self.batched else 1
            if passed < wanted:
                raise ValueError(
                    f"the sampler ended after {passed} of {wanted} "
                    f"{'batches' if self.batched else 'samples'} that were handed out before: it "
                    "is not the one that the state was taken with"
                )
            self._ready = [self._pull()]
        return position

    def _resume_own(self, state: dict[str, Any]) -> int:
        self._own = own = state["own"]
        self._ready = []
        if state["of"] == "sampler":
            self.source.load_state_dict(own["state"])  # type: ignore[attr-defined]
        if own["ended"]:
            # Its state is that of a sampler about to start again, which is not wanted yet.
            self._iterator = iter(())
            return int(state["position"])
        self._iterator = iter(self.source)
        if state["of"] == "iterator":
            self._iterator.load_state_dict(own["state"])  # type: ignore[attr-defined]
        return int(state["position"])

    def take(self) -> Taken | None:
        """Returns the next batch, or None at the sampler's end. Passes on its exceptions."""
        return self._ready.pop() if self._ready else self._pull()

    def state(self, position: int, batches: int, own: Any) -> dict[str, Any]:
        """Returns the state for resume after ``position`` samples in ``batches`` batches."""
        place = {"position": position, "batches": batches}
        of = self._stateful()
        if of is not None:
            return {**place, "of": of, "own": self._own if own is None else own}
        return place if self._start is None else {**place, "start": self._start.encoded}

    def _stateful(self) -> str | None:
        for of, thing in (("iterator", self._iterator), ("sampler", self.source)):
            if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
                return of
        return None

    def _own_state(self, ended: bool = False) -> Any:
        of = self._stateful()
        if of is None:
            return None
        thing = self._iterator if of == "iterator" else self.source
        state = copy.deepcopy(thing.state_dict())  # type: ignore[attr-defined]
        return {"state": state, "ended": ended}

    def _pull(self) -> Taken | None:
        ended = False
        if self.batched:
            batch = next(self._iterator, None)
            if batch is None:
                return None
            indices = self._indices(batch)
            if not indices:
                raise ValueError("the batch sampler gave an empty batch")
        else:
            indices = self._indices(list(itertools.islice(self._iterator, self.batch_size)))
            if not indices or (self.drop_last and len(indices) < self.batch_size):
                return None
            ended = len(indices) < self.batch_size
        return indices, self._own_state(ended)


def _listed(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


class _Start:
    """The state that a sampler's order may depend on, saved at the beginning of an epoch."""

    def __init__(
        self,
        common: dict[str, Any],
        generators: list[torch.Tensor],
        epochs: list[int | None],
    ) -> None:
        self._common = common  # states of the process-wide generators
        self._generators = generators  # of the sampler's own generators
        self._epochs = epochs  # set_epoch's argument, of each part

    @classmethod
    def now(cls, source: Any) -> _Start:
        return cls(
            _common_states(),
            [g.get_state() for g in _generators(source)],
            _epochs(source),
        )

    def of(self, source: Any, part: Any) -> tuple[torch.Tensor, int | None]:
        """Returns the states of one part: its generator's and its epoch."""
        place = next(i for i, one in enumerate(_parts(source)) if one is part)
        state = self._common["torch"]
        for generator, its in zip(_generators(source), self._generators):
            if generator is getattr(part, "generator", None):
                state = its
        return state, self._epochs[place]

    @contextmanager
    def again(self, source: Any) -> Iterator[None]:
        """Restores the saved state. Afterwards it puts the process-wide generators back to their
        present state, so that resuming a loader does not disturb training."""
        now = _common_states()
        for generator, state in zip(_generators(source), self._generators):
            generator.set_state(state)
        for part, epoch in zip(_parts(source), self._epochs):
            if epoch is not None and _epoch(part) is not None:
                part.set_epoch(epoch)
        _set_common_states(self._common)
        try:
            yield
        finally:
            _set_common_states(now)

    @functools.cached_property
    def encoded(self) -> dict[str, Any]:
        """Plain types only."""
        version, words, gauss = self._common["python"]
        out: dict[str, Any] = {
            "torch": _encode(self._common["torch"]),
            "python": [version, list(words), gauss],
            "generators": [_encode(g) for g in self._generators],
            "epochs": self._epochs,
        }
        if "numpy" in self._common:
            name, key, *rest = self._common["numpy"]
            out["numpy"] = [str(name), [int(k) for k in key], *(_plain(r) for r in rest)]
        return out

    @classmethod
    def decode(cls, state: dict[str, Any]) -> _Start:
        version, words, gauss = state["python"]
        common: dict[str, Any] = {
            "torch": _decode(state["torch"]),
            "python": (version, tuple(words), gauss),
        }
        if "numpy" in state:
            common["numpy"] = tuple(state["numpy"])
        return cls(common, [_decode(g) for g in state["generators"]], state["epochs"])


def _parts(source: Any) -> list[Any]:
    """Returns the sampler and, for a batch sampler, the sampler inside it."""
    inner = getattr(source, "sampler", None)
    return [source] if inner is None else [source, inner]


def _generators(source: Any) -> list[torch.Generator]:
    found = [getattr(part, "generator", None) for part in _parts(source)]
    return [g for g in found if isinstance(g, torch.Generator)]


def _epoch(part: Any) -> int | None:
    epoch = getattr(part, "epoch", None)
    return epoch if isinstance(epoch, int) and hasattr(part, "set_epoch") else None


def _epochs(source: Any) -> list[int | None]:
    return [_epoch(part) for part in _parts(source)]


def _common_states() -> dict[str, Any]:
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    return states


def _set_common_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    if "numpy" in states:
        import numpy

        numpy.random.set_state(states["numpy"])


def _encode(state: torch.Tensor) -> str:
    return base64.b64encode(bytes(state.tolist())).decode("ascii")


def _decode(text: str) -> torch.Tensor:
    return torch.tensor(list(base64.b64decode(text)), dtype=torch.uint8)


def _plain(value: Any) -> int | float:
    return float(value) if isinstance(value, float) else int(value)
