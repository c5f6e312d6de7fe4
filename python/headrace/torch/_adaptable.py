"""What frameworks do with a DataLoader besides iterating it: they make another one of it, skip
batches, and load states for an epoch only. See docs/frameworks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from . import _accelerate
from ._measured import Measured


class Adaptable(Measured):
    """The part of the DataLoader that frameworks use, Accelerate by ``_accelerate.py``."""

    _given: dict[str, Any]  # the arguments that it was made with

    @abstractmethod
    def _has_hosts(self) -> bool: ...

    @abstractmethod
    def _shares_budget(self) -> bool:
        """Whether other loaders share this one's cache."""

    @abstractmethod
    def _keep_counters(self) -> None: ...

    @property
    def batch_sampler(self) -> Any:
        """The sampler of batches: the given one, or ``sampler`` cut into batches."""
        _accelerate.install()  # which reads this first
        return vars(self)["batch_sampler"]

    @batch_sampler.setter
    def batch_sampler(self, batch_sampler: Any) -> None:
        vars(self)["batch_sampler"] = batch_sampler

    def _deals(self) -> bool:
        """Whether only this loader can give each rank its part of an epoch."""
        own = self._feed is None and (self._has_hosts() or "stream" in self._options)
        return own or self._dealt is not None or self._given["rank"] is not None

    def _again(self, batch_sampler: Any) -> Any:
        """Returns another loader, with this batch sampler."""
        if self._resume is not None:
            raise RuntimeError(
                "this DataLoader has loaded a state, whose place in the epoch is not that of a part "
                "of the batches: prepare it first, then load the state into what prepare() returned"
            )
        self._check_fork()
        if self._live is None:  # no threads and memory for both
            self._keep_counters()
            self._core = None
        none = dict.fromkeys(("shuffle", "sampler", "rank", "world_size"))
        own = {"batch_sampler": batch_sampler, "batch_size": 1, "drop_last": False, "verbose": 0}
        other = type(self)(**{**self._arguments(), **none, **own})
        other._line = self._line
        return other

    def _arguments(self) -> dict[str, Any]:
        """Returns the arguments of another loader in place of this one."""
        return {**self._given, "cache": self} if self._shares_budget() else dict(self._given)

    def _load(self, state: Mapping[str, Any], with_place: bool) -> None:
        """Loads a state, with its place in the epoch or only with its epoch."""
        if with_place:
            self.load_state_dict(state)
            return
        sampler = state.get("sampler")
        if isinstance(sampler, Mapping) and "start" in sampler:
            self.load_state_dict(
                {**state, "position": 0, "sampler": {**sampler, "position": 0, "batches": 0}}
            )
            return
        external = state.get("external")
        if self._feed is None or self._feed.is_pure:
            external = self._feed is not None  # the same order, whoever deals it to the ranks
        self.load_state_dict({**state, "position": 0, "sampler": None, "external": external})

    def _skip_to(self, batches: int) -> None:
        """Makes the next ``iter()`` begin after this many batches of its epoch."""
        if self._feed is None:
            position = batches * (self.batch_size or 1) * self.world_size
            self._resume = self._state(self._next_epoch, min(position, len(self._source)))
            return
        before = self._resume and self._resume["sampler"]
        self._resume = self._state(self._next_epoch, 0, self._feed.at(batches, before))

    def _replace_sampler(self, sampler: Any) -> None:
        """Follows a framework that put another sampler into ``batch_sampler``."""
        if self._feed is not None and not self._feed.batched:
            self._feed.source = sampler


# Lightning makes a loader again where it needs another sampler, from the arguments under these names.
setattr(Adaptable, "__pl_saved_args", ())
setattr(Adaptable, "__pl_saved_arg_names", ())
setattr(Adaptable, "__pl_saved_kwargs", property(lambda self: self._arguments()))
setattr(Adaptable, "__dataset", None)
