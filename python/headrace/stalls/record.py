"""Builds the record of one rank, the JSON of docs/stalls-format.md."""

from __future__ import annotations

import json
import math
import os
import platform
import random
import sys
from datetime import datetime, timezone
from typing import Any

from .. import _core
from .._launch.folders import write_whole
from .measurement import Measurement
from .reads import file_size
from .sources import Source, container_files, path_function

VERSION = 1
SIZES = 1000
STAT_AT_MOST = 20000


def write(path: str, record: dict[str, Any]) -> None:
    """Writes a record atomically."""
    write_whole(path, json.dumps(finite(record)))


def finite(value: Any) -> Any:
    """Replaces NaN and infinity by None, since JSON has neither."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(member) for member in value]
    return value


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def of(measurement: Measurement, ranks: dict[str, Any], started: str) -> dict[str, Any]:
    """Builds the record, without its members ``storage`` and ``headrace``."""
    m, findings = measurement, measurement.findings
    loader = m.source.loader
    return {
        "headrace_stalls_record": VERSION,
        **ranks,
        "command": command(),
        "started": started,
        "ended": findings.ended,
        "machine": machine(m.device),
        "loader": {
            "kind": m.source.kind,
            "class": m.source.name,
            "workers": m.source.workers,
            "batches_ahead": m.source.ahead,
            "batch_size": m.batch_size,
            "cache_bytes": cache_bytes(loader),
            "persistent": bool(getattr(loader, "persistent_workers", m.source.kind == "headrace")),
        },
        "training": {
            "device": "cpu" if m.device is None else str(m.device),
            "threads": _threads(),
        },
        "dataset": {
            **dataset(m.source, findings.filesystem, m.data),
            "reads_files": findings.reads_files,
            "network": findings.network,
        },
        "epoch": findings.epoch,
        "phases": findings.phases,
        "segments": findings.segments,
        "drains": findings.drains,
        "preparation": findings.preparation,
        "first_batch_s": findings.first_batch_s,
        "notes": findings.notes,
    }


def command() -> list[str]:
    return [os.path.basename(sys.executable), *(getattr(sys, "orig_argv", sys.argv)[1:])]


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def cache_bytes(loader: Any) -> float | None:
    """Returns the capacity of Headrace's own cache on this host, in bytes; None: unknown."""
    options = getattr(loader, "_options", None)
    if not isinstance(options, dict) or not options.get("cache"):
        return 0
    try:
        return _core.cache_bytes(str(options["cache"]))
    except (ValueError, NotImplementedError):  # the loader itself would have refused the text
        return None


def machine(device: Any) -> dict[str, Any]:
    name = None
    if device is not None and device.type == "cuda":
        import torch

        name = torch.cuda.get_device_name(device)
    elif device is not None and device.type != "cpu":
        name = str(device)
    host = _core.machine()
    return {
        "cores": host["cores"],
        "cpu": host["processor"],
        "memory_bytes": host["memory_bytes"],
        "available_bytes": host["page_cache_bytes"],
        "page_generations": host["page_generations"],
        "device": name,
        "kernel": platform.release(),
    }


def dataset(source: Source, filesystem: str, data: list[str] | None) -> dict[str, Any]:
    """Describes the dataset: the number of samples, and the sizes of some of their files."""
    loader = source.loader
    inner = getattr(loader, "dataset", None)
    try:
        samples = len(inner)  # type: ignore[arg-type]
    except TypeError:
        samples = None
    found: dict[str, Any] = {
        "name": _dataset_name(inner if inner is not None else loader),
        "samples": samples,
        "bytes": None,
        "sizes": [],
        "filesystem": filesystem or None,
    }
    path = path_function(inner) if inner is not None else None
    generator = random.Random(0)
    if source.store() and samples:
        picked = generator.sample(range(samples), min(samples, STAT_AT_MOST))
        known = [size for size in map(source.size, picked) if size is not None]
        if known:
            found["bytes"] = round(sum(known) / len(known) * samples)
            found["sizes"] = generator.sample(known, min(SIZES, len(known)))
        return found
    if path is not None and samples:
        picked = range(samples)
        if samples > STAT_AT_MOST:
            picked = generator.sample(picked, STAT_AT_MOST)  # type: ignore[assignment]
        sizes = [file_size(path(index)) for index in picked]
        found["bytes"] = round(sum(sizes) / len(sizes) * samples)
        found["sizes"] = generator.sample(sizes, min(SIZES, len(sizes)))
        return found
    containers = container_files(inner) if inner is not None else None
    containers = containers or source.learned.whole
    files = containers or data
    if files:
        total = sum(map(file_size, files))
        found["bytes"] = total
        if containers is None:
            sizes = [file_size(one) for one in generator.sample(files, min(SIZES, len(files)))]
            found["sizes"] = sizes
    return found


def _dataset_name(inner: Any) -> str:
    kind = type(inner)
    while hasattr(inner, "indices") and hasattr(inner, "dataset"):
        inner = inner.dataset
    root = getattr(inner, "root", None) or getattr(inner, "path", None)
    text = f"{kind.__module__}.{kind.__qualname__}"
    return f"{text} at {os.fspath(root)}" if isinstance(root, (str, os.PathLike)) else text
