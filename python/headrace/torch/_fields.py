"""What the training loop gets of a batch: its fields, as tensors, in a tuple or a dict."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from .. import _core
from . import _arguments as arguments, _sizes as sizes
from ._adaptable import Adaptable
from ._mix import Mix
from ._targets import targets_of


class Fields(Adaptable):
    """The part of the DataLoader that makes tensors of a batch."""

    names: tuple[str, ...] | None
    layout: str
    collate: str | None
    return_index: bool
    return_path: bool
    _mix: Mix | None
    _pin_by_copy: bool  # the native loader's memory is not page-locked, and batches have to be

    def _tensors(self, batch: Any) -> Any:
        """Returns what the training loop gets of a batch."""
        if isinstance(batch, _core.Batch):
            fields = self._native_tensors(batch)
            if self._choice.collates:
                fields = self._collated(fields)
            return arguments.named(self.names, fields)
        fields: Any = batch.data
        index = None
        if self.return_index:
            index = batch.indices
            fields = arguments.with_field(fields, "index", torch.tensor(index))
        if self.return_path:
            paths = [self._source.path(i) for i in batch.indices]
            fields = arguments.with_field(fields, "path", paths)
        return arguments.named(self.names, fields)

    def _collated(self, fields: tuple[Any, ...]) -> Any:
        """Passes a batch's samples to the user's collate_fn."""
        images = fields[0]
        if self.collate is None and isinstance(images, list):  # of views
            images = list(zip(*images))
        made = self.collate_fn(list(zip(images, fields[1])))
        names = ["index"] * self.return_index + ["path"] * self.return_path
        for name, value in zip(names, fields[2:]):
            made = arguments.with_field(made, name, value)
        return made

    def _native_tensors(self, batch: _core.Batch) -> tuple[Any, ...]:
        views = [from_dlpack(images) for images in batch.views]
        labels = targets_of(batch, self._pin_by_copy or self._options["pinned"])
        if labels is None:
            labels = from_dlpack(batch.labels)
            if self._mix is not None:
                labels = self._mix.labels(batch, labels)
            if self._pin_by_copy:
                labels = labels.pin_memory()
        if self.layout == "channels_last":
            views = [images.permute(0, 3, 1, 2) for images in views]
        if self.collate is not None:
            how = "list" if self._choice.collates else self.collate
            images, masks = sizes.collated(how, self.layout, views[0], batch, pin=self._pin_by_copy)
        else:
            masks = None if batch.masks is None else from_dlpack(batch.masks)
            if self._pin_by_copy:
                views = [images.pin_memory() for images in views]
                masks = None if masks is None else masks.pin_memory()
            images = views[0] if len(views) == 1 else views
        if masks is not None:
            labels = masks
        out: tuple[Any, ...] = (images, labels)
        if self.return_index or self.return_path:
            index = from_dlpack(batch.indices)
            if self.return_index:
                out += (index,)
            if self.return_path:
                out += ([self._source.path(i) for i in index.tolist()],)
        return out
