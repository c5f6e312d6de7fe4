"""Datasets of images with boxes: COCO, Pascal VOC, YOLO's text files and Open Images.

Each makes a dataset with rows, one for each box. Boxes are x1, y1, x2, y2 in pixels, float32. COCO's
files, which may be large, are read in C; the others here.
"""

from __future__ import annotations

import array
import csv
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TextIO
from xml.parsers import expat

from . import _core
from .datasets import _checked_transform, _Opened

__all__ = ["CocoDetection", "OpenImagesDetection", "VOCDetection", "YoloDetection"]

_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

# Of the classes, by label, as in torchvision's wrap_dataset_for_transforms_v2.
_VOC_CLASSES = (
    "__background__ aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse "
    "motorbike person pottedplant sheep sofa train tvmonitor"
).split()

# More than any annotation file of one image needs: bytes, and elements within each other.
_MAX_XML = 16 << 20
_MAX_DEPTH = 64

# More than any line of annotations, and any header of an image, needs.
_MAX_LINE = 1 << 20
_MAX_HEADER = 64 << 20

_FLOAT32_MAX = float.fromhex("0x1.fffffep127")


class _Detection(_Opened):
    """Base: the arguments that all share."""

    _names: Sequence[str] = ()  # of classes, by label; empty: the core dataset's

    def _set_transform(
        self,
        transform: Any,
        target_transform: Callable[[Any], Any] | None,
        transforms: Any,
    ) -> None:
        who = type(self).__name__
        if transform is not None and transforms is not None:
            raise ValueError(f"{who}: give transform or transforms, which are the same here")
        if target_transform is not None:
            raise ValueError(
                f"{who}: target_transform is not supported: change targets in the training loop"
            )
        self.transform = _checked_transform(transform if transforms is None else transforms)

    def _open(self) -> None:
        super()._open()
        if self._names:
            self.classes = list(self._names)
        self.class_to_idx = {name: i for i, name in enumerate(self.classes) if name}


