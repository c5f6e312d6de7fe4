"""A loader whose samples Python code makes once for all jobs of an agent's stream.

:class:`Shared` has the interface of the native loader, ``_core.Loader``, and contains one: the agent
decides order, places and leases as for images. Only who makes a sample differs: worker processes
of the jobs (``_producers.py``), whose samples are bytes of one layout (``_layout.py``).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.utils.data
from torch.utils.data import default_convert
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.dlpack import from_dlpack

from .. import _core
from .._errors import SampleError
from ._producers import Dataset, Producers, identity_of, name_of


class Batch:
    """A batch as the training loop gets it, and what the DataLoader needs of it."""

    def __init__(self, data: Any, batch: _core.Batch) -> None:
        self.data = data
        self.epoch = batch.epoch
        self._indices = from_dlpack(batch.indices)

    @property
    def indices(self) -> list[int]:
        return self._indices.tolist()  # type: ignore[no-any-return]


class Shared:
    """See ``_core.Loader`` for the methods.

    Args:
        samples: makes one sample, see ``_worker.py``.
        loader: has the DataLoader's arguments about processes.
        collate_fn: the user's, or None. It runs in this process, for each batch.
        batched: whether samples are collated to batches.
        options: of ``_core.Loader``, the agent's among them.
    """

    def __init__(
        self, samples: Any, loader: Any, collate_fn: Any, batched: bool, options: dict[str, Any]
    ) -> None:
        if not len(samples):
            raise ValueError(
                "the dataset is empty: with an agent its first sample shows how all of them lie in "
                "memory. Leave the agent out"
            )
        self._samples = samples
        self._collate_fn, self._batched = collate_fn, batched
        self._pins = loader.pin_memory and torch.cuda.is_available()
        self._producers = Producers(
            samples,
            workers=loader.num_workers,
            begin=loader.worker_init_fn,
            context=loader.multiprocessing_context,
            skips=options["on_error"] == "skip",
        )
        try:
            first = self._producers.first()
            self._layout = first.layout
            dataset = Dataset(
                len(samples),
                name_of(samples),
                first.layout,
                identity_of(samples, first, loader.share_key),
            )
            self._core = _core.Loader(*dataset.open(), **options)
            self._producers.serve(options["agent"], dataset)
        except BaseException:
            self._producers.close()
            raise
        self._core.set_watcher(self._producers.check)

    def __getattr__(self, name: str) -> Any:
        if name == "_core":
            raise AttributeError(name)
        return getattr(self._core, name)

    def start_epoch(self, epoch: int) -> None:
        self._producers.check()
        self._core.start_epoch(epoch)

    def next(self) -> Batch | None:
        try:
            batch = self._core.next()
        except SampleError as error:
            raise SampleError(self._path(error.index), error.index, error.reason) from None
        if batch is None:
            return None
        self._producers.progressed()
        return Batch(self._data(batch), batch)

    def _data(self, batch: _core.Batch) -> Any:
        layout = self._layout
        rows = from_dlpack(batch.images).view(len(batch), layout.size)
        columns = layout.columns(rows, from_dlpack(batch.labels))
        if self._batched and self._collate_fn is None:
            data = layout.build(columns, collated=True)
        else:
            samples = layout.samples(columns)
            function = default_convert if self._collate_fn is None else self._collate_fn
            data = function(samples if self._batched else samples[0])
        return pin_memory(data) if self._pins else data

    def _path(self, index: int) -> str:
        return str(self._samples.path(index))

    def skipped(self) -> list[tuple[int, int, str, str]]:
        return [
            (epoch, index, self._path(index), reason)
            for epoch, index, _, reason in self._core.skipped()
        ]

    def costs(self) -> str:
        return ""  # other jobs' processes may have made the samples

    def close(self) -> None:
        self._core.close()
        self._producers.close()
