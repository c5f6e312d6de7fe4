"""Records and analyses the use of every memory block while a model trains.

    with headrace.memory.record("run.hrm"):
        train(model, some_batches)
    found = headrace.memory.analyse("run.hrm")

A record contains, for each storage that a PyTorch operator uses, when it is allocated, read,
written and freed, by which operator, in which phase (forward, backward, optimizer), iteration and
part of the model ("Pinpointing the Memory Behaviors of DNN Training", ISPASS'21). Reads and
writes are derived from the operators' schemas. An access to a view counts as an access to its
storage. Operators that use only metadata access nothing. The file is valid even if the process is
killed.

Not recorded: memory accesses inside compiled graphs and library calls, other threads' operators
outside backward passes, and other processes. The record notes which of these occurred.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from .. import _core
from ._tap import cuda_allocator, tap_path

if TYPE_CHECKING:
    from ._mode import Recording

__all__ = [
    "Recording", "analyse", "compare", "convert", "cuda_allocator", "record", "tap_path",
    "write_page", "write_text",
]  # fmt: skip

_Path = str | os.PathLike[str]


def __getattr__(name: str) -> Any:
    # Only recording imports torch; analysing records does not need it.
    if name == "Recording":
        from ._mode import Recording

        return Recording
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@contextmanager
def record(
    path: str | os.PathLike[str] | None = None,
    *,
    batch_size: int | None = None,
    iterations: int = 0,
    stacks: bool = False,
    limit_bytes: int = 0,
) -> Iterator[Recording]:
    """Records the ``with`` block into `path`. A process can have one recording at a time.

    Args:
        path: the file. An existing record is replaced, unless a living process is writing it;
            other files are not replaced (FileExistsError). None: ``headrace-memory.hrm``, or
            ``headrace-memory.rankN.hrm`` for one of several ranks.
        batch_size: samples in a batch, for projections to other batch sizes. None: detected from
            the modules' ``batch_first`` or from the loader, else assumed to be the first
            dimension of the first tensor passed to the model; the record says which.
        iterations: stop recording after this many iterations while training continues; 0: record
            until the block ends.
        stacks: record the Python call stack of each operator (in a backward pass: of the forward
            operator), without frames of torch and headrace.
        limit_bytes: stop recording when the file reaches this size; 0: no limit.

    Raises FileExistsError (see `path`), RuntimeError if a recording is in progress, and OSError if
    the file cannot be written.

    Each `step()` of an optimizer of torch.optim ends an iteration. If no such optimizer steps, an
    iteration ends when the training itself updates parameters after a backward pass. The overhead
    of recording one operator call is measured at the start (a few milliseconds), and the analysis
    subtracts it from the intervals.
    """
    from . import _facts, _mode

    recording = _mode.Recording(
        _facts.default_path() if path is None else path,
        limit_bytes,
        iterations=iterations,
        stacks=stacks,
        batch_size=batch_size,
    )
    try:
        with recording:
            yield recording
    finally:
        recording.close()


def analyse(
    path: str | os.PathLike[str], *, h2d_bytes_per_s: float = 0.0, d2h_bytes_per_s: float = 0.0
) -> dict[str, Any]:
    """Analyses a record. docs/memory-format.md describes the result.

    Args:
        path: the record. Damaged parts are skipped and listed in ``run.damage``.
        h2d_bytes_per_s, d2h_bytes_per_s: copy rates from host to accelerator and back, for swap
            advice; 0: those in the record, else 12e9.

    Raises OSError if the file cannot be read, ValueError if it is not a record.
    """
    text = _core.memory_analyse(os.fspath(path), h2d_bytes_per_s, d2h_bytes_per_s)
    return cast("dict[str, Any]", json.loads(text))


def write_text(
    paths: Sequence[_Path],
    out: _Path = "-",
    *,
    columns: int = 80,
    h2d_bytes_per_s: float = 0.0,
    d2h_bytes_per_s: float = 0.0,
) -> None:
    """Writes a report on records as text, ``columns`` (40 to 160) characters wide. Several records
    are compared side by side, and the first is shown in full. ``out``: a file, or "-" for standard
    output."""
    _core.memory_write_text(paths, os.fspath(out), columns, h2d_bytes_per_s, d2h_bytes_per_s)


def write_page(
    paths: Sequence[_Path],
    out: _Path,
    *,
    h2d_bytes_per_s: float = 0.0,
    d2h_bytes_per_s: float = 0.0,
) -> None:
    """Writes the report as one HTML page that needs no network."""
    _core.memory_write_page(paths, os.fspath(out), h2d_bytes_per_s, d2h_bytes_per_s)


def compare(before: _Path, after: _Path) -> dict[str, Any]:
    """Compares two records. docs/memory-format.md describes the result."""
    return cast("dict[str, Any]", json.loads(_core.memory_compare([before, after])))


def convert(source: _Path, to: _Path) -> None:
    """Converts another tool's file to a record: a snapshot of PyTorch's allocator (a pickle, read
    without executing any of its code), a Kineto trace with memory events, or PyTorch's raw memory
    timeline. Each may be gzipped. Raises ValueError for any other file."""
    _core.memory_import(source, to)
