"""Translates the datasets that the DataLoader accepts to those of the C library.

A dataset can be read natively if its samples are (path, label) pairs and no
Python code runs between file and batch. This holds for Headrace's own datasets,
for torchvision's ImageFolder and DatasetFolder with torchvision's own loader
function, and for subsets of these. torchvision is recognised by its class names
and is not imported. A subclass that changes how samples are made is refused:
reading its files natively would silently bypass its code.
"""

from __future__ import annotations

import array
from typing import Any

from torch.utils.data import Subset

from .. import _core
from .._torchvision import class_name, is_loader
from ..datasets import _ImageDataset, dataset_of_pairs, refuse_callables

_WAY_OUT = (
    "Give headrace.ImageFolder, headrace.Pack, headrace.TarDataset, headrace.ImageList (an iterable "
    "of (path, label)), torchvision's ImageFolder or DatasetFolder, or a torch.utils.data.Subset of these; or keep "
    "torch.utils.data.DataLoader for this dataset."
)


def resolve(dataset: Any) -> tuple[_core.Dataset, Any]:
    """Returns the core dataset and the transform of the user's dataset.

    Raises TypeError or ValueError that names the unsupported part.
    """
    source, transform = _resolve(dataset)
    if len(dataset) != len(source):
        raise TypeError(
            f"{class_name(dataset)} says that it has {len(dataset)} samples, but its files are "
            f"{len(source)}, which is what the native threads would read. {_WAY_OUT}"
        )
    return source, transform


def _resolve(dataset: Any) -> tuple[_core.Dataset, Any]:
    if isinstance(dataset, _ImageDataset):
        _refuse_override(dataset, _ImageDataset)
        return dataset._dataset, dataset.transform
    if isinstance(dataset, Subset):
        _refuse_override(dataset, Subset)
        parent, transform = resolve(dataset.dataset)
        return parent.subset(int64(dataset.indices)), transform
    folder = _torchvision_folder(dataset)
    if folder is not None:
        _refuse_override(dataset, folder)
        return _of_torchvision(dataset), dataset.transform
    raise TypeError(f"a dataset of type {class_name(dataset)} is not supported. {_WAY_OUT}")


def transform_of(dataset: Any) -> Any:
    """Returns the current transform of a dataset accepted by `resolve`."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset.transform


def int64(values: Any) -> array.array[int]:
    """Converts the integers of a list, range, tensor or NumPy array to an int64 buffer."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    return array.array("q", values)


def _refuse_override(dataset: Any, base: type) -> None:
    for name in ("__getitem__", "__getitems__", "__len__", "__iter__"):
        if getattr(type(dataset), name, None) is not getattr(base, name, None):
            raise TypeError(
                f"{class_name(dataset)} has its own {name}, which cannot run in the native "
                f"threads: they would read its files as if it were not there. {_WAY_OUT}"
            )


def _torchvision_folder(dataset: Any) -> type | None:
    """Returns torchvision's DatasetFolder class if the dataset is an instance, else None."""
    for cls in type(dataset).__mro__:
        if cls.__module__ == "torchvision.datasets.folder" and cls.__name__ == "DatasetFolder":
            return cls
    return None


def _of_torchvision(dataset: Any) -> _core.Dataset:
    refuse_callables(class_name(dataset), target_transform=dataset.target_transform)
    if not is_loader(dataset.loader):
        raise ValueError(
            f"the dataset's loader {dataset.loader!r} cannot run in the native threads: leave loader out "
            "(JPEG and PNG files are decoded natively), or keep torch.utils.data.DataLoader"
        )
    return dataset_of_pairs(dataset.samples)
