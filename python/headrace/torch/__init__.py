"""Headrace for PyTorch: a DataLoader of native threads.

    from headrace.torch import DataLoader

takes the place of ``from torch.utils.data import DataLoader`` where the dataset
is an image folder and the transforms are torchvision's. See
:class:`DataLoader` for what each argument means here.
"""

from __future__ import annotations

from ._loader import DataLoader, SkippedSample

__all__ = ["DataLoader", "SkippedSample"]
