"""Rows: what a dataset knows of its samples besides their bytes, from Python's values to columns."""

from __future__ import annotations

import array
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import _core
from ._torchvision import other_mask_fills
from .transforms import make

# Columns with these names hold geometry, which transforms move with the pixels.
_BOXES, _POINTS = "boxes", "keypoints"
_TYPES = ("uint8", "float16", "float32", "int64", "int32", "float64", "bool")
# A column as the C library takes it: name, type, role, shape of a value, buffer.
_Column = tuple[str, str, str, tuple[int, ...], Any]


def with_rows(dataset: _core.Dataset, rows: Iterable[Mapping[str, Any]]) -> _core.Dataset:
    """Returns the dataset with the rows of its samples: one mapping for each, of equal keys.

    A number is one value for the sample. Anything else has one entry for each of its rows, and all of
    a sample's have equally many: lists, NumPy arrays, tensors.
    """
    columns, offsets = columns_of(list(rows), len(dataset))
    return dataset.with_rows(columns, offsets)


def columns_of(
    rows: Sequence[Mapping[str, Any]], samples: int
) -> tuple[list[_Column], array.array[int]]:
    """Returns the columns of mappings, and where each sample's rows begin."""
    import numpy

    if len(rows) != samples:
        raise ValueError(f"rows has {len(rows)} entries for {samples} samples: give one for each")
    names = tuple(rows[0]) if rows else ()
    offsets = array.array("q", [0])
    parts: dict[str, list[Any]] = {name: [] for name in names}
    are_rows: dict[str, bool] = {}
    have_type: set[str] = set()
    for i, one in enumerate(rows):
        if not isinstance(one, Mapping) or set(one) != set(names):
            raise ValueError(
                f"the rows of sample {i} must be a dict with the keys of the others: {list(names)}"
            )
        count = None
        for name in names:
            value = _array(one[name], name, i)
            if are_rows.setdefault(name, value.ndim > 0) != (value.ndim > 0):
                raise ValueError(
                    f"{name!r} of sample {i} is a number and others are lists, or the reverse"
                )
            parts[name].append(value)
            if value.size or hasattr(one[name], "dtype"):
                have_type.add(name)
            if value.ndim and count is not None and len(value) != count:
                raise ValueError(
                    f"sample {i} has {count} rows by one key and {len(value)} by {name!r}"
                )
            count = len(value) if value.ndim else count
        offsets.append(offsets[-1] + (count or 0))
    columns = [
        _column(numpy, name, parts[name], are_rows[name], name in have_type) for name in names
    ]
    return columns, offsets


def _array(value: Any, name: str, sample: int) -> Any:
    import numpy

    own = not hasattr(value, "dtype")
    if hasattr(value, "detach"):
        value = value.detach().cpu()  # a tensor, of which only the numbers are wanted
    try:
        out = numpy.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name!r} of sample {sample}: {error}") from None
    if own and not out.size:
        return out.astype(numpy.bool_)  # of no type: it takes any other's
    if own and out.dtype == numpy.float64:
        return out.astype(numpy.float32)  # as torch takes Python's floats
    if str(out.dtype) not in _TYPES:
        raise ValueError(
            f"{name!r} of sample {sample} has the type {out.dtype}: use one of {', '.join(_TYPES)}"
        )
    return out


def _column(numpy: Any, name: str, values: list[Any], has_rows: bool, has_type: bool) -> _Column:
    """Returns the column of one array for each sample. Empty ones count if all are: an empty list
    has no type of its own, an empty array has one."""
    typed = [value for value in values if value.size] or values
    dtype = numpy.result_type(*{value.dtype for value in typed})
    shape = typed[0].shape[1:] if has_rows else ()
    if name == _BOXES:
        dtype, shape = numpy.dtype("float32"), (4,)
    elif name == _POINTS:
        dtype = numpy.dtype("float32")
    elif name == "labels" and not has_type:
        dtype = numpy.dtype("int64")  # no sample has a row
    elif not has_type and has_rows:
        raise ValueError(
            f"no sample has a value of {name!r}, so its type is not known: give empty arrays of "
            "that type, such as numpy.zeros(0, numpy.int64)"
        )
    for i, value in enumerate(values):
        if has_rows and value.size and value.shape[1:] != shape:
            raise ValueError(
                f"{name!r} of sample {i} has rows of the shape {value.shape[1:]}, and others of "
                f"{shape}"
            )
    flat = [value.reshape(-1, *shape) for value in values if value.size or len(shape) == 0]
    data = numpy.concatenate(flat) if flat else numpy.empty((0, *shape))
    role = {_BOXES: "box", _POINTS: "points"}.get(name, "value") if has_rows else "sample"
    data = numpy.ascontiguousarray(data, dtype=dtype)
    return name, str(dtype), role, tuple(int(side) for side in shape), data


