"""Native reading of the images of Hugging Face's ``datasets.Dataset``.

``datasets`` keeps a dataset in Arrow files, which it maps into memory and does not compress. So
the bytes of each image are a range of a file. The process's map of memory tells which.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from . import _core
from .datasets import _checked_transform, _ImageDataset, _Keys

__all__ = ["ArrowDataset"]

_MIXED = (
    "ArrowDataset: some images are in the dataset, and others in files or nowhere; embed them all "
    "(Dataset.push_to_hub does), or filter the rest"
)


class ArrowDataset(_ImageDataset):
    """The images of a ``datasets.Dataset``, read from its Arrow files by the library.

    Args:
        dataset: what ``datasets.load_dataset`` or ``load_from_disk`` returned, for one split;
            also after ``select``, ``filter``, ``shuffle`` or ``train_test_split``. Its own
            ``set_transform`` and ``with_format`` do not apply.
        transform: as of :class:`ImageFolder`.
        image: the column of images; ``None``: the only ``Image``, or the column ``image``.
        label: the column with the label, a whole number; ``None``: the only ``ClassLabel``,
            or the column ``label``; ``"none"``: every label is 0.

    Samples have the order of the dataset. If its rows name files of images instead of holding
    them, as those of ``load_dataset("imagefolder")``, the files are read.

    Raises:
        TypeError: it is no ``datasets.Dataset``.
        ValueError: it lacks such columns, has a null label, or its images are in memory only.

    Attributes:
        classes: names of the ``ClassLabel``, by label; empty without one.
        class_to_idx: label of each class name.
    """

    def __init__(
        self,
        dataset: Any,
        transform: Any = None,
        *,
        image: str | None = None,
        label: str | None = None,
    ) -> None:
        features = getattr(dataset, "features", None)
        if not hasattr(dataset, "data") or not hasattr(features, "items"):
            raise TypeError(
                f"ArrowDataset takes one split of a datasets.Dataset, got {type(dataset).__name__}"
            )
        self.transform = _checked_transform(transform)
        image = _image_column(features, image)
        label = _label_column(features, label)
        self.classes: list[str] = list(getattr(features.get(label), "names", ()))
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self._source = _rows(dataset, image, label)
        self._open()

    def _open(self) -> None:
        paths, rows = self._source
        if rows.ndim == 1:
            self._dataset = _core.Dataset.from_paths(paths, rows)
        else:
            self._dataset = _core.Dataset.from_ranges(paths, rows.reshape(-1))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    @property
    def keys(self) -> Any:
        """The name of every sample: its file's, and its position in the dataset; read-only."""
        return _Keys(self._dataset)

    def __repr__(self) -> str:
        return (
            f"headrace.ArrowDataset(samples={len(self)}, classes={len(self.classes)}, "
            f"transform={self.transform!r})"
        )


def _one(names: list[str], usual: str, what: str, features: Any) -> str:
    """Chooses the only column, or the one with the usual name."""
    if len(names) == 1:
        return names[0]
    if usual in names:
        return usual
    found = "several columns" if names else "no column"
    raise ValueError(f"ArrowDataset: the dataset has {found} of {what}; its columns are "
                     f"{', '.join(features)}. Name one: {usual}=...")


def _image_column(features: Any, image: str | None) -> str:
    if image is None:
        names = [name for name, kind in features.items() if type(kind).__name__ == "Image"]
        image = _one(names, "image", "images", features)
    if type(features.get(image)).__name__ != "Image":
        raise ValueError(f"ArrowDataset: the column {image!r} holds no images; its feature is "
                         f"{features.get(image)!r}")
    return image


def _label_column(features: Any, label: str | None) -> str | None:
    if label == "none":
        return None
    if label is None:
        names = [name for name, kind in features.items() if type(kind).__name__ == "ClassLabel"]
        if not names and "label" in features:
            names = ["label"]
        label = _one(names, "label", "labels", features)
    if label not in features:
        raise ValueError(f"ArrowDataset: no column {label!r}; its columns are "
                         f"{', '.join(features)}")
    return label


