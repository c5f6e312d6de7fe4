"""What a DataLoader reports: bad samples, and the sums of its native loaders' counters.

A larger batch of a sampler, or a fork, creates a new native loader, whose counters start at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SkippedSample:
    """A sample that could not be used, or a damaged one that was accepted, and why."""

    epoch: int
    index: int
    path: str
    reason: str


_ADDED = (
    "samples",
    "batches",
    "bad_samples",
    "damaged_samples",
    "scaled_samples",
    "padded_samples",
    "bytes_read",
    "wait_ns",
    "step_ns",
    "grown_slots",
    "cache_hits",
    "converted",
    "conversion_ns",
    "missed",
    "alone",
    "reattached",
    "own_hits",
    "own_bytes",
    "peer_hits",
    "peer_bytes",
    "stored",
    "stored_bytes",
    "disk_hits",
    "disk_bytes",
    "refused",
    "read_ahead",
)

# What stats() of the native loader has, of a loader that has done nothing.
ZEROS: dict[str, Any] = {
    **dict.fromkeys(_ADDED, 0),
    **dict.fromkeys(("slots", "slot_bytes", "staged_bytes", "ready_batches", "threads"), 0),
    "batches_ahead": 0,
    **dict.fromkeys(("cache_bytes", "cache_source_bytes", "cache_waiting"), 0),
    **dict.fromkeys(("cache_encoded", "cache_indexed", "cache_coefficients", "cache_planes"), 0),
    **dict.fromkeys(("cache_waveforms", "disk_items", "disk_used_bytes"), 0),
    **dict.fromkeys(("object_requests", "object_lists", "object_retries", "object_hedges"), 0),
    **dict.fromkeys(("object_refusals", "object_bytes"), 0),
    "object_cost_usd": 0.0,
    "io_uring": False,
    **{name: {"count": 0, "sum_ns": 0, "buckets": [0] * 48} for name in ("fetch", "prepare", "wait")},
}


def add_stats(now: dict[str, Any], past: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the sum of a loader's counters and its predecessors'."""
    if past is None:
        return now
    out = dict(now)
    for name in _ADDED:
        out[name] = now[name] + past[name]
    for name in ("fetch", "prepare", "wait"):
        a, b = now[name], past[name]
        out[name] = {
            "count": a["count"] + b["count"],
            "sum_ns": a["sum_ns"] + b["sum_ns"],
            "buckets": [x + y for x, y in zip(a["buckets"], b["buckets"])],
        }
    return out
