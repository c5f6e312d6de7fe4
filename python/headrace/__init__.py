"""Headrace prepares training batches with native threads.

* :class:`headrace.torch.DataLoader` takes the place of
  ``torch.utils.data.DataLoader`` for image folders.
* :class:`ImageFolder`, :class:`ImageList`, :class:`Pack` and :class:`TarDataset` say what the
  samples are.
* :func:`pack` writes a dataset into one file that decodes several times faster.
* :class:`CachedDataset` keeps what any map-style dataset returns in shared memory.
* :mod:`headrace.transforms` has torchvision's transforms by name, and
  translates torchvision's own.
* :func:`convert` makes items of JPEG files: the same pixels, decoded several times faster.
* :func:`watch` lets ``headrace stalls`` measure a loop over anything that yields batches.
* :func:`agent_status` reports what an agent, which prepares for several jobs, does just now.
* :class:`Preparer` runs the same transforms on bytes that you bring.

torch is needed by :mod:`headrace.torch` only. Messages of the library go to the
logger ``"headrace"``.
"""

from __future__ import annotations

import atexit as _atexit

from . import _core, transforms
from ._agent import agent_status
from ._core import Array
from ._errors import SampleError, TooManyBadSamples
from .cached import CachedDataset
from .datasets import BadSample, ImageFolder, ImageList, Pack, TarDataset
from .forms import Converter, convert, form_of, restore
from .packs import pack, pack_info, unpack, verify_pack
from .prepare import Preparer
from .stalls import watch

__version__: str = _core.version

__all__ = [
    "Array",
    "BadSample",
    "CachedDataset",
    "Converter",
    "ImageFolder",
    "ImageList",
    "Pack",
    "Preparer",
    "SampleError",
    "TarDataset",
    "TooManyBadSamples",
    "agent_status",
    "convert",
    "form_of",
    "pack",
    "pack_info",
    "restore",
    "transforms",
    "unpack",
    "verify_pack",
    "watch",
]

# What the library said after the last call into it.
_atexit.register(_core.drain_log)
