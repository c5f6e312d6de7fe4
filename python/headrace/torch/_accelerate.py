"""Keeps a DataLoader of Headrace's inside Hugging Face Accelerate.

Accelerate takes a script's loader apart: ``prepare`` and ``skip_first_batches`` give its dataset and
batch sampler to a new loader of torch's, inside a ``DataLoaderShard`` that moves batches to the
device and counts them. It has no interface for other loaders. So :func:`install` changes three
names in its module, for batch samplers of Headrace's loaders only: a ``DataLoaderShard`` of them is
a :class:`Shard`, whose inner loader is Headrace's; so is a loader that skips batches; and a
``DataLoaderDispatcher`` is refused.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch.utils.data

_loaders: weakref.WeakSet[Any] = weakref.WeakSet()


def register(loader: Any) -> None:
    _loaders.add(loader)


def install() -> None:
    """Changes Accelerate's module, if it has been imported."""
    module = sys.modules.get("accelerate.data_loader")
    # Its last function: present once it is imported completely.
    if module is None or not hasattr(module, "skip_first_batches") or hasattr(module, _DONE):
        return
    setattr(module, _DONE, True)
    accelerate: Any = module
    shard = _shard_class(accelerate)

    def new_shard(
        cls: Any, dataset: Any = None, *args: Any, batch_sampler: Any = None, **kwargs: Any
    ) -> Any:
        is_ours = cls is accelerate.DataLoaderShard and _is_known(batch_sampler, dataset)
        return object.__new__(shard if is_ours else cls)

    def new_dispatcher(
        cls: Any, dataset: Any = None, *args: Any, batch_sampler: Any = None, **kwargs: Any
    ) -> Any:
        if _is_known(batch_sampler, dataset):
            raise ValueError(
                "dispatch_batches=True has rank 0 read the batches of all ranks, but Headrace's "
                "loaders read on every rank: leave it out"
            )
        return object.__new__(cls)

    def new_loader(dataset: Any, *args: Any, batch_sampler: Any = None, **kwargs: Any) -> Any:
        is_skip = isinstance(batch_sampler, accelerate.SkipBatchSampler)
        if is_skip and _is_known(batch_sampler, dataset):
            return shard(dataset, batch_sampler=batch_sampler)
        return torch.utils.data.DataLoader(dataset, *args, batch_sampler=batch_sampler, **kwargs)

    accelerate.DataLoaderShard.__new__ = staticmethod(new_shard)
    accelerate.DataLoaderDispatcher.__new__ = staticmethod(new_dispatcher)
    accelerate.DataLoader = new_loader


_DONE = "_headrace_installed"


def _own(batch_sampler: Any, dataset: Any) -> Any:
    """Returns the loader that has this batch sampler and dataset, or None."""
    found = [
        one for one in _loaders if one.batch_sampler is batch_sampler and one.dataset is dataset
    ]
    if len(found) > 1:
        raise ValueError(
            "several DataLoaders have this batch_sampler and dataset, and Accelerate does not say which "
            "one it prepares: give each a batch_sampler of its own"
        )
    return found[0] if found else None


def _is_known(batch_sampler: Any, dataset: Any) -> bool:
    """Whether this is the batch sampler of a loader with this dataset, or Accelerate's wrapper
    around one."""
    while _own(batch_sampler, dataset) is None:
        if type(batch_sampler).__module__ != "accelerate.data_loader":
            return False
        batch_sampler = getattr(batch_sampler, "batch_sampler", None)
    return True


def _loader_for(batch_sampler: Any, dataset: Any) -> Any:
    """Returns the loader that yields the batches of this batch sampler: a script's as it is, or
    another one for the part of it that Accelerate gives this rank."""
    loader = _own(batch_sampler, dataset)
    if loader is not None:
        return loader
    whole = _own(batch_sampler.batch_sampler, dataset)
    if whole is None:
        raise ValueError("prepare the DataLoader first, then skip batches of what prepare() returned")
    if not whole._deals():
        return whole._again(batch_sampler)
    theirs = (batch_sampler.process_index, batch_sampler.num_processes)
    if theirs != (whole.rank, whole.world_size) or batch_sampler.split_batches:
        raise ValueError(
            f"this DataLoader reads part {whole.rank} of {whole.world_size} itself, because of its "
            "sampler, rank, cache or stream, but Accelerate wants part {} of {}{}: make it "
            "without these".format(*theirs, " of each batch" if batch_sampler.split_batches else "")
        )
    return whole


def _shard_class(accelerate: Any) -> Any:
    class Adapter(accelerate.DataLoaderAdapter):  # type: ignore[misc, name-defined]
        """An adapter that has a loader of Headrace's instead of making one of torch's."""

        def __init__(
            self,
            dataset: Any,
            use_stateful_dataloader: bool = False,
            batch_sampler: Any = None,
            **kwargs: Any,
        ) -> None:
            self.base_dataloader = _loader_for(batch_sampler, dataset)
            self._resumes = use_stateful_dataloader
            # save_state() and load_state() include the loader's state where it is that of all
            # ranks: they write one file.
            feed = self.base_dataloader._feed
            is_part = isinstance(batch_sampler, accelerate.BatchSamplerShard)
            is_alike = feed is None or feed.is_pure or not is_part
            self.use_stateful_dataloader = use_stateful_dataloader or is_alike
            self.dl_state_dict = self.base_dataloader.state_dict()

    class Shard(accelerate.DataLoaderShard, Adapter):  # type: ignore[misc, name-defined]
        """What ``accelerator.prepare`` returns for a loader of Headrace's."""

        def __init__(
            self, dataset: Any, *args: Any, batch_sampler: Any = None, **kwargs: Any
        ) -> None:
            self._skipped = 0
            while isinstance(batch_sampler, accelerate.SkipBatchSampler):
                self._skipped += batch_sampler.skip_batches
                batch_sampler = batch_sampler.batch_sampler
            super().__init__(dataset, *args, batch_sampler=batch_sampler, **kwargs)

        def __iter__(self) -> Iterator[Any]:
            loader = self.base_dataloader
            self.iteration = loader._next_epoch - loader._ahead  # which set_epoch() gets
            if self._skipped:
                loader._skip_to(self._skipped)
            return super().__iter__()  # type: ignore[no-any-return]

        def __len__(self) -> int:
            return len(self.base_dataloader) - self._skipped

        @property
        def batch_sampler(self) -> Any:
            whole = self.base_dataloader.batch_sampler
            return accelerate.SkipBatchSampler(whole, self._skipped) if self._skipped else whole

        def set_epoch(self, epoch: int) -> None:
            self.iteration = epoch
            self.base_dataloader.set_epoch(epoch)
            if hasattr(self.dataset, "set_epoch"):
                self.dataset.set_epoch(epoch)

        def set_sampler(self, sampler: Any) -> None:
            super().set_sampler(sampler)
            self.base_dataloader._replace_sampler(sampler)

        def begin(self) -> None:
            super().begin()
            if self.base_dataloader._deals() and self.base_dataloader.world_size > 1:
                self.remainder = -1  # repeated samples are not at the end of a gathered batch

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            """Goes to the epoch of the state, and with ``use_stateful_dataloader`` also to the place
            in it; otherwise that is what skip_first_batches is for."""
            self.base_dataloader._load(state_dict, with_place=self._resumes)
            self.dl_state_dict = self.base_dataloader.state_dict()

    return Shard
