"""Datasets of images with masks of class indices, for semantic segmentation.

A mask is a PNG file of a palette or of greys as large as its image. The C library reads both, and
moves the mask with the pixels. Any other arrangement of files:
``headrace.ImageList(images, masks=masks)``.
"""

from __future__ import annotations

import os
from typing import Any

from . import _core
from .datasets import dataset_of_pairs
from .detection import _VOC, _VOC_CLASSES, _Detection, _images_below

__all__ = ["SegmentationFolder", "VOCSegmentation"]


def _with_masks(pairs: list[tuple[str, str]]) -> _core.Dataset:
    """Returns the dataset of images and their masks."""
    images, masks = (dataset_of_pairs([(pair[i], 0) for pair in pairs]) for i in (0, 1))
    return images.with_masks(masks)


class VOCSegmentation(_VOC):
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

    _task = "Segmentation"
    _names = _VOC_CLASSES

    def _opened(self) -> _core.Dataset:
        return _with_masks(self._listed("SegmentationClass", ".png"))


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
        pairs = []
        for name in names:
            image = os.path.join(self.images, name)
            mask = os.path.join(self.masks, f"{os.path.splitext(name)[0]}.png")
            if not os.path.exists(mask):
                raise FileNotFoundError(f"{image} has no mask: no {mask}")
            pairs.append((image, mask))
        return _with_masks(pairs)
