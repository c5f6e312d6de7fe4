"""What every block of memory does while a model trains: recorded, and analysed.

    with headrace.memory.record("run.hrm"):
        train(model, some_batches)
    found = headrace.memory.analyse("run.hrm")

For each storage that an operator of PyTorch touches: when it is allocated, read, written and
freed, by which operator, in which phase (forward, backward, optimizer) and iteration
("Pinpointing the Memory Behaviors of DNN Training", ISPASS'21). Reads and writes follow from
the operators' schemas; views are accesses of the storage below them, what only looks at
metadata is none. The file is complete however the process ends.

Not seen: what happens inside a compiled graph or a library's call, memory that never was a
tensor's, other threads' operators outside backward passes, and other processes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from .. import _core

__all__ = ["Recording", "analyse", "record"]

from ._mode import Recording


@contextmanager
def record(
    path: str | os.PathLike[str] = "headrace-memory.hrm",
    *,
    batch_size: int | None = None,
    limit_bytes: int = 0,
) -> Iterator[Recording]:
    """Records what the block runs, into `path`.

    Args:
        path: the file; a record that is there is replaced, anything else is left alone
            (FileExistsError).
        batch_size: of the training, for the projection to other sizes.
        limit_bytes: of the file, from where on nothing is recorded; 0: none.

    Iterations are told by optimizers: one ends with each `step()`.
    """
    recording = Recording(path, limit_bytes)
    recording.fact("command", " ".join(sys.argv))
    if batch_size is not None:
        recording.fact("batch size", str(batch_size))
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
        path: of the record; what of it is damaged is left out and told (``run.damage``).
        h2d_bytes_per_s, d2h_bytes_per_s: between host and accelerator, for swap advice; 0:
            what the record says, else 12e9.
    """
    text = _core.memory_analyse(os.fspath(path), h2d_bytes_per_s, d2h_bytes_per_s)
    return cast("dict[str, Any]", json.loads(text))
