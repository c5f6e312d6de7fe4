"""Records and analyses the use of every memory block while a model trains.

    with headrace.memory.record("run.hrm"):
        train(model, some_batches)
    found = headrace.memory.analyse("run.hrm")

A record tells for each storage that a PyTorch operator uses when it is allocated, read, written
and freed, by which operator, in which phase (forward, backward, optimizer), iteration and part of
the model ("Pinpointing the Memory Behaviors of DNN Training", ISPASS'21). Reads and writes
follow from the operators' schemas. An access to a view counts for its storage; operators that
only use metadata access nothing. The file is complete however the process ends.

Not recorded: the inside of compiled graphs and library calls, other threads' operators outside
backward passes, and other processes. A record notes which of these occurred.
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
        batch_size: of the training, for projections to other sizes. None: found from
            batch_first of modules or from the loader, else the first dimension of the first
            tensor that the model is called with; the record says which.
        iterations: the recording ends after this many, and training continues unrecorded; 0: it
            ends with the block.
        stacks: record which lines of Python code called each operator (in a backward pass: the
            forward operator), without those of torch and headrace.
        limit_bytes: limit of the file's size, at which recording stops; 0: none.

    An iteration ends with each `step()` of an optimizer of torch.optim. Without one, it ends when
    the training itself updates parameters after a backward pass. The overhead of recording an
    operator's call is measured at the beginning (a few milliseconds), and the analysis subtracts
    it from the intervals.
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
        path: of the record; damaged parts are left out and listed (``run.damage``).
        h2d_bytes_per_s, d2h_bytes_per_s: copy rates between host and accelerator, for swap
            advice; 0: those in the record, else 12e9.
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
    """Writes a report on records as text with ``columns`` columns (40 to 160). Several records are
    shown side by side, and the first one in full. ``out``: a file, or "-" for standard output."""
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
    """Converts other tools' files to a record: a snapshot of PyTorch's allocator (a pickle, none of
    whose code is executed), a Kineto trace with memory events, or PyTorch's raw memory timeline;
    each may be gzipped. Raises ValueError for other files."""
    _core.memory_import(source, to)
