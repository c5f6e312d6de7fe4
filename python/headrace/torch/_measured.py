"""What ``headrace stalls`` iterates in place of a DataLoader to measure its parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import torch.utils.data

from . import _arguments as arguments
from ._choice import Choice
from ._epochs import Epochs, OneReader
from ._feed import feed_of
from ._order import OrderedBatches
from ._surroundings import Part
from ._worker import Folder, Message


class Measured(Epochs):
    """The part of the DataLoader that :mod:`headrace.stalls` uses."""

    collate_fn: Any
    worker_init_fn: Any
    dataset: Any
    batch_size: int | None
    drop_last: bool
    _choice: Choice
    _part: Part
    _torch_options: dict[str, Any]

    @abstractmethod
    def _make_core(self) -> Any: ...

    @abstractmethod
    def _register(self) -> None:
        """Closes the loader when the interpreter ends."""

    def _measured_copy(self, batch_sampler: Iterable[Any], cache: str | None = None) -> Any:
        """Returns a native loader with the same options over the indices of ``batch_sampler``, which
        restart with every ``iter()``, but without cache (unless ``cache`` is given, for files as
        they are) and agent: it measures the cost of preparing and fetching."""
        other = object.__new__(type(self))
        members = {**vars(self), "batch_sampler": batch_sampler, "sampler": None}
        del members["_core"]
        members["_feed"] = feed_of(
            None, batch_sampler, batch_size=1, drop_last=False, numbers=self._choice.is_native
        )
        own = {k: v for k, v in self._options.items() if k not in arguments.SHARED}
        members["_options"] = {
            **own,
            "cache": cache,
            "cache_form": "encoded",
            "assignment": "auto",
            "metrics": "",
        }
        members.update(_resume=None, _live=None, _closed=False, _later_hosts=None)
        members.update(_past_stats=None, _past_skipped=[], _past_damaged=[])
        members.update(_dealt=None, _budget=None, _line=None, _reader=OneReader())
        vars(other).update(members)
        vars(other)["_core"] = other._make_core()
        other._register()
        return other

    def _measured_torch(self) -> torch.utils.data.DataLoader[Any]:
        """Returns torch's DataLoader that does the same work, if some of it runs in Python."""
        samples = self._choice.samples
        options = {
            **self._torch_options,
            "collate_fn": self.collate_fn,
            "worker_init_fn": self.worker_init_fn,
        }
        loader: torch.utils.data.DataLoader[Any]
        if self._choice.is_stream:
            loader = torch.utils.data.DataLoader(
                self.dataset, self.batch_size, drop_last=self.drop_last, **options
            )
        else:
            dataset = _Single(samples) if isinstance(samples, Folder) else self.dataset
            order: Any = _Listed(self._measured_order())
            if self.batch_size is None and self.batch_sampler is None:
                options.update(batch_size=None, sampler=_Flat(order))
            else:
                options["batch_sampler"] = order
            loader = torch.utils.data.DataLoader(dataset, **options)
        vars(loader)["_headrace_why"] = "; ".join(self._choice.why)
        vars(loader)["_headrace_measured"] = True
        return loader

    def _measured_order(self) -> Iterable[Any]:
        """Yields this rank's lists of indices of an epoch; every ``iter()`` starts again."""
        size = self.batch_size or 1
        if self._feed is not None:
            if self.batch_sampler is not None:
                return self.batch_sampler  # type: ignore[no-any-return]
            return torch.utils.data.BatchSampler(self.sampler, size, False)
        seed = self.seed if self.shuffle else None
        return OrderedBatches(len(self._source), self._part.now(), size, seed)


class _Listed:
    """A batch sampler of any iterable of batches."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Any:
        return iter(self._batches)


class _Flat:
    """A sampler of the indices of batches."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Any:
        return (index for batch in self._batches for index in batch)


class _Single(torch.utils.data.Dataset[Any]):
    """The samples that native head and Python tail make, as a map-style dataset with the attributes
    of the user's."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def __getitem__(self, index: int) -> Any:
        return self._folder(index, 0, 0, Message())

    def __len__(self) -> int:
        return len(self._folder)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._folder.dataset, name)
