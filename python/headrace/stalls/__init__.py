"""Where a training run's time goes.

``headrace stalls -- python train.py`` measures an unmodified script. For loops over
something that is no DataLoader::

    for batch in headrace.watch(loader):
        ...

Outside a measuring run :func:`watch` gives back what it was given.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar

_Iterable = TypeVar("_Iterable")


def watch(loader: _Iterable, *, batch_size: int | None = None) -> _Iterable:
    """Lets ``headrace stalls`` measure a loop over any iterable of batches.

    Args:
        loader: anything that a ``for`` loop takes, as often as it is looped over.
        batch_size: samples in a batch, where that is not the first dimension of its first
            tensor.

    Returns ``loader`` itself outside a measuring run, and whatever is found by itself
    anyway (torch's and Headrace's DataLoader).
    """
    if "HEADRACE_STALLS_DIR" not in os.environ:
        return loader
    from . import probe

    watched: Any = probe.watch(loader, batch_size)
    return watched


__all__ = ["watch"]
