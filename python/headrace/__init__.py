"""Headrace prepares training batches with native threads.

* :class:`headrace.torch.DataLoader` replaces ``torch.utils.data.DataLoader``.
* :class:`ImageFolder`, :class:`ImageList`, :class:`Pack`, :class:`ParquetDataset`,
  :class:`TarDataset` and :class:`ArrowDataset` are datasets of images;
  :class:`CocoDetection`, :class:`VOCDetection`, :class:`YoloDetection` and
  :class:`OpenImagesDetection` of images with boxes; :class:`VOCSegmentation` and
  :class:`SegmentationFolder` of images with masks; :class:`AudioFolder`, :class:`AudioList` and
  :class:`AudioShards` of sounds.
* :func:`pack` writes a dataset into one file that decodes several times faster.
* :class:`CachedDataset` keeps the samples of any map-style dataset in shared memory.
* :mod:`headrace.transforms` has torchvision's transforms under the same names, and
  translates torchvision's own.
* :func:`convert` converts JPEG files to items: the same pixels, decoded several times faster.
* :func:`explain` says what of a loader's work runs natively and what in Python.
* :func:`watch` lets ``headrace stalls`` measure a loop over any iterable of batches.
* :mod:`headrace.timm` has timm's ``create_loader`` with this DataLoader inside.
* :mod:`headrace.opentelemetry` gives the metrics of loaders to OpenTelemetry.
* :func:`agent_status` reports the state of an agent, which prepares batches for several jobs.
* :class:`Preparer` runs the same transforms on image bytes in memory.

Only :mod:`headrace.torch` and :mod:`headrace.timm` need torch. The library logs to the logger ``"headrace"``.
"""

from __future__ import annotations

import atexit as _atexit

from . import _core, transforms
from ._agent import agent_status
from ._arrow import ArrowDataset
from ._core import Array
from ._errors import SampleError, TooManyBadSamples
from ._explain import explain
from .audio import AudioFolder, AudioList, AudioShards
from .cached import CachedDataset
from .datasets import BadSample, ImageFolder, ImageList, Pack, ParquetDataset, TarDataset
from .detection import CocoDetection, OpenImagesDetection, VOCDetection, YoloDetection
from .forms import Converter, convert, form_of, restore
from .packs import pack, pack_info, unpack, verify_pack
from .prepare import Preparer
from .segmentation import SegmentationFolder, VOCSegmentation
from .stalls import watch

__version__: str = _core.version

__all__ = [
    "Array",
    "ArrowDataset",
    "AudioFolder",
    "AudioList",
    "AudioShards",
    "BadSample",
    "CachedDataset",
    "CocoDetection",
    "Converter",
    "ImageFolder",
    "ImageList",
    "OpenImagesDetection",
    "Pack",
    "ParquetDataset",
    "Preparer",
    "SampleError",
    "SegmentationFolder",
    "TarDataset",
    "TooManyBadSamples",
    "VOCDetection",
    "VOCSegmentation",
    "YoloDetection",
    "agent_status",
    "convert",
    "explain",
    "form_of",
    "pack",
    "pack_info",
    "restore",
    "transforms",
    "unpack",
    "verify_pack",
    "watch",
]

# Log messages that arrive after the last call into the library.
_atexit.register(_core.drain_log)
