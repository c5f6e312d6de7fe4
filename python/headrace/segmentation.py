"""Datasets of images with masks of class indices, for semantic segmentation.

A mask is a PNG file of a palette or of greys as large as its image. The C library reads both, and
moves the mask with the pixels. Any other arrangement of files:
``headrace.ImageList(images, masks=masks)``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from . import _core
from .datasets import dataset_of_pairs
from .detection import _VOC_CLASSES, _Detection, _images_below

__all__ = ["SegmentationFolder", "VOCSegmentation"]


def _with_masks(images: list[str], masks: list[str]) -> _core.Dataset:
    pairs = dataset_of_pairs([(path, 0) for path in images])
    return pairs.with_masks(dataset_of_pairs([(path, 0) for path in masks]))


class VOCSegmentation(_Detection):
    """Images and masks of Pascal VOC: the index of a class in ``classes``, and 255 at borders.

    Args:
        root: the folder that has ``VOCdevkit``.
        year: ``"2007"`` to ``"2012"``.
        image_set: the name of a list in ``ImageSets/Segmentation``: ``"train"``, ``"val"``,
            ``"trainval"``.
        download, target_transform: torchvision's arguments; refused.
        transform, transforms: of images and masks, from :mod:`headrace.transforms` or torchvision.

    Raises:
        FileNotFoundError: the list does not exist.
    """

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
            raise ValueError("VOCSegmentation: download is not supported: torchvision's can do it")
        self.root = os.fsdecode(root)
        self.year = str(year)
        self.image_set = image_set
        self._set_transform(transform, target_transform, transforms)
        self._open()

    def _place(self) -> str:
        return os.path.join(self.root, "VOCdevkit", f"VOC{self.year}")

    def _opened(self) -> _core.Dataset:
        place = self._place()
        chosen = os.path.join(place, "ImageSets", "Segmentation", f"{self.image_set}.txt")
        with open(chosen, encoding="utf-8-sig") as names:
            listed = [line.split()[0] for line in names if line.strip()]
        return _with_masks(
            [os.path.join(place, "JPEGImages", f"{name}.jpg") for name in listed],
            [os.path.join(place, "SegmentationClass", f"{name}.png") for name in listed],
        )

    def _open(self) -> None:
        super()._open()
        self._named(_VOC_CLASSES)


class SegmentationFolder(_Detection):
    """Images below one folder, and a mask below another one for each: ``a/b.jpg`` has ``a/b.png``.

    Args:
        images: the folder of the images, which are taken in the order of their names.
        masks: the folder of the masks.
        transform: of images and masks, from :mod:`headrace.transforms` or torchvision.

    Raises:
        FileNotFoundError: there is no image, or one without a mask; the message names it.
    """

    def __init__(
        self,
        images: str | os.PathLike[str],
        masks: str | os.PathLike[str],
        transform: Any = None,
    ) -> None:
        self.images = os.fsdecode(images)
        self.masks = os.fsdecode(masks)
        self._set_transform(transform, None, None)
        self._open()

    def _place(self) -> str:
        return self.images

    def _opened(self) -> _core.Dataset:
        names = _images_below(self.images)
        if not names:
            raise FileNotFoundError(f"no image below {self.images}")
        masks = [os.path.join(self.masks, f"{os.path.splitext(name)[0]}.png") for name in names]
        for name, mask in zip(names, masks):
            if not os.path.exists(mask):
                raise FileNotFoundError(f"{os.path.join(self.images, name)} has no mask: no {mask}")
        return _with_masks([os.path.join(self.images, name) for name in names], masks)
