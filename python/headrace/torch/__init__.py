"""Headrace for PyTorch: a DataLoader of native threads.

    from headrace.torch import DataLoader

replaces ``from torch.utils.data import DataLoader``. Image datasets with torchvision's transforms
are prepared by native threads; what is not native runs in Python worker processes, as in torch.
See :class:`DataLoader` for the arguments.
"""

from __future__ import annotations

from ._loader import DataLoader
from ._normalize import Normalize
from ._sizes import Padded, PaddedSounds
from ._stats import SkippedSample
from ._targets import Targets

__all__ = ["DataLoader", "Normalize", "Padded", "PaddedSounds", "SkippedSample", "Targets"]