class CocoDetection(_Detection):
    """Images and boxes of a COCO annotation file.

    Rows have ``boxes``, ``labels``, ``area``, ``iscrowd`` and, with ``keypoints``, ``keypoints`` (K,
    3): x, y, visibility. Every sample has its ``image_id``. Samples are in the order of their ids,
    as torchvision's. Segmentations are skipped.

    Args:
        root: the folder of the images.
        annFile: the annotations: ``instances_*.json`` or ``person_keypoints_*.json``.
        transform, transforms: of images and boxes, from :mod:`headrace.transforms` or torchvision.
        target_transform: torchvision's argument; refused.
        labels: ``"ids"``: category ids, as torchvision; ``"contiguous"``: 0, 1, 2, ... in the order
            of the ids.
        keypoints: whether rows have key points.
        skip_crowds: leave annotations with ``iscrowd`` out.
        skip_empty: leave images without annotations out.

    Raises:
        FileNotFoundError: the file does not exist, or describes no image.
        ValueError: it is damaged, or an annotation cannot be used; the message names it.

    Attributes:
        classes: the name of each label; ``""`` for ids that are not used.
        class_to_idx: the label of each name.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        annFile: str | os.PathLike[str],
        transform: Any = None,
        target_transform: Callable[[Any], Any] | None = None,
        transforms: Any = None,
        *,
        labels: Literal["ids", "contiguous"] = "ids",
        keypoints: bool = False,
        skip_crowds: bool = False,
        skip_empty: bool = False,
    ) -> None:
        if labels not in ("ids", "contiguous"):
            raise ValueError(f"labels must be 'ids' or 'contiguous', got {labels!r}")
        self.root = os.fsdecode(root)
        self.annFile = os.fsdecode(annFile)
        self._set_transform(transform, target_transform, transforms)
        self._options = {
            "contiguous_labels": labels == "contiguous",
            "keypoints": bool(keypoints),
            "skip_crowds": bool(skip_crowds),
            "skip_empty": bool(skip_empty),
        }
        self._open()

    def _opened(self) -> _core.Dataset:
        return _core.Dataset.open_coco(self.root, self.annFile, **self._options)

    def _place(self) -> str:
        return self.annFile


class _Table:
    """Samples and their boxes, as they are found."""

    def __init__(self, *flags: str) -> None:
        self.paths: list[str] = []
        self.offsets = array.array("q", [0])
        self.boxes = array.array("f")
        self.labels = array.array("q")
        self.flags = {name: array.array("q") for name in flags}

    def add(self, where: str, box: Sequence[float], label: int, *flags: int) -> None:
        """Adds a row of the next sample. ``where`` names it in errors."""
        if not all(abs(side) <= _FLOAT32_MAX for side in box) or box[2] < box[0] or box[3] < box[1]:
            raise ValueError(f"{where}: the box {tuple(box)} is inverted or not finite")
        self.boxes.extend(box)
        self.labels.append(label)
        try:
            for values, flag in zip(self.flags.values(), flags):
                values.append(flag)
        except OverflowError:
            raise ValueError(f"{where}: one of {', '.join(self.flags)} is too large") from None

    def end(self, path: str) -> None:
        """Ends a sample."""
        self.paths.append(path)
        self.offsets.append(len(self.labels))

    def dataset(self) -> _core.Dataset:
        images = _core.Dataset.from_paths(self.paths, array.array("q", bytes(8 * len(self.paths))))
        columns = [
            ("boxes", "float32", "box", (4,), self.boxes),
            ("labels", "int64", "value", (), self.labels),
            *((name, "int64", "value", (), values) for name, values in self.flags.items()),
        ]
        return images.with_rows(columns, self.offsets)


class _VOC(_Detection):
    """Base of datasets in a folder ``VOCdevkit``."""

    _task: str  # the folder of lists

    def __init__(
        self,
        root: str | os.PathLike[str],
        year: str = "2012",
        image_set: str = "train",
        download: bool = False,
        transform: Any = None,
        target_transform: Callable[[Any], Any] | None = None,
        transforms: Any = None,
    ) -> None:
        if download:
            who = type(self).__name__
            raise ValueError(f"{who}: download is not supported: torchvision's can do it")
        self.root = os.fsdecode(root)
        self.year = str(year)
        self.image_set = image_set
        self._set_transform(transform, target_transform, transforms)
        self._open()

    def _place(self) -> str:
        return os.path.join(self.root, "VOCdevkit", f"VOC{self.year}")

    def _listed(self, folder: str, extension: str) -> list[tuple[str, str]]:
        """Returns the path of each image of the list, and of its file in another folder."""
        place = self._place()
        chosen = os.path.join(place, "ImageSets", self._task, f"{self.image_set}.txt")
        with open(chosen, encoding="utf-8-sig", errors="surrogateescape") as lines:
            names = [line.split()[0] for line in _lines(lines, chosen) if line.strip()]
        return [
            (f"{place}/JPEGImages/{name}.jpg", f"{place}/{folder}/{name}{extension}")
            for name in names
        ]


class VOCDetection(_VOC):
    """Images and boxes of Pascal VOC.

    Rows have ``boxes``, ``labels``, ``difficult`` and ``truncated``. Boxes are the file's xmin, ymin,
    xmax, ymax; labels those of torchvision's ``wrap_dataset_for_transforms_v2``: 1 is aeroplane.

    Args:
        root: the folder that has ``VOCdevkit``.
        year: ``"2007"`` to ``"2012"``.
        image_set: the name of a list in ``ImageSets/Main``: ``"train"``, ``"val"``, ``"trainval"``.
        download: torchvision's argument; refused.
        transform, transforms, target_transform: as of :class:`CocoDetection`.
        classes: the names of the labels, if they are others than VOC's.

    Raises:
        FileNotFoundError: the list or an annotation does not exist.
        ValueError: an annotation is damaged, or has an unknown class; the message names it.
    """

    _task = "Main"

    def __init__(
        self,
        root: str | os.PathLike[str],
        year: str = "2012",
        image_set: str = "train",
        download: bool = False,
        transform: Any = None,
        target_transform: Callable[[Any], Any] | None = None,
        transforms: Any = None,
        *,
        classes: Sequence[str] | None = None,
    ) -> None:
        self._names = list(_VOC_CLASSES if classes is None else classes)
        super().__init__(
            root, year, image_set, download, transform, target_transform, transforms
        )

    def _opened(self) -> _core.Dataset:
        table = _Table("difficult", "truncated")
        label_of = {name: i for i, name in enumerate(self._names)}
        for image, file in self._listed("Annotations", ".xml"):
            for n, found in enumerate(_voc_objects(file)):
                where = f"{file}: object {n + 1}"
                try:
                    box = [float(found[side]) for side in ("xmin", "ymin", "xmax", "ymax")]
                    flags = [int(found.get(flag, "0") or 0) for flag in ("difficult", "truncated")]
                except KeyError as missing:
                    raise ValueError(f"{where} has no {missing.args[0]}") from None
                except ValueError as wrong:
                    raise ValueError(f"{where}: {str(wrong)[:200]}") from None
                if found.get("name") not in label_of:
                    name = found.get("name", "")[:200]
                    raise ValueError(f"{where}: {name!r} is none of the classes")
                table.add(where, box, label_of[found["name"]], *flags)
            table.end(image)
        return table.dataset()


def _voc_objects(file: str) -> list[dict[str, str]]:
    """Returns the texts of each object's name, flags and box. Refuses documents that declare types
    or entities, which annotations never need."""
    objects: list[dict[str, str]] = []
    path: list[str] = []
    text: list[str] = []

    def start(tag: str, attributes: Any) -> None:
        if len(path) == _MAX_DEPTH:
            raise ValueError(f"it nests more than {_MAX_DEPTH} elements")
        path.append(tag)
        text.clear()
        if path[1:] == ["object"]:
            objects.append({})

    def end(tag: str) -> None:
        # parts of an object have names and boxes of their own, one level below
        if path[1:-1] in (["object"], ["object", "bndbox"]):
            objects[-1].setdefault(tag, "".join(text).strip())
        path.pop()
        text.clear()

    def refuse(*declaration: Any) -> None:
        raise ValueError("it declares a document type, which annotations never need")

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text.append
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    with open(file, "rb") as source:
        data = source.read(_MAX_XML + 1)
    if len(data) > _MAX_XML:
        raise ValueError(f"{file}: it is larger than {_MAX_XML >> 20} MiB")
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:  # names the place
        raise ValueError(f"{file}: {error}") from None
    except (ValueError, LookupError) as error:
        place = f"line {parser.CurrentLineNumber}"
        raise ValueError(f"{file}: {place}: {error}") from None
    return objects


def _lines(source: TextIO, file: str) -> Iterator[str]:
    """Yields the lines of a file. Refuses what no annotation has, such as a line without end."""
    n = 0
    while True:
        try:
            line = source.readline(_MAX_LINE + 1)
        except UnicodeDecodeError as error:
            raise ValueError(f"{file}: after line {n}: {error}") from None
        n += 1
        if len(line) > _MAX_LINE:
            raise ValueError(f"{file}: line {n} is longer than {_MAX_LINE} characters")
        if "\0" in line:
            raise ValueError(f"{file}: line {n}: it has a zero byte")
        if not line:
            return
        yield line


def _rows(file: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the fields of each line of a CSV file that is not empty, and its number. A field that
    goes on in the next line is refused: a quote without end would take the rest of the file."""

    def checked(source: TextIO) -> Iterator[str]:
        for n, line in enumerate(_lines(source, file), 1):
            if line.count('"') % 2:
                raise ValueError(f"{file}: line {n}: a quote does not end")
            yield line

    with open(file, newline="", encoding="utf-8-sig") as source:
        reader = csv.reader(checked(source))
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except csv.Error as error:
            raise ValueError(f"{file}: line {reader.line_num}: {error}") from None


