"""Records and analyses what every block of memory does while a model trains.

    with headrace.memory.record("run.hrm"):
        train(model, some_batches)
    found = headrace.memory.analyse("run.hrm")

For each storage that an operator of PyTorch touches: when it is allocated, read, written and
freed, by which operator, in which phase (forward, backward, optimizer), iteration and part of
the model ("Pinpointing the Memory Behaviors of DNN Training", ISPASS'21). Reads and writes
follow from the operators' schemas; views are accesses of the storage below them, what only
looks at metadata is none. The file is complete however the process ends.

Not seen: what happens inside a compiled graph or a library's call, other threads' operators
outside backward passes, and other processes; a record says which of these there were.
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
    # torch is imported by who records, not by who looks at records.
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
    """Records what the block runs, into `path`. One recording at a time in a process.

    Args:
        path: the file; a record that is there is replaced, but not one that a living process
            records into, and anything else is left alone (FileExistsError). None:
            ``headrace-memory.hrm``, of a rank of several ``headrace-memory.rankN.hrm``.
        batch_size: of the training, for the projection to other sizes. None: what batch_first
            of modules or the loader says, else the first dimension of the first tensor that the
            model is called with; the record says which.
        iterations: after so many the recording ends, and training goes on unrecorded; 0: it ends
            with the block.
        stacks: which lines of Python code called each operator (of a backward pass: the
            forward operator), torch's and headrace's own left out.
        limit_bytes: of the file, from where on nothing is recorded; 0: none.

    An iteration ends with each `step()` of an optimizer of torch.optim; without one, where the
    training itself updates parameters after a backward pass. What an operator's call
    costs more while it is recorded is measured at the beginning (a few milliseconds), and taken
    off the intervals by the analysis.
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
    """A record, analysed: docs/memory-format.md has the names.

    Args:
        path: of the record; damaged parts are left out and listed (``run.damage``).
        h2d_bytes_per_s, d2h_bytes_per_s: between host and accelerator, for swap advice; 0:
            what the record says, else 12e9.
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
    """The report on records as text of so many columns (40 to 160): of several side by side, the
    first one in full. ``out``: a file, or "-": standard output."""
    _core.memory_write_text(paths, os.fspath(out), columns, h2d_bytes_per_s, d2h_bytes_per_s)


def write_page(
    paths: Sequence[_Path],
    out: _Path,
    *,
    h2d_bytes_per_s: float = 0.0,
    d2h_bytes_per_s: float = 0.0,
) -> None:
    """The same as one HTML page that needs no network."""
    _core.memory_write_page(paths, os.fspath(out), h2d_bytes_per_s, d2h_bytes_per_s)


def compare(before: _Path, after: _Path) -> dict[str, Any]:
    """What is different between two records: docs/memory-format.md has the names."""
    return cast("dict[str, Any]", json.loads(_core.memory_compare([before, after])))


def convert(source: _Path, to: _Path) -> None:
    """Makes a record of what other tools wrote: a snapshot of PyTorch's allocator (a pickle, of
    which nothing is executed), a Kineto trace with memory events, or PyTorch's raw memory
    timeline; these may be gzipped. Raises ValueError where it is none of these."""
    _core.memory_import(source, to)