def _rows(dataset: Any, image: str, label: str | None) -> tuple[list[str], Any]:
    """Returns the files, and where each image is: one row (file, offset, bytes, label) for each
    sample, or only the labels of files that are images."""
    import numpy

    table = dataset.data.table if hasattr(dataset.data, "table") else dataset.data
    labels = _labels(table, label)
    places = _Places()
    parts = [places.of(chunk) for chunk in table.column(image).chunks]
    rows = numpy.zeros((len(labels), 4), numpy.int64)
    if parts:
        rows[:, :3] = numpy.concatenate(parts)
    rows[:, 3] = labels
    indices = getattr(dataset, "_indices", None)
    chosen = numpy.arange(len(rows)) if indices is None else indices.column(0).to_numpy()
    if not len(chosen):
        raise ValueError("ArrowDataset: the dataset has no row")
    if not places.names:
        return places.paths, rows[chosen]
    if len(places.names) != len(rows) or None in places.names:
        raise ValueError(_MIXED)
    return [places.names[i] for i in chosen], rows[chosen, 3]


def _labels(table: Any, label: str | None) -> Any:
    import numpy
    import pyarrow.types

    if label is None:
        return numpy.zeros(table.num_rows, numpy.int64)
    column = table.column(label)
    if not pyarrow.types.is_integer(column.type):
        raise ValueError(
            f"ArrowDataset: the column {label!r} holds no label: it must hold one whole number in "
            "each row (Dataset.class_encode_column makes numbers of texts)"
        )
    if column.null_count:
        raise ValueError(f"ArrowDataset: the column {label!r} has a row without a label (null)")
    return column.cast("int64").to_numpy()


@dataclass
class _Mapping:
    """Part of a file in memory."""

    start: int
    end: int
    offset: int  # in the file
    path: str


class _Places:
    """Finds where the bytes of arrays are in files."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.names: list[str | None] = []  # of images that are files, if there are any
        self._mappings = _mappings()

    def of(self, chunk: Any) -> Any:
        """Returns (file, offset, bytes) for each row of a chunk of structs of bytes and path."""
        import numpy
        import pyarrow.types

        names = [field.name for field in chunk.type]
        members = dict(zip(names, chunk.flatten(), strict=True))
        data = members["bytes"]
        rows = numpy.zeros((len(data), 3), numpy.int64)
        nulls = data.is_null().to_numpy(zero_copy_only=False)
        if nulls.all() and len(data):
            self.names += members["path"].to_pylist()
            return rows
        if nulls.any() and members["path"].filter(data.is_null()).null_count < nulls.sum():
            raise ValueError(_MIXED)
        wide = pyarrow.types.is_large_binary(data.type)
        if not wide and not pyarrow.types.is_binary(data.type):
            raise ValueError(f"ArrowDataset: images of the type {data.type} are not supported")
        _, offsets, content = data.buffers()
        ends = numpy.frombuffer(offsets, numpy.int64 if wide else numpy.int32)
        ends = ends[data.offset : data.offset + len(data) + 1].astype(numpy.int64)
        if not len(data) or ends[-1] == ends[0]:
            return rows
        rows[:, 0], base = self._locate(content)
        rows[:, 1] = base + ends[:-1]
        rows[:, 2] = numpy.where(nulls, 0, ends[1:] - ends[:-1])
        self._check(rows[0], content, int(ends[0]))
        return rows

    def _locate(self, content: Any) -> tuple[int, int]:
        """Returns the file of a buffer, and its offset in it."""
        at = bisect_right([m.start for m in self._mappings], content.address) - 1
        found = self._mappings[at] if at >= 0 else None
        if found is None or content.address + content.size > found.end:
            raise ValueError(
                "ArrowDataset: the images are only in memory, in no Arrow file that the library "
                "could read; save_to_disk and load_from_disk put them in one"
            )
        if found.path not in self.paths:
            self.paths.append(found.path)
        return self.paths.index(found.path), found.offset + content.address - found.start

    def _check(self, row: Any, content: Any, start: int) -> None:
        """Compares the first bytes of an image with those in its file."""
        bytes_ = min(int(row[2]), 64)
        with open(self.paths[int(row[0])], "rb") as file:
            same = os.pread(file.fileno(), bytes_, int(row[1]))
        if same != content[start : start + bytes_].to_pybytes():
            raise ValueError(f"ArrowDataset: {self.paths[int(row[0])]} was replaced since the "
                             "dataset was loaded; load it again")


def _mappings() -> list[_Mapping]:
    """Lists the files in this process's memory, by address (proc_pid_maps(5))."""
    found = []
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            fields = line.rstrip(b"\n").split(None, 5)
            if len(fields) < 6 or not fields[5].startswith(b"/"):
                continue
            start, end = (int(n, 16) for n in fields[0].split(b"-"))
            path = fields[5].replace(b"\\012", b"\n")
            found.append(_Mapping(start, end, int(fields[2], 16), os.fsdecode(path)))
    return found
