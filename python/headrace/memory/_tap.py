"""Where the tap is: the library that tells what allocators do (include/headrace/tap.h)."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["tap_path"]


def tap_path() -> str | None:
    """The path of libheadrace-tap.so: for LD_PRELOAD, so that host allocations are told to
    recordings, and for ``torch.cuda.memory.CUDAPluggableAllocator(path, "hr_tap_cuda_malloc",
    "hr_tap_cuda_free")``, so that those on CUDA devices are.

    It lies beside the extension; HEADRACE_TAP_LIBRARY names another one. None: it is not there.
    """
    from .. import _core

    named = os.environ.get("HEADRACE_TAP_LIBRARY")
    path = Path(named) if named else Path(_core.__file__).with_name("libheadrace-tap.so")
    return str(path.absolute()) if path.is_file() else None
