"""Translates datasets of images to those of the C library.

The library can read a dataset's files if its samples are (path, label) pairs and no
Python code of the dataset runs between file and transform. This holds for Headrace's own datasets,
for torchvision's ImageFolder and DatasetFolder with torchvision's own loader
function, for timm's ImageDataset with a folder of images, and for subsets of these. torchvision and
timm are recognised by their class names and are not imported. A subclass that changes how samples are
made is not translated: reading its files natively would silently bypass its code.
"""

from __future__ import annotations

import array
from typing import Any, NamedTuple

from torch.utils.data import Subset

from .. import _core
from .._torchvision import is_loader
from .._walk import class_name
from ..datasets import _ImageDataset, dataset_of_pairs


class Resolved(NamedTuple):
    source: _core.Dataset
    dataset: Any  # the user's, below all Subsets
    transform: Any
    target_transform: Any


def resolve(dataset: Any) -> Resolved:
    """Returns the core dataset and the transforms of the user's dataset.

    Raises TypeError or ValueError that says why its files cannot be read natively.
    """
    found = _resolve(dataset)
    if len(dataset) != len(found.source):
        raise TypeError(
            f"{class_name(dataset)} says that it has {len(dataset)} samples, but its files are "
            f"{len(found.source)}"
        )
    return found


def source_of(dataset: Any) -> _core.Dataset:
    """Returns the core dataset of a dataset accepted by `resolve`."""
    return resolve(dataset).source


def _resolve(dataset: Any) -> Resolved:
    if isinstance(dataset, _ImageDataset):
        _refuse_override(dataset, _ImageDataset)
        return Resolved(dataset._dataset, dataset, dataset.transform, dataset.target_transform)
    if isinstance(dataset, Subset):
        _refuse_override(dataset, Subset)
        parent = resolve(dataset.dataset)
        return parent._replace(source=parent.source.subset(int64(dataset.indices)))
    timms = _base(dataset, "timm.data.dataset", "ImageDataset")
    if timms is not None:
        return _resolve_timms(dataset, timms)
    folder = _base(dataset, "torchvision.datasets.folder", "DatasetFolder")
    if folder is None:
        raise TypeError(f"the dataset ({class_name(dataset)}) makes its samples itself{_ours(dataset)}")
    _refuse_override(dataset, folder)
    if not is_loader(dataset.loader):
        raise ValueError(f"the dataset's loader ({class_name(dataset.loader)}) reads the files")
    source = dataset_of_pairs(dataset.samples)
    return Resolved(source, dataset, dataset.transform, dataset.target_transform)


def _ours(dataset: Any) -> str:
    """Says which of Headrace's datasets reads the files of one of torchvision's."""
    name = type(dataset).__name__
    has_one = name in ("CocoDetection", "VOCDetection", "VOCSegmentation")
    if not has_one or not type(dataset).__module__.startswith("torchvision.datasets."):
        return ""
    return f"; headrace.{name} reads the same files natively"


def transform_of(dataset: Any) -> Any:
    """Returns the current transform of a dataset; None if it has none."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return getattr(dataset, "transform", None)


def int64(values: Any) -> array.array[int]:
    """Converts the integers of a list, range, tensor or NumPy array to an int64 buffer."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    return array.array("q", values)


def _refuse_override(dataset: Any, base: type) -> None:
    for name in ("__getitem__", "__getitems__", "__len__", "__iter__"):
        if getattr(type(dataset), name, None) is not getattr(base, name, None):
            raise TypeError(
                f"the dataset ({class_name(dataset)}) has its own {name}, which makes its samples"
            )


def _resolve_timms(dataset: Any, base: type) -> Resolved:
    _refuse_override(dataset, base)
    reader = dataset.reader
    readers = _base(reader, "timm.data.readers.reader_image_folder", "ReaderImageFolder")
    if readers is None:
        raise TypeError(f"the dataset's reader ({class_name(reader)}) reads the files")
    _refuse_override(reader, readers)
    mode = getattr(dataset, "input_img_mode", None)  # older ones have other names
    if dataset.load_bytes or mode != "RGB" or getattr(dataset, "additional_features", None):
        raise TypeError("the dataset gives other things than RGB images and labels")
    source = dataset_of_pairs(reader.samples)
    return Resolved(source, dataset, dataset.transform, dataset.target_transform)


def loader_of(dataset: Any) -> Any:
    """Returns the function with which torchvision or timm read an image file; None for others."""
    if _base(dataset, "timm.data.dataset", "ImageDataset") is not None:
        return _rgb
    return getattr(dataset, "loader", None)


def _rgb(path: str) -> Any:
    from PIL import Image

    with Image.open(path) as image:
        return image.convert("RGB")


def _base(value: Any, module: str, name: str) -> type | None:
    """Returns the class of that name if `value` is an instance of it or of a class made from it."""
    for cls in type(value).__mro__:
        if cls.__module__ == module and cls.__name__ == name:
            return cls
    return None