class YoloDetection(_Detection):
    """Images with YOLO's text files: a line ``class x y width height`` for each box, in shares of the
    image's sides, around the box's centre.

    Opening reads the header of every image, for its size. An image without a text file has no box.
    Shares are of the image as it is displayed, as YOLO's tools take them; boxes are those of the
    stored image, so an EXIF orientation counts.

    Args:
        images: the folder of the images, and of folders of them.
        labels: the folder of the text files; by default the path of the images, with its last
            ``images`` replaced by ``labels``.
        transform, transforms, target_transform: as of :class:`CocoDetection`.
        classes: the names of the labels.

    Raises:
        FileNotFoundError: the folder does not exist, or has no image, or no image has a text file.
        ValueError: a line or an image's header is damaged; the message names it.
    """

    def __init__(
        self,
        images: str | os.PathLike[str],
        labels: str | os.PathLike[str] | None = None,
        transform: Any = None,
        target_transform: Callable[[Any], Any] | None = None,
        transforms: Any = None,
        *,
        classes: Sequence[str] = (),
    ) -> None:
        self.images = os.fsdecode(images)
        self.labels = _labels_beside(self.images) if labels is None else os.fsdecode(labels)
        self._names = list(classes)
        self._set_transform(transform, target_transform, transforms)
        self._open()

    def _place(self) -> str:
        return self.images

    def _opened(self) -> _core.Dataset:
        table, preparer, found = _Table(), _core.Preparer(), False
        for name in _images_below(self.images):
            path = os.path.join(self.images, name)
            file = os.path.join(self.labels, f"{os.path.splitext(name)[0]}.txt")
            info = _header(preparer, path)
            found = found or os.path.exists(file)
            for n, label, shares in _yolo_lines(file):
                where = f"{file}: line {n}"
                if self._names and label >= len(self._names):
                    raise ValueError(f"{where}: class {label} of {len(self._names)}")
                box = _stored(shares, info["orientation"])
                table.add(where, _in_pixels(box, info), label)
            table.end(path)
        if not table.paths:
            raise FileNotFoundError(f"no image below {self.images}")
        if not found:
            raise FileNotFoundError(
                f"no image below {self.images} has a text file in {self.labels}: give labels= the "
                "folder of the text files, or use ImageList for images without boxes"
            )
        return table.dataset()


