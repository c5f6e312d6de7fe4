"""Measures where the time of a training run goes.

``headrace stalls -- python train.py`` measures an unmodified script. For a loop over an
iterable that is not a DataLoader, write::

    for batch in headrace.watch(loader):
        ...

Outside a measuring run :func:`watch` returns its argument.

:func:`read` reads a result and :func:`merge` combines the results of several hosts. Both
return :class:`Stalls`, which has rates, shares and intervals.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from .._core import Stalls

_Iterable = TypeVar("_Iterable")


def watch(loader: _Iterable, *, batch_size: int | None = None) -> _Iterable:
    """Lets ``headrace stalls`` measure a loop over any iterable of batches.

    Args:
        loader: any iterable of batches.
        batch_size: samples in a batch, if that is not the first dimension of its first
            tensor.

    Returns ``loader`` itself outside a measuring run, and for loaders that are measured
    without this call (torch's and Headrace's DataLoader).
    """
    if "HEADRACE_STALLS_DIR" not in os.environ:
        return loader
    from . import probe

    return cast(_Iterable, probe.watch(loader, batch_size))


def measure(
    loader: Any,
    step: Callable[[Any], Any],
    *,
    time: float = 60.0,
    precision: float = 0.02,
    data: str | None = None,
    batch_size: int | None = None,
    device: Any = None,
    warm_up: int = 5,
) -> Stalls:
    """Measures training with a loader in this process, for example in a notebook::

        result = headrace.stalls.measure(loader, train_step, time=60)
        print(result.sentence)
        result.write_page("stalls.html")

    ``step`` is called with many real batches, and repeatedly with the same few. That spoils
    the model that it trains, so let it train a copy.

    Args:
        loader: a loader that ``headrace stalls`` can measure in a script, or any iterable of
            batches that can be iterated repeatedly.
        step: trains with one batch. Its result is ignored, its exceptions are passed on.
        time: seconds for the segments; later measurements take additional time.
        precision: stop when the shares are known to plus or minus this.
        data: folder of the dataset's files, if the loader does not name them.
        batch_size: samples in a batch, if that is not the first dimension.
        device: the device that ``step`` trains on, if no torch optimizer shows it.
        warm_up: batches before the measurement starts.

    Raises RuntimeError if there are several ranks, or if called under ``headrace stalls``.
    """
    from . import inside

    return inside.measure(
        loader,
        step,
        time_s=time,
        precision=precision,
        data=data,
        batch_size=batch_size,
        device=device,
        warm_up=warm_up,
    )


def read(path: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> Stalls:
    """Reads a result from a ``stalls.json``.

    Raises ValueError with the position if the file is damaged, NotImplementedError if its
    version is unknown, and OSError.
    """
    return Stalls.read(path)


def merge(results: Iterable[Stalls]) -> Stalls:
    """Merges the results of several hosts of one run. Raises ValueError if they belong to
    different runs."""
    return Stalls.merge(results)


__all__ = ["Stalls", "measure", "merge", "read", "watch"]
