"""Checks whether Headrace's loader can replace a script's loader.

The cost of Headrace's loader is relevant to the script only if it would yield the same batches as
the script's own dataset, transform and collate function. Anything that is not known to be equal is
an obstacle, and is reported.
"""

from __future__ import annotations

import sys
from typing import Any

from .._walk import class_name
from ..datasets import _ImageDataset
from ..prepare import Preparer


def obstacle(loader: Any) -> str:
    """Returns why Headrace's loader cannot replace this one; ``""`` if it can."""
    if hasattr(loader, "_measured_copy"):  # it is Headrace's loader, all native
        return ""
    if hasattr(loader, "_headrace_why"):
        return f"it is Headrace's already, and this runs in Python: {loader._headrace_why}"
    from torch.utils import data

    if not isinstance(loader, data.DataLoader):
        return f"{class_name(loader)} is not torch's DataLoader"
    usual = (data._utils.collate.default_collate, data._utils.collate.default_convert)
    if loader.collate_fn not in usual:
        return "it has a collate_fn of its own"
    if not loader._auto_collation:
        return "it does not collate samples into batches"
    dataset = loader.dataset
    while type(dataset) is data.Subset:
        dataset = dataset.dataset
    if isinstance(dataset, _ImageDataset):
        return ""
    return _dataset_obstacle(dataset) or _transform_obstacle(dataset.transform)


def _dataset_obstacle(dataset: Any) -> str:
    """Returns why Headrace cannot read the dataset; ``""`` for torchvision's folders without
    overridden methods."""
    folder = sys.modules.get("torchvision.datasets.folder")
    own = getattr(folder, "DatasetFolder", None)
    name = class_name(dataset)
    if own is None or not isinstance(dataset, own):
        return f"Headrace cannot read the dataset, {name}"
    if type(dataset).__getitem__ is not own.__getitem__:
        return f"the dataset, {name}, has a __getitem__ of its own"
    if dataset.loader not in (folder.default_loader, folder.pil_loader):  # type: ignore[union-attr]
        return "the dataset opens files with a function of its own"
    if dataset.target_transform is not None:
        return "the dataset has a target_transform"
    return ""


def _transform_obstacle(transform: Any) -> str:
    if transform is None:
        return "the dataset has no transform"
    try:
        Preparer(transform)
    except (TypeError, ValueError, NotImplementedError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        return f"Headrace does not have its transform: {lines[0]}"
    return ""
