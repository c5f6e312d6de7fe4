"""Where a training run's time goes.

``headrace stalls -- python train.py`` measures an unmodified script. For loops over
something that is no DataLoader::

    for batch in headrace.watch(loader):
        ...

Outside a measuring run :func:`watch` gives back what it was given.

What was measured is read with :func:`read`, of several hosts put together with
:func:`merge`; the :class:`Stalls` they give tells rates, shares and intervals.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar, cast

from .._core import Stalls

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

    return cast(_Iterable, probe.watch(loader, batch_size))


def read(path: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> Stalls:
    """The result in a ``stalls.json``.

    Raises ValueError for a damaged file, with the place, NotImplementedError for one of a
    version that is not known here, and OSError.
    """
    return Stalls.read(path)


def merge(results: Iterable[Stalls]) -> Stalls:
    """One result of those of several hosts of one run. Raises ValueError where they are not
    of one run."""
    return Stalls.merge(results)


__all__ = ["Stalls", "merge", "read", "watch"]
