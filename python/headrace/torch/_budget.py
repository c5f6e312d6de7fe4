"""Private caches that keep what is used next: which loaders have one, and which share one.

A loader with a sampler that repeats samples has one, and so have loaders that share a budget
(``cache=`` another DataLoader). All other private caches never evict, which is best for an order
that uses each sample once an epoch, and costs less. Shared ones decide that on their own.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

from . import _ahead
from ._ahead import Ahead
from ._on_hosts import OnHosts


class Budget:
    """The memory of one or more loaders of this process. ``text``: its size."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_shared = False  # by several loaders
        self._members: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, loader: Any) -> None:
        self._members.add(loader)

    def options(self, loader: Any) -> dict[str, Any]:
        """Returns the native loader's options for a member's cache. The first one makes the cache;
        the others join one that is there."""
        ranks = loader.world_size
        if ranks > 1 and self.is_shared:
            raise ValueError(
                f"this DataLoader shares the cache of another one, which is memory of one process, but "
                f"it is one of {ranks} ranks: give both loaders one name and a share of it, "
                "cache='shm:NAME?size=64GiB&share=0.9' and '...&share=0.1', which all ranks of a "
                "host use"
            )
        if ranks > 1:
            return {"cache": self.text}  # shared by the ranks of the host, it evicts nothing
        for other in list(self._members):
            core = None if other is loader else other._open_core()
            if core is not None:
                return {"cache": None, "cache_of": core}
        return {"cache": self.text, "cache_evicts": True}


def lender_of(cache: Any) -> Any:
    """Returns the DataLoader that ``cache`` is, which Accelerate may have wrapped; else None."""
    inside = getattr(cache, "base_dataloader", cache)
    return inside if isinstance(inside, Budgeted) else None


class Budgeted(OnHosts):
    """The part of the DataLoader that shares memory with others and knows what it keeps there."""

    _budget: Budget | None
    _ahead_of_sampler: Ahead | None = None
    _closed: bool = True  # until it is made
    _pid: int

    def _own_budget(self) -> Budget | None:
        """Returns the budget of a loader whose sampler repeats samples; None for every other."""
        text, feed = self._options["cache"], self._feed
        if not text or not _is_private(text) or "agent" in self._options or feed is None:
            return None
        return Budget(text) if _ahead.repeats(feed.source) else None

    def _borrow(self, lender: Budgeted) -> Budget:
        """Returns another loader's budget, for this one too."""
        if "agent" in self._options:
            raise ValueError(
                "cache= is another DataLoader, whose memory is this process's, but an agent prepares "
                "the batches: leave agent or cache out"
            )
        return lender._lend()

    def _lend(self) -> Budget:
        """Returns this loader's budget, which it has from now on if it had none."""
        self._check_open()
        self._check_fork()
        budget = self._budget
        if budget is None:
            budget = Budget(self._private_size())
            if self._live is not None:
                raise RuntimeError(
                    "the DataLoader that cache= names is in the middle of an epoch, and its cache would "
                    "be made anew: make this one before the first epoch of that one"
                )
            self._keep_counters()
            self._core, self._budget = None, budget
            budget.add(self)
        budget.is_shared = True
        return budget

    def _private_size(self) -> str:
        """Returns the size of a private cache, which others may share."""
        text = self._options["cache"]
        if "agent" in self._options:
            raise ValueError(
                "the DataLoader that cache= names has an agent, whose cache serves all of its jobs: "
                "give this one the same agent, and leave cache out"
            )
        if text is None:
            raise ValueError(
                "the DataLoader that cache= names has no cache: give that one a size, such as "
                "cache='64GiB', which both then share"
            )
        if not _is_private(text):
            raise ValueError(
                f"the DataLoader that cache= names has the cache {text!r}, and only a size alone is "
                "shared so: give both loaders that text"
                + (", one with &share=0.9 and one with &share=0.1" if "shm:" in text else "")
            )
        return str(text)

    def _shares_budget(self) -> bool:
        return self._budget is not None and self._budget.is_shared

    def _open_core(self) -> Any:
        """Returns the native loader if this process has one; else None."""
        return None if self._closed or self._pid != os.getpid() else self._core

    def _is_asked(self) -> bool:
        """Returns whether the cache may ask what the sampler gives: it is shared by loaders of this
        process, by jobs or by ranks. An order whose ranks use each sample once evicts nothing."""
        text, feed = self._options["cache"], self._feed
        if self._budget is not None and self.world_size == 1:
            return True
        if not text or "agent" in self._options or feed is None:
            return False
        if self.world_size > 1:
            return _is_in_memory(text) and _ahead.repeats(feed.source)
        return text.startswith("shm:")

    def _expect(self, core: Any, position: int) -> None:
        feed = self._feed
        if feed is None or not self._is_asked() or not _ahead.is_known(feed.source):
            return
        if self._ahead_of_sampler is None:
            cut = feed.source if feed.batched else feed
            self._ahead_of_sampler = Ahead(
                len(self._source), cut.batch_size if cut.drop_last else 1
            )
        epochs = self._options["epochs"]
        state, epoch = feed.start_of(_ahead.inner(feed.source))
        left = epochs - self._next_epoch if epochs else None
        orders = self._ahead_of_sampler.draw(
            feed.source, state, epoch, number=self._next_epoch, left=left
        )
        if not orders:
            return
        indices = orders[0][position:]
        first = len(indices)
        for order in orders[1:]:
            indices.extend(order)
        core.expect(indices, first)

    def _cache_line(self) -> str:
        """Returns what :meth:`explain` says of the cache; "" if there is nothing to say."""
        feed, text = self._feed, self._options["cache"]
        known = feed is None or _ahead.is_known(feed.source)
        name = "" if feed is None else type(_ahead.inner(feed.source)).__name__
        if self._budget is not None and self.world_size == 1:
            line = "the cache keeps the samples that are used next"
            line += ", of all its loaders" if self._budget.is_shared else ""
            return line if known else f"{line}; of {name} it knows the batches in preparation"
        if "agent" in self._options or not text:
            return ""
        if known and feed is not None and self._is_asked() and _ahead.repeats(feed.source):
            return (
                "the cache keeps the samples that came first, and once it is full those that all who "
                "use it use next"
            )
        if text.startswith("shm:") and known:
            return (
                "the cache keeps the samples that came first, and once it is full and jobs with "
                "other orders use it, those that all of them use next"
            )
        if known or not _is_in_memory(text):
            return ""
        return (
            "the cache keeps the samples that came first, because it is not known what "
            f"{name} gives in coming epochs"
        )


def _is_private(text: str) -> bool:
    return ":" not in text


def _is_in_memory(text: str) -> bool:
    return _is_private(text) or text.startswith("shm:")
