"""Measures training in the calling process, for example a notebook."""

from __future__ import annotations

import gc
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .._core import Stalls
from . import folders, record, work
from .channel import Channel
from .conclude import conclude
from .findings import Findings, Settings
from .measurement import Measurement
from .replay import Replay
from .sources import end_workers, source_of

FOLDER = "HEADRACE_STALLS_DIR"


class _Silent:
    def say(self, text: str, fraction: float | None) -> None:
        pass


def measure(
    loader: Any,
    step: Callable[[Any], Any],
    *,
    time_s: float,
    precision: float,
    data: str | None,
    batch_size: int | None,
    device: Any,
    warm_up: int,
) -> Stalls:
    """See :func:`headrace.stalls.measure`."""
    import torch
    import torch.utils.data._utils.fetch as fetch

    if FOLDER in os.environ:
        raise RuntimeError("measure() was called under `headrace stalls`: use one of the two")
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        if distributed.get_world_size() > 1:
            raise RuntimeError(
                "measure() measures a single process, and this is one of several ranks: use "
                "`headrace stalls -- torchrun ...`"
            )
    with _folder() as folder:
        work.wrap_fetchers(fetch)
        work.own()
        m = None
        try:
            m = _warmed_up(loader, step, warm_up, batch_size, device, data)
            m.channel = Channel(0, 1, folder)
            m.settings = Settings(time_s=time_s, precision=precision)
            return _run(m, step)
        finally:
            if m is not None:
                m.source.close()
            work.record(False)
            gc.unfreeze()


def _run(m: Measurement, step: Callable[[Any], Any]) -> Stalls:
    ranks = {
        "run": secrets.token_hex(8),
        "rank": 0,
        "world_size": 1,
        "local_rank": 0,
        "local_world_size": 1,
        "host": os.uname().nodename,
    }
    started = record.now()
    batches = m.batches()
    while True:
        for batch in batches:
            step(batch)
        document = conclude(m, ranks, started)
        if document is not None:
            return Stalls.analyse([json.dumps(record.finite(document))])
        batches = m.longer()


def _warmed_up(
    loader: Any,
    step: Callable[[Any], Any],
    warm_up: int,
    batch_size: int | None,
    device: Any,
    data: str | None,
) -> Measurement:
    """Trains with a few batches, keeps copies of them, and measures how long a step takes."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    devices: list[Any] = [] if device is None else [torch.device(device)]

    def note(optimizer: Any, *_: Any) -> None:
        if not devices:
            devices.append(optimizer.param_groups[0]["params"][0].device)

    replay, findings = Replay(), Findings()
    hook = register_optimizer_step_post_hook(note)
    begin = last = time.perf_counter()
    iterator = iter(loader)
    steps: list[float] = []
    try:
        while len(steps) < warm_up:
            batch = next(iterator, None)
            if batch is None:
                if not steps:
                    raise ValueError("the loader yielded no batch")
                iterator = iter(loader)
                continue
            if findings.first_batch_s is None:
                findings.first_batch_s = time.perf_counter() - begin
            replay.keep(batch)
            step(batch)
            now = time.perf_counter()
            steps.append(now - last)
            last = now
    finally:
        hook.remove()
    replay.freeze()
    files = None if data is None else folders.files_below(data)
    source = source_of(loader, iterator, type(loader).__iter__, files)
    if source.kind != "other":
        end_workers(iterator)
    m = Measurement(
        source,
        replay,
        devices[0] if devices else None,
        Channel(0, 1, ""),
        Settings(),
        findings,
        _Silent(),
        step_s=sorted(steps)[len(steps) // 2],
        steps_each=1,
        batch_size=batch_size,
    )
    m.data = files
    return m


@contextmanager
def _folder() -> Iterator[str]:
    """Creates the folder to which workers write their rows, and removes it afterwards."""
    path = tempfile.mkdtemp(prefix=folders.PREFIX)
    os.environ[FOLDER] = path
    try:
        yield path
    finally:
        del os.environ[FOLDER]
        shutil.rmtree(path, ignore_errors=True)
