"""Headrace for PyTorch: a DataLoader of native threads.

    from headrace.torch import DataLoader

replaces ``from torch.utils.data import DataLoader`` for image datasets with
torchvision's transforms. See :class:`DataLoader` for the arguments.
"""

from __future__ import annotations

from ._loader import DataLoader, SkippedSample

__all__ = ["DataLoader", "SkippedSample"]
