"""The tap: the library that reports allocations and frees (include/headrace/tap.h)."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

__all__ = ["cuda_allocator", "tap_path"]


def tap_path() -> str | None:
    """Returns the absolute path of libheadrace-tap.so, or None if it is missing.

    With LD_PRELOAD=path, recordings include host allocations as the allocator reports them
    (``headrace memory record`` sets that). The library is installed beside the extension;
    HEADRACE_TAP_LIBRARY overrides its path.
    """
    from .. import _core

    named = os.environ.get("HEADRACE_TAP_LIBRARY")
    path = Path(named) if named else Path(_core.__file__).with_name("libheadrace-tap.so")
    return str(path.absolute()) if path.is_file() else None


def cuda_allocator() -> Any:
    """Returns a pluggable CUDA allocator that reports each allocation and free to recordings.

    Install it before CUDA is used::

        torch.cuda.memory.change_current_allocator(headrace.memory.cuda_allocator())

    Memory comes from CUDA's stream-ordered pools, so PyTorch's memory statistics and history do
    not include it. Blocks have exactly the requested sizes.

    Raises FileNotFoundError if the library is missing.
    """
    import torch

    path = tap_path()
    if path is None:
        raise FileNotFoundError(
            "libheadrace-tap.so does not lie beside headrace's extension: install the package "
            "again, or name it in HEADRACE_TAP_LIBRARY"
        )
    # Global, since recordings look up hr_tap_begin among the global symbols.
    ctypes.CDLL(path, mode=os.RTLD_GLOBAL)
    return torch.cuda.memory.CUDAPluggableAllocator(path, "hr_tap_cuda_malloc", "hr_tap_cuda_free")