def with_labels(dataset: _core.Dataset, labels: Sequence[Any]) -> _core.Dataset:
    """Returns the dataset with labels of any type and one shape: numbers, vectors, matrices."""
    import numpy

    parts = [_array(label, "label", i) for i, label in enumerate(labels)]
    shapes = {part.shape for part in parts}
    if len(shapes) > 1:
        raise ValueError(
            f"labels have different shapes, {sorted(shapes)[0]} and {sorted(shapes)[-1]}: give "
            "those of any number as rows="
        )
    data = numpy.ascontiguousarray(numpy.stack(parts))
    column = ("labels", str(data.dtype), "sample", tuple(data.shape[1:]), data)
    return dataset.with_rows([column], array.array("q", [0] * (len(parts) + 1)))


def target_of(
    dataset: _core.Dataset, index: int, found: Mapping[str, _core.Array] | None = None
) -> Any:
    """Returns what a sample has beside its image: its mask, its label, or its rows as a dict; masks
    and rows as NumPy arrays, copies. ``found``: masks and rows after a recipe; None: rows as they are
    stored."""
    import numpy

    if dataset.masks is None and not dataset.columns():
        return dataset.label(index)
    found = dataset.rows(index) if found is None else found
    arrays = {name: numpy.asarray(value) for name, value in found.items()}
    if dataset.masks is not None:
        return arrays["masks"]
    return arrays["labels"] if is_label(dataset) else arrays


def has_labels(dataset: _core.Dataset) -> bool:
    """Returns whether the rows have a column "labels", in the place of the dataset's own labels."""
    return any(name == "labels" for name, *_ in dataset.columns())


def label_of(dataset: _core.Dataset, index: int) -> Any:
    """Returns a sample's label: a whole number, or what the rows have in its place."""
    if not has_labels(dataset):
        return dataset.label(index)
    import numpy

    return numpy.asarray(dataset.rows(index)["labels"])[()]


def is_label(dataset: _core.Dataset) -> bool:
    """Returns whether all that a dataset with rows has is one label for each sample."""
    columns = dataset.columns()
    return len(columns) == 1 and columns[0][0] == "labels" and columns[0][2] == "sample"


def refuse_tail(dataset: _core.Dataset) -> None:
    """Raises NotImplementedError where Python transforms would move pixels and not the boxes."""
    moved = moves(dataset)
    if moved:
        raise NotImplementedError(
            f"{', '.join(moved)} have to move with the pixels, which only native transforms do: "
            "leave the others out, or set transform to None"
        )


def warn_of_fills(dataset: _core.Dataset, transform: Any) -> None:
    """Warns where a transform of another library would fill masks with another number than 255."""
    if dataset.masks is None or transform is None:
        return
    fills = other_mask_fills(transform, make)
    if fills:
        warnings.warn(
            f"other libraries' transforms fill what they add to masks ({', '.join(fills)}), and here "
            "it becomes 255, the index that losses ignore. Say that you want this: torchvision's "
            "fill={tv_tensors.Image: 0, tv_tensors.Mask: 255}, Albumentations' fill_mask=255. For "
            "another index, replace 255 in the batches' masks, if they have none of their own",
            stacklevel=2,
        )


def moves(dataset: _core.Dataset) -> list[str]:
    """Returns the names of what transforms have to move with the pixels."""
    moved = [name for name, _, role, _ in dataset.columns() if role in ("box", "points")]
    return moved if dataset.masks is None else ["masks"]
