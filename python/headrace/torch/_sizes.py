"""Batches of images that differ in size, and of sounds that differ in length.

The loader's memory has a place for the largest image possible for each sample. What the training loop
gets are views of it, cut to what the batch uses: no pixel is copied. The same holds of sounds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.utils.dlpack import from_dlpack

from .. import _core


class Padded(NamedTuple):
    """Images of several sizes in one tensor, each at the upper left and with zeros around it.

    A tuple, so that what moves tuples of tensors to a device moves it.
    """

    tensors: torch.Tensor
    """Of shape (samples, 3, height, width), as large as the largest image on each side. A view of the
    loader's memory, not contiguous."""
    sizes: torch.Tensor
    """The images' heights and widths, int64 of shape (samples, 2)."""

    @property
    def mask(self) -> torch.Tensor:
        """True where a pixel is padding, of shape (samples, height, width), as in DETR. Made on the
        device of ``sizes``, anew each time."""
        height, width = self.tensors.shape[-2:]
        rows = torch.arange(height, device=self.sizes.device)
        columns = torch.arange(width, device=self.sizes.device)
        below = rows >= self.sizes[:, 0, None]
        right = columns >= self.sizes[:, 1, None]
        return below[:, :, None] | right[:, None, :]

    def decompose(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the tensor and the mask, as DETR's ``NestedTensor`` does."""
        return self.tensors, self.mask

    def unpadded(self) -> list[torch.Tensor]:
        """Returns the images without their padding, as views."""
        return [
            image[:, :height, :width]
            for image, (height, width) in zip(self.tensors, self.sizes.tolist())
        ]


class PaddedSounds(NamedTuple):
    """Sounds of several lengths in one tensor, each with padding behind it.

    A tuple, so that what moves tuples of tensors to a device moves it.
    """

    tensors: torch.Tensor
    """Of shape (samples, channels, frames) or (samples, bands, columns), as long as the longest sound.
    A view of the loader's memory, not contiguous."""
    lengths: torch.Tensor
    """How many frames or columns of each are of its sound, int64 of shape (samples,)."""

    @property
    def mask(self) -> torch.Tensor:
        """True where a frame or column is padding, of shape (samples, frames), as
        ``src_key_padding_mask`` of torch's Transformer. Made on the device of ``lengths``, anew each
        time."""
        places = torch.arange(self.tensors.shape[-1], device=self.lengths.device)
        return places >= self.lengths[:, None]

    def unpadded(self) -> list[torch.Tensor]:
        """Returns the sounds without their padding, as views."""
        return [sound[:, :n] for sound, n in zip(self.tensors, self.lengths.tolist())]


def check(collate: Any, max_size: Any, layout: Any) -> bool:
    """Checks the arguments of a DataLoader; returns whether images may differ in size."""
    if collate not in (None, "pad", "list"):
        raise ValueError(
            f"collate must be 'pad', 'list' or None, got {collate!r}; a function of your own is "
            "collate_fn"
        )
    if collate is None and max_size is not None:
        raise ValueError("max_size is for images of several sizes: add collate='pad' or 'list'")
    if collate is not None and layout == "NHWC":
        raise ValueError(
            "collate gives images of shape (3, height, width): use layout 'NCHW', or 'channels_last' "
            "for the memory format"
        )
    return collate is not None


def collated(
    collate: str, layout: str, images: torch.Tensor, batch: _core.Batch, *, pin: bool
) -> tuple[Any, Any]:
    """Returns a batch's images and masks as ``collate`` says; masks: None if it has none. images:
    (samples, 3, height, width), all of each place, in ``layout``, or sounds; pin: in page-locked
    memory."""
    shapes = from_dlpack(batch.extents)
    if images.dim() == 3:
        lengths = shapes[:, 1].contiguous()
        sounds = PaddedSounds(images[:, :, : int(lengths.max())], lengths)
        if pin:
            sounds = PaddedSounds(*(part.pin_memory() for part in sounds))
        return sounds if collate == "pad" else sounds.unpadded(), None
    sizes = (shapes[:, 1:] if layout == "NCHW" else shapes[:, :2]).contiguous()
    height, width = sizes.amax(0).tolist()
    parts = [images[:, :, :height, :width], sizes]
    if batch.masks is not None:
        parts.append(from_dlpack(batch.masks)[:, :height, :width])
    if pin:
        parts = [part.pin_memory() for part in parts]
    found, masks = Padded(parts[0], parts[1]), parts[2] if len(parts) > 2 else None
    if collate == "pad":
        return found, masks
    if masks is not None:
        masks = [mask[:h, :w] for mask, (h, w) in zip(masks, sizes.tolist())]
    return found.unpadded(), masks
