"""The format of state_dict(), and checks of a state before it is loaded.

A state is a position in the order of one dataset. It contains a digest of the dataset's names and
labels, so that it cannot be used with another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

FORMAT = "headrace.torch.DataLoader"
VERSION = 1

_logger = logging.getLogger("headrace")
_BELOW = 1 << 64


def check(
    state: Mapping[str, Any], *, samples: int, has_sampler: bool, digest: Callable[[], str]
) -> None:
    """Raises ValueError or TypeError that names the problem if ``state`` does not fit a loader."""
    if state.get("format") != FORMAT:
        raise ValueError("this is not a state of headrace.torch.DataLoader")
    if state.get("version") != VERSION:
        raise ValueError(f"the state has version {state.get('version')}, known is {VERSION}")
    if state.get("samples") != samples:
        raise ValueError(
            f"the state is of a dataset of {state.get('samples')} samples, this one has {samples}"
        )
    _check_sampler(state, has_sampler)
    for name in ("epoch", "seed"):
        _check_number(name, state.get(name), 0, _BELOW - 1)
    most = _BELOW - 1 if has_sampler or not samples else samples  # a stream counts batches
    _check_number("position", state.get("position"), 0, most)
    _check_number("stream_ahead", state.get("stream_ahead", 0), 1 - _BELOW, _BELOW - 1)
    _check_dataset(state, digest)


def _check_sampler(state: Mapping[str, Any], has_sampler: bool) -> None:
    if bool(state.get("external")) == has_sampler:
        return
    if has_sampler:
        raise ValueError("the state was taken without a sampler: make this DataLoader alike")
    raise ValueError(
        "the state was taken with a sampler: make this DataLoader alike. A DistributedSampler of "
        "torch's is replaced by Headrace's own order since; a subclass of it is followed as it was"
    )


def _check_number(name: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"the state's {name} must be a whole number, it is {value!r}")
    if not least <= value <= most:
        raise ValueError(f"the state's {name} must be from {least} to {most}, it is {value}")


def _check_dataset(state: Mapping[str, Any], digest: Callable[[], str]) -> None:
    global _said_unchecked
    known = state.get("dataset")
    if known is None:
        if not _said_unchecked:
            _said_unchecked = True
            _logger.warning(
                "the state does not say which dataset it is of, as states before this version: that "
                "it is this one, sample by sample, is not checked"
            )
    elif known != digest():
        raise ValueError(
            "the state is of another dataset: one of as many samples, whose names, labels or order "
            "differ. Give the DataLoader the dataset that the state was taken with; if it is the "
            "same data by other names, del state['dataset'] loads it unchecked"
        )


_said_unchecked = False