def _labels_beside(images: str) -> str:
    parts = images.rstrip("/").split("/")
    if "images" not in parts:
        raise ValueError(
            f"YoloDetection: no folder of {images} is called images: give labels= the folder of "
            "the text files"
        )
    last = len(parts) - 1 - parts[::-1].index("images")
    return "/".join([*parts[:last], "labels", *parts[last + 1 :]])


def _images_below(folder: str) -> list[str]:
    """Returns the paths of all images, relative to the folder, sorted. Follows links, except for
    loops of them."""
    found: list[str] = []
    above = {folder: {_identity(folder)}}  # of a folder: itself and those that led to it

    def failed(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder, onerror=failed, followlinks=True):
        below, chain = os.path.relpath(place, folder), above.pop(place)
        for name in list(folders):
            path = os.path.join(place, name)
            if (one := _identity(path)) in chain:
                folders.remove(name)
            else:
                above[path] = {*chain, one}
        for file in files:
            if file.lower().endswith(_EXTENSIONS):
                found.append(file if below == "." else os.path.join(below, file))
    return sorted(found)


def _identity(folder: str) -> tuple[int, int]:
    info = os.stat(folder)
    return info.st_dev, info.st_ino


def _yolo_lines(file: str) -> Iterator[tuple[int, int, tuple[float, ...]]]:
    """Yields each line's number, class and box in shares; nothing if there is no file."""
    try:
        source = open(file, encoding="utf-8-sig", errors="replace")
    except FileNotFoundError:
        return
    with source:
        for n, line in enumerate(_lines(source, file), 1):
            fields = line.split()
            if not fields:
                continue
            try:
                label = int(float(fields[0]))
                x, y, width, height = map(float, fields[1:])
            except (ValueError, OverflowError):
                raise ValueError(
                    f"{file}: line {n}: it must be class x y width height, got "
                    f"{line.strip()[:200]!r}"
                ) from None
            if label != float(fields[0]) or not 0 <= label < 1 << 53:
                raise ValueError(f"{file}: line {n}: {fields[0][:200]} is no class")
            yield n, label, (x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _header(preparer: _core.Preparer, path: str) -> _core._ImageInfo:
    """Reads an image's header, from as little of the file as has it."""
    with open(path, "rb") as source:
        data = source.read(1 << 16)
        try:
            return preparer.info(data)
        except (ValueError, NotImplementedError):
            data += source.read(_MAX_HEADER)
    try:
        return preparer.info(data)
    except (ValueError, NotImplementedError) as error:
        raise ValueError(f"{path}: {error}") from None


def _stored(box: Sequence[float], orientation: int) -> tuple[float, ...]:
    """Moves a box in shares from the image as displayed to the image as stored."""
    x1, y1, x2, y2 = box
    if orientation >= 5:
        x1, y1, x2, y2 = y1, x1, y2, x2
    if orientation in (2, 3, 7, 8):
        x1, x2 = 1 - x2, 1 - x1
    if orientation in (3, 4, 6, 7):
        y1, y2 = 1 - y2, 1 - y1
    return x1, y1, x2, y2


def _in_pixels(box: Sequence[float], info: _core._ImageInfo) -> tuple[float, ...]:
    width, height = info["width"], info["height"]
    return box[0] * width, box[1] * height, box[2] * width, box[3] * height


class OpenImagesDetection(_Detection):
    """Images and boxes of Open Images (V4 to V7): a CSV file of boxes, in shares of the image's
    sides, and a folder of images.

    Rows have ``boxes``, ``labels`` and ``is_group_of``. Samples are the images that the file names,
    sorted. Opening reads the header of every image, for its size.

    Args:
        images: the folder of the images, ``ImageID.jpg``.
        annotations: the file of boxes, ``*-annotations-bbox.csv``.
        transform, transforms, target_transform: as of :class:`CocoDetection`.
        classes: the file of class names, ``*-class-descriptions*.csv``: a label is the number of a
            line. By default labels count the class ids that the annotations use, sorted.

    Raises:
        FileNotFoundError: a file or an image does not exist.
        ValueError: a line is damaged, or has an unknown class; the message names it.
    """

    def __init__(
        self,
        images: str | os.PathLike[str],
        annotations: str | os.PathLike[str],
        transform: Any = None,
        target_transform: Callable[[Any], Any] | None = None,
        transforms: Any = None,
        *,
        classes: str | os.PathLike[str] | None = None,
    ) -> None:
        self.images = os.fsdecode(images)
        self.annotations = os.fsdecode(annotations)
        self._descriptions = None if classes is None else os.fsdecode(classes)
        self._set_transform(transform, target_transform, transforms)
        self._open()

    def _place(self) -> str:
        return self.annotations

    def _opened(self) -> _core.Dataset:
        found = _OpenImagesBoxes(self.annotations)
        ids, self._names = _open_images_classes(self._descriptions, found.names)
        label_of = {name: i for i, name in enumerate(ids)}
        labels = [label_of.get(name) for name in found.names]
        table, preparer = _Table("is_group_of"), _core.Preparer()
        for image, rows in found.by_image():
            path = os.path.join(self.images, f"{image}.jpg")
            info = _header(preparer, path)
            for i in rows:
                where = f"{self.annotations}: line {found.lines[i]}"
                label = labels[found.classes[i]]
                if label is None:
                    name = list(found.names)[found.classes[i]]
                    raise ValueError(f"{where}: {name} is none of the classes")
                box = _in_pixels(found.shares[4 * i : 4 * i + 4], info)
                table.add(where, box, label, found.groups[i])
            table.end(path)
        if not table.paths:
            raise FileNotFoundError(f"{self.annotations} names no image")
        return table.dataset()


class _OpenImagesBoxes:
    """The lines of a file of boxes, as flat arrays: the whole set has 15 million."""

    def __init__(self, file: str) -> None:
        self.names: dict[str, int] = {}  # of classes, by their first use
        self._images: dict[str, int] = {}  # likewise
        self.lines = array.array("q")  # of each box: its line
        self.shares = array.array("d")  # x1, y1, x2, y2
        self.classes = array.array("i")  # a number of `names`
        self.groups = array.array("q")  # IsGroupOf
        self._image_of = array.array("i")  # a number of `_images`
        rows = _rows(file)
        header = next(rows, (1, []))[1]
        at = {name: i for i, name in enumerate(header)}
        needed = {"ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax"}
        if missing := sorted(needed - set(at)):
            raise ValueError(f"{file}: it has no column {', '.join(missing)}")
        sides = [at[name] for name in ("XMin", "YMin", "XMax", "YMax")]
        image_at, name_at, group_at = at["ImageID"], at["LabelName"], at.get("IsGroupOf")
        for n, row in rows:
            try:
                self.shares.extend([float(row[side]) for side in sides])
                group = row[group_at] if group_at is not None and group_at < len(row) else 0
                self.groups.append(int(group or 0))
            except (IndexError, ValueError, OverflowError):
                raise ValueError(f"{file}: line {n}: a number is missing or damaged") from None
            image, name = (row[i] if i < len(row) else "" for i in (image_at, name_at))
            if not image or not name:
                raise ValueError(f"{file}: line {n}: it names no image or no class")
            self.lines.append(n)
            self.classes.append(self.names.setdefault(name, len(self.names)))
            self._image_of.append(self._images.setdefault(image, len(self._images)))

    def by_image(self) -> Iterator[tuple[str, Iterable[int]]]:
        """Yields each image, sorted, and its boxes in the order of the file."""
        import numpy

        if not self._images:
            return
        image_of = numpy.frombuffer(self._image_of, numpy.intc)
        boxes = numpy.argsort(image_of, kind="stable")
        ends = numpy.cumsum(numpy.bincount(image_of, minlength=len(self._images)))
        for image in sorted(self._images):
            i = self._images[image]
            yield image, boxes[ends[i - 1] if i else 0 : ends[i]].tolist()


def _open_images_classes(
    descriptions: str | None, used: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Returns the ids of the classes by label, and their names."""
    if descriptions is None:
        ids = sorted(used)
        return ids, ids
    lines = [row for _, row in _rows(descriptions) if row[0] != "LabelName"]
    return [row[0] for row in lines], [row[-1] for row in lines]
