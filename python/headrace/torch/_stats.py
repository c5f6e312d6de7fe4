"""Sums the counters of the native loaders that a DataLoader has used.

A larger batch of a sampler, or a fork, creates a new native loader, whose counters start at 0.
"""

from __future__ import annotations

from typing import Any

_ADDED = (
    "samples",
    "batches",
    "bad_samples",
    "damaged_samples",
    "scaled_samples",
    "padded_samples",
    "bytes_read",
    "wait_ns",
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
    "refused",
    "read_ahead",
)


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
