"""Measures where the time of a training run goes.

``headrace stalls -- python train.py`` measures an unmodified script. For loops over
something that is no DataLoader::

    for batch in headrace.watch(loader):
        ...

Outside a measuring run :func:`watch` gives back what it was given.

What was measured is read with :func:`read`, of several hosts put together with
:func:`merge`; the :class:`Stalls` that they return has rates, shares and intervals.
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
    """Measures training with a loader in this process, in a notebook for example::

        result = headrace.stalls.measure(loader, train_step, time=60)
        print(result.sentence)
        result.write_page("stalls.html")

    ``step`` is called with many real batches and with the same few again and again, so the
    model that it trains is good for nothing afterwards: give it a copy.

    Args:
        loader: what ``headrace stalls`` measures in a script, or any iterable of batches that
            can be iterated again and again.
        step: trains with one batch; what it returns is ignored, what it raises goes through.
        time: seconds for the segments; what is measured after them comes on top.
        precision: half the interval of a share that is narrow enough to stop.
        data: folder of the dataset's files, where the loader does not say.
        batch_size: samples in a batch, where that is not the first dimension.
        device: where ``step`` trains, where no optimizer of torch's shows it.
        warm_up: batches before anything is measured.

    Raises RuntimeError where there are several ranks, or within ``headrace stalls``.
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
    """The result in a ``stalls.json``.

    Raises ValueError for a damaged file, with the place, NotImplementedError for one of a
    version that is not known here, and OSError.
    """
    return Stalls.read(path)


def merge(results: Iterable[Stalls]) -> Stalls:
    """One result of those of several hosts of one run. Raises ValueError where they are not
    of one run."""
    return Stalls.merge(results)


__all__ = ["Stalls", "measure", "merge", "read", "watch"]
