"""Datasets: image folders, lists of files, packs, tar files and Parquet tables.

All are map-style datasets with torchvision's attributes, so that code written for
``torchvision.datasets.ImageFolder`` works with them. They hold no Python object per sample:
names and labels stay in the C library, and ``samples`` and ``targets`` are views.
"""

from __future__ import annotations

import array
import operator
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Self, SupportsIndex, TypeVar, overload

from . import _core, _rows, transforms as _transforms
from ._pipeline import Pipeline
from .prepare import drawn_seed

__all__ = ["BadSample", "ImageFolder", "ImageList", "Pack", "ParquetDataset", "TarDataset"]

# enum hr_index_policy
_INDEX = {"user": 0, "beside": 1, "none": 2, None: 2}

_T = TypeVar("_T", covariant=True)


@dataclass(frozen=True)
class BadSample:
    """A sample that could not be decoded."""

    index: int
    path: str
    reason: str


class _View(Sequence[_T], Generic[_T]):
    """A read-only sequence over a dataset; equal to lists of the same contents."""

    def __init__(self, dataset: _core.Dataset) -> None:
        self._dataset = dataset

    def _get(self, index: int) -> _T:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._dataset)

    @overload
    def __getitem__(self, index: SupportsIndex) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> list[_T]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> _T | list[_T]:
        if isinstance(index, slice):
            return [self._get(i) for i in range(*index.indices(len(self)))]
        return self._get(_position(index, len(self)))

    def __iter__(self) -> Iterator[_T]:
        return map(self._get, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (_View, list, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(repr(x) for x in self[:3])
        return f"[{shown}{', ...' if len(self) > 3 else ''}] ({len(self)})"


class _Samples(_View[tuple[str, int]]):
    def _get(self, index: int) -> tuple[str, int]:
        return self._dataset.path(index), _rows.label_of(self._dataset, index)


class _Keys(_View[str]):
    def _get(self, index: int) -> str:
        return self._dataset.key(index)


class _Targets(_View[int]):
    def _get(self, index: int) -> int:
        return _rows.label_of(self._dataset, index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy

        has_others = _rows.has_labels(self._dataset)
        labels = numpy.asarray(list(self) if has_others else self._dataset.labels())
        return labels if dtype is None else labels.astype(dtype)


class _ImageDataset:
    """Base of all image datasets."""

    _dataset: _core.Dataset
    transform: Any
    target_transform: Any = None
    _sounds = False  # the samples are sounds
    _fields_are_given = True  # False: opening the dataset again finds rows and masks

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._dataset)

    def __getitem__(self, index: SupportsIndex) -> tuple[Any, Any]:
        """Reads and decodes one sample on the calling thread; returns (image, label).

        With rows the label is a dict of NumPy arrays, by column; boxes are moved with the pixels.
        With masks it is the mask, uint8, (height, width).

        The image is a NumPy array, or a :class:`headrace.Array` for bfloat16, which NumPy lacks.
        With a transform it is the transform's result, (3, height, width), or what its last part
        gives if that runs in Python. Without one it has all pixels, uint8, (3, height, width).

        Random parameters differ with every access, in worker processes too. As with torchvision's
        transforms, they come from torch's generator, or from Python's if torch is not imported.
        """
        i = _position(index, len(self))
        try:
            image, label = self._prepare(self._dataset.read(i), i)
            if self.target_transform is not None:
                label = self.target_transform(label)
            return image, label
        except (ValueError, NotImplementedError) as error:
            from ._errors import SampleError

            reason = str(error)
            if reason.startswith(f"sample {i} ("):
                reason = reason.split("): ", 1)[-1]
            raise SampleError(self._dataset.path(i), i, reason) from error

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return map(self.__getitem__, range(len(self)))

    def _prepare(self, data: bytes, index: int) -> tuple[Any, Any]:
        """Returns the image and the label, or what takes its place."""
        local = self.__dict__.setdefault("_local", threading.local())
        if getattr(local, "transform", self) is not self.transform:
            # First call on this thread, or the transform was replaced.
            local.preparer = _core.Preparer()
            local.recipe, local.is_random, local.pipeline = None, False, None
            if self.transform is not None and _is_native(self.transform):
                _rows.warn_of_fills(self._dataset, self.transform)
                local.recipe = _recipe_of_one_size(self.transform)
                local.is_random = _transforms.is_random(self.transform)
            elif self.transform is not None:
                local.pipeline = Pipeline(self.transform)
            local.transform = self.transform
        dataset = self._dataset
        if local.pipeline is not None:
            _rows.refuse_tail(dataset)
            target = _rows.target_of(dataset, index)
            head = local.pipeline.run_head(data, drawn_seed(), 0, index)
            return local.pipeline.run_tail(head), target
        if self.transform is None and dataset.masks is None:
            return self._decode(local.preparer, data), _rows.target_of(dataset, index)
        image, found = self._run(local, data, index)
        return image, _rows.target_of(dataset, index, found)

    def _run(self, local: threading.local, data: bytes, index: int) -> tuple[Any, Any]:
        """Returns what the recipe makes of a sample: the image, and what is left of its rows, or its
        mask."""
        masks = self._dataset.masks
        given = {"dataset": self._dataset, "mask": None if masks is None else masks.read(index)}
        seed, refused = drawn_seed() if local.is_random else 0, None
        for recipe in self._recipes(local, data):
            try:
                image, fields = local.preparer.run(recipe, data, seed, 0, index, **given)
                break
            except ValueError as error:
                refused = error
        else:
            raise refused
        if isinstance(image, tuple):  # of views
            return [_cut(view, view.shape[-2:]) for view in image], fields
        sides = local.preparer.extents[-2:]
        if "masks" in fields:
            fields["masks"] = _cut(fields["masks"], sides)
        return _cut(image, sides), fields

    def _recipes(self, local: threading.local, data: bytes) -> Iterator[_core.Recipe]:
        """Yields recipes to try on an image in turn. If the transform makes images of several sizes,
        they have room for the image as it is, then for one whose sides are up to four times as long."""
        if local.recipe is not None:
            yield local.recipe
            return
        steps = _transforms.Identity() if self.transform is None else self.transform
        info = local.preparer.info(data)
        longest = min(4 * max(info["height"], info["width"]), 1 << 16)
        for room in ((info["height"], info["width"]), (longest, longest)):
            yield _transforms.make_recipe(steps, padded=True, max_size=room)

    def _is_sound(self, data: bytes) -> bool:
        return self._sounds

    def _decode(self, preparer: _core.Preparer, data: bytes) -> Any:
        """Returns a whole sample, without a transform."""
        import numpy

        if self._is_sound(data):
            info = preparer.sound_info(data)
            return numpy.asarray(preparer.sound_decode(data, 0, info["frames"], info["channels"]))
        return numpy.asarray(preparer.decode(data)).transpose(2, 0, 1)

    @property
    def samples(self) -> Sequence[tuple[str, int]]:
        """(path, label) of every sample; read-only. The path in a pack is "PACK:KEY"."""
        return _Samples(self._dataset)

    @property
    def imgs(self) -> Sequence[tuple[str, int]]:
        """Same as :attr:`samples`."""
        return self.samples

    @property
    def targets(self) -> Sequence[int]:
        """The label of every sample, or what the rows have as ``labels``; read-only.
        ``numpy.asarray`` converts labels that are whole numbers fast."""
        return _Targets(self._dataset)

    def sample_bytes(self, index: SupportsIndex) -> int | None:
        """Size of a sample's file or item in bytes, or ``None`` if not known yet."""
        return self._dataset.sample_bytes(_position(index, len(self)))

    def with_rows(self, rows: Iterable[Mapping[str, Any]]) -> Self:
        """Returns a copy of this dataset whose samples have rows beside their images, in place of
        those that they had.

        A DataLoader then yields ``(images, targets)``: ``targets[i]`` is a dict of tensors.

        Args:
            rows: a mapping for each sample, with equal keys. A number is one value for the sample,
                such as ``image_id``. Anything else has one entry for each row, and a sample has any
                number of rows: ``{"boxes": [[x1, y1, x2, y2], ...], "labels": [3, ...],
                "image_id": 17}``. ``boxes`` (pixels) and ``keypoints`` (K x (x, y, visibility))
                are moved with the pixels by transforms; other columns stay as they are.

        Raises:
            ValueError: an entry differs in keys, shape or type from the others, or a box is
                inverted or not finite; the message names the sample.
        """
        return self._over(_rows.with_rows(self._dataset, rows))

    def with_masks(self, masks: Iterable[str | os.PathLike[str]]) -> Self:
        """Returns a copy of this dataset whose images have masks of class indices.

        A DataLoader then yields ``(images, masks)``, masks uint8 of shape (samples, height, width).

        Args:
            masks: the path of a PNG file for each image, of a palette or of greys, as large as the
                image. Transforms move it with the pixels; what padding adds to it becomes 255.
        """
        return self._over(self._dataset.with_masks(_of_masks(masks)))

    def _over(self, dataset: _core.Dataset) -> Self:
        """Returns a copy over another core dataset, with rows or masks that were given."""
        out = object.__new__(type(self))  # copy.copy would open the dataset again, as unpickling does
        out.__dict__.update(self.__dict__, _dataset=dataset, _fields_are_given=True)
        out.__dict__.pop("_local", None)
        return out

    def verify(self, threads: int = 0) -> list[BadSample]:
        """Reads and decodes all samples and returns those that fail.

        Args:
            threads: 0: as many as this process may use cores.
        """
        return [BadSample(*bad) for bad in self._dataset.verify(threads=threads)]

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_dataset", None)
        state.pop("_local", None)
        if not self._fields_are_given:
            return state
        masks = self._dataset.masks
        if masks is not None:
            return {**state, "_masks": [masks.path(i) for i in range(len(masks))]}
        table = self._dataset.table()
        return state if table is None else {**state, "_table": table}

    def _adopt(self, dataset: _core.Dataset) -> None:
        """Takes a dataset that was opened again, and its rows or masks."""
        table = self.__dict__.pop("_table", None)
        masks = self.__dict__.pop("_masks", None)
        if masks is not None:
            dataset = dataset.with_masks(_of_masks(masks))
        if table is not None:
            columns, offsets = table
            dataset = dataset.with_rows(columns, array.array("q", offsets))
        self._dataset = dataset


def _of_masks(paths: Iterable[str | os.PathLike[str]]) -> _core.Dataset:
    return dataset_of_pairs([(path, 0) for path in paths])


class _Opened(_ImageDataset):
    """Base of datasets opened from a path; unpickling opens the path again."""

    classes: list[str]
    class_to_idx: dict[str, int]
    _has = "changed"  # verb for the error if unpickling finds a different dataset
    _fields_are_given = False

    def _opened(self) -> _core.Dataset:
        raise NotImplementedError

    def _place(self) -> str:
        raise NotImplementedError

    def _open(self) -> None:
        self._adopt(self._opened())
        self.classes = self._dataset.classes()
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_count": len(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        count = state.pop("_count")
        classes = state["classes"]
        self.__dict__.update(state)
        self._open()
        if len(self) != count or self.classes != classes:
            raise RuntimeError(
                f"{self._place()} has {self._has} since this {type(self).__name__} was pickled: "
                f"{count} samples of {len(classes)} classes then, {len(self)} of "
                f"{len(self.classes)} now"
            )

    def __repr__(self) -> str:
        return (
            f"headrace.{type(self).__name__}({self._place()!r}, samples={len(self)}, "
            f"classes={len(self.classes)}, transform={self.transform!r})"
        )


class _Container(_Opened):
    """Base of datasets whose samples are named members of a few large files."""

    def __init__(self, path: str | os.PathLike[str], transform: Any = None) -> None:
        self.path = os.fsdecode(path)
        self.transform = _checked_transform(transform)
        self._open()

    def _place(self) -> str:
        return self.path

    @property
    def keys(self) -> Sequence[str]:
        """The name of every sample in its container; read-only. In a pack: its path below the
        source's root; in tar files: the name of the image member."""
        return _Keys(self._dataset)


class ImageFolder(_Opened):
    """Images in one directory per class: ``root/class/.../image.jpg``.

    Classes, samples and their order are those of torchvision's ``ImageFolder``.
    An index file stores the names, so that the next opening need not list every
    directory. It detects changed directories and lists them again.

    Args:
        root: the directory.
        transform: transform of the images, from :mod:`headrace.transforms`, torchvision or
            your own. A DataLoader can override it. What is not native runs in Python.
        target_transform: a function of the label, which runs in Python.
        loader, is_valid_file: torchvision's arguments; refused, because the library reads
            the files.
        allow_empty: keep classes without images instead of failing.
        index: location of the index file: ``"user"`` (the user's cache directory),
            ``"beside"`` (in ``root``) or ``"none"``.
        threads: threads that list directories; 0: 16, or the number of cores if larger.

    Raises:
        FileNotFoundError: the directory does not exist, has no classes, or a class is empty.
        NotADirectoryError, PermissionError: ``root`` cannot be listed.

    Attributes:
        root: the directory as given.
        classes: class names, sorted; a label is a position in it.
        class_to_idx: label of each class name.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Any = None,
        target_transform: Callable[[int], Any] | None = None,
        loader: None = None,
        is_valid_file: None = None,
        allow_empty: bool = False,
        *,
        index: Literal["user", "beside", "none"] | None = "user",
        threads: int = 0,
    ) -> None:
        refuse_callables(
            "ImageFolder",
            loader=loader,
            is_valid_file=is_valid_file,
        )
        if index not in _INDEX:
            raise ValueError(f"index must be 'user', 'beside' or 'none', got {index!r}")
        self.root = os.fsdecode(root)
        self.transform = _checked_transform(transform)
        if target_transform is not None:
            self.target_transform = target_transform
        self.allow_empty = bool(allow_empty)
        self.index = index
        self._threads = threads
        self._open()

    _threads = 0

    def _opened(self) -> _core.Dataset:
        return _core.Dataset.open_folder(
            self.root,
            index=_INDEX[self.index],
            threads=self._threads,
            allow_empty=self.allow_empty,
            sounds=self._sounds,
        )

    def _place(self) -> str:
        return self.root


class ImageList(_ImageDataset):
    """Images from an explicit list.

    Args:
        source: a list file, one sample per line, ``path label`` (paths relative to
            the file), or an iterable of (path, label). Labels are whole numbers, or all are
            numbers, vectors or matrices of one shape: NumPy arrays, tensors or lists. With
            ``rows`` or ``masks`` paths are enough.
        transform: as of :class:`ImageFolder`.
        rows: as of :meth:`with_rows`.
        masks: as of :meth:`with_masks`.

    Raises:
        ValueError: a line or entry is not a path and a label; those of :meth:`with_rows`.
        FileNotFoundError: the list file does not exist.
    """

    def __init__(
        self,
        source: str
        | os.PathLike[str]
        | Iterable[str | os.PathLike[str] | tuple[str | os.PathLike[str], Any]],
        transform: Any = None,
        *,
        rows: Iterable[Mapping[str, Any]] | None = None,
        masks: Iterable[str | os.PathLike[str]] | None = None,
    ) -> None:
        self.transform = _checked_transform(transform)
        if isinstance(source, (str, bytes, os.PathLike)):
            self._dataset = _core.Dataset.open_list(source)
        else:
            if rows is not None or masks is not None:
                source = [(one, 0) if isinstance(one, (str, os.PathLike)) else one for one in source]
            self._dataset = _list_of_pairs(source)
        if masks is not None:
            self._dataset = self._dataset.with_masks(_of_masks(masks))
        if rows is not None:
            self._dataset = _rows.with_rows(self._dataset, rows)

    def __getstate__(self) -> dict[str, Any]:
        one = self._dataset
        samples = [(one.path(i), one.label(i)) for i in range(len(self))]
        return {**super().__getstate__(), "_samples": samples}

    def __setstate__(self, state: dict[str, Any]) -> None:
        samples = state.pop("_samples")
        self.__dict__.update(state)
        self._adopt(dataset_of_pairs(samples))

    def __repr__(self) -> str:
        return (
            f"headrace.{type(self).__name__}(samples={len(self)}, transform={self.transform!r})"
        )


class Pack(_Container):
    """A dataset in one file, written by ``headrace pack`` or :func:`headrace.pack`.

    Classes, labels, keys and order equal those of the source dataset, and so do the
    batches, bit for bit.

    Args:
        path: the pack.
        transform: as of :class:`ImageFolder`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a pack, or is damaged.
        RuntimeError: the pack is not finished.

    Attributes:
        path: the pack as given.
        classes: class names, sorted; a label is a position in it. Empty for a pack
            of a list.
        class_to_idx: label of each class name.
    """

    _has = "been replaced"

    def _opened(self) -> _core.Dataset:
        return _core.Dataset.open_pack(self.path)

    def _is_sound(self, data: bytes) -> bool:
        return _core.is_sound(data)


class TarDataset(_Container):
    """Images in tar files: WebDataset's shards, or an image folder in a tar file.

    Opening scans the shards once. Images are then read by random access, so
    shuffling is as good as with a folder.

    Args:
        path: a tar file, or a brace pattern for several:
            ``"train-{000000..000146}.tar"``.
        transform: as of :class:`ImageFolder`.
        label: the field with the label, which is the rest of a member's name: ``"cls"``
            holds a whole number; ``"json:class_id"`` is the member ``class_id`` of the
            JSON object in the field ``json``; ``"none"``: every label is 0.

    Samples have the order of the shards and their members. If there are ``.cls``
    members, a sample is an image and the ``.cls`` member of the same name, which
    holds its label, unless ``label`` names another. Otherwise an image's directory is
    its class. Other members are ignored.

    Raises:
        FileNotFoundError: a shard does not exist.
        ValueError: a shard is damaged or compressed, or an image has no label.

    Attributes:
        path: as given.
        label: as given.
        classes: class names, sorted; empty if labels do not come from directories.
        class_to_idx: label of each class name.
    """

    def __init__(
        self, path: str | os.PathLike[str], transform: Any = None, *, label: str | None = None
    ) -> None:
        self.label = label
        super().__init__(path, transform)

    def _opened(self) -> _core.Dataset:
        return _core.Dataset.open_tar(self.path, label=self.label, sounds=self._sounds)


class ParquetDataset(_Opened):
    """Images in Parquet tables, as Hugging Face's ``datasets`` writes them.

    Opening reads where each image is in its file, without pyarrow. Images are then
    read by random access, so shuffling is as good as with a folder.

    Args:
        path: a table, a folder of tables of one split, a pattern
            (``"data/train-*.parquet"``, ``"train-{00000..00041}-of-00042.parquet"``), or
            several of these.
        transform: as of :class:`ImageFolder`.
        label: the column with the label, a whole number; ``None``: the only ``ClassLabel``,
            or the column ``label``; ``"none"``: every label is 0.
        image: the column of images; ``None``: the only one, or the column ``image``.

    Samples have the order of the files and their rows. A column of images is an ``Image`` of
    ``datasets``, or has bytes or structs with a member ``bytes``. It must not be compressed:
    ``datasets`` 5 writes it so. A row whose image is null is a bad sample.

    Raises:
        FileNotFoundError: a table does not exist, or has no row.
        NotImplementedError: the images are compressed, or the file is no Parquet table.
        ValueError: a table is damaged, lacks such columns, or differs from the others.

    Attributes:
        path: as given.
        label, image: as given.
        classes: names of the ``ClassLabel``, by label; empty without one, or if some
            label is none of them.
        class_to_idx: label of each class name.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        transform: Any = None,
        *,
        label: str | None = None,
        image: str | None = None,
    ) -> None:
        one = isinstance(path, (str, bytes, os.PathLike))
        self.path = os.fsdecode(path) if one else [os.fsdecode(p) for p in path]
        self.label, self.image = label, image
        self.transform = _checked_transform(transform)
        self._open()

    def _opened(self) -> _core.Dataset:
        paths = [self.path] if isinstance(self.path, str) else self.path
        return _core.Dataset.open_parquet(paths, label=self.label, image=self.image)

    def _place(self) -> str:
        return self.path if isinstance(self.path, str) else ", ".join(self.path)

    @property
    def keys(self) -> Sequence[str]:
        """The name of every sample: its file's, and its row; read-only."""
        return _Keys(self._dataset)


def _list_of_pairs(pairs: Iterable[Any]) -> _core.Dataset:
    """As :func:`dataset_of_pairs`, for labels of any type."""
    listed: list[tuple[Any, Any]] = []
    for i, pair in enumerate(pairs):
        try:
            path, label = pair
        except (TypeError, ValueError):
            raise ValueError(f"sample {i} must be a path and a label, got {pair!r}") from None
        listed.append((path, label))
    if all(_is_whole(label) for _, label in listed):
        return dataset_of_pairs(listed)
    plain = dataset_of_pairs((path, 0) for path, _ in listed)
    return _rows.with_labels(plain, [label for _, label in listed])


def _is_whole(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def dataset_of_pairs(pairs: Iterable[tuple[Any, int]]) -> _core.Dataset:
    """Makes a core dataset of (path, label) pairs."""
    paths: list[Any] = []
    labels = array.array("q")
    for i, pair in enumerate(pairs):
        try:
            path, label = pair
            labels.append(label)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(
                f"sample {i} must be a path and a whole number, got {pair!r}"
            ) from None
        paths.append(path)
    return _core.Dataset.from_paths(paths, labels)


def refuse_callables(who: str, **arguments: Any) -> None:
    """Raises if one of torchvision's arguments for Python functions is given."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(
                f"{who}: {name} is not supported, because the library reads the files. Leave it "
                "out, or list the files yourself for headrace.ImageList."
            )


def _checked_transform(transform: Any) -> Any:
    """Returns the transform unchanged; raises now if it can never run."""
    if transform is not None and not _is_native(transform):
        Pipeline(transform)
    return transform


def _recipe_of_one_size(transform: Any) -> _core.Recipe | None:
    """Returns the recipe of a transform; None if it makes images of several sizes."""
    try:
        return _transforms.make_recipe(transform)
    except ValueError as error:
        try:
            _transforms.make_recipe(transform, padded=True, max_size=1)
        except ValueError:
            raise error from None
        return None


def _cut(array: _core.Array, sides: tuple[int, ...]) -> Any:
    """Returns a NumPy array of the upper left part, whose height and width are ``sides``. bfloat16,
    which NumPy lacks, stays an Array."""
    import numpy

    is_whole = tuple(array.shape[-2:]) == tuple(sides)
    if array.dtype == "bfloat16":
        if is_whole:
            return array
        raise NotImplementedError(
            "NumPy has no bfloat16, of which images of several sizes would be parts: use another "
            "dtype here, or a DataLoader with collate='list'"
        )
    found = numpy.asarray(array)
    return found if is_whole else found[..., : sides[-2], : sides[-1]].copy()


def _is_native(transform: Any) -> bool:
    """Returns whether all of a transform is native. Raises TypeError if it is none."""
    try:
        _transforms.as_transform(transform)
    except ValueError:
        return False
    return True


def _position(index: SupportsIndex, count: int) -> int:
    """Converts an integer, also NumPy's or torch's, to a checked position below ``count``."""
    try:
        index = operator.index(index)
    except TypeError:
        raise TypeError(f"a sample's index must be a whole number, got {index!r}") from None
    if not -count <= index < count:
        raise IndexError(f"sample {index} of {count}")
    return index + count if index < 0 else index
