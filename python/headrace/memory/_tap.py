"""The tap: the library that reports allocations and frees (include/headrace/tap.h)."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

__all__ = ["cuda_allocator", "tap_path"]


def tap_path() -> str | None:
    """The path of libheadrace-tap.so: with LD_PRELOAD=path, the allocator itself reports
    host allocations to recordings (``headrace memory record`` does that).

    It lies beside the extension; HEADRACE_TAP_LIBRARY names another one. None: it is not there.
    """
    from .. import _core

    named = os.environ.get("HEADRACE_TAP_LIBRARY")
    path = Path(named) if named else Path(_core.__file__).with_name("libheadrace-tap.so")
    return str(path.absolute()) if path.is_file() else None


def cuda_allocator() -> Any:
    """A pluggable CUDA allocator that reports each allocation and free to recordings::

        torch.cuda.memory.change_current_allocator(headrace.memory.cuda_allocator())

    before CUDA is used. Memory comes from CUDA's stream-ordered pools. PyTorch's statistics and
    its memory history know nothing of it; blocks have exactly the sizes that were asked for.

    Raises FileNotFoundError where the library is missing.
    """
    import torch

    path = tap_path()
    if path is None:
        raise FileNotFoundError(
            "libheadrace-tap.so does not lie beside headrace's extension: install the package "
            "again, or name it in HEADRACE_TAP_LIBRARY"
        )
    # For all to see: recordings look there for hr_tap_begin.
    ctypes.CDLL(path, mode=os.RTLD_GLOBAL)
    return torch.cuda.memory.CUDAPluggableAllocator(path, "hr_tap_cuda_malloc", "hr_tap_cuda_free")
