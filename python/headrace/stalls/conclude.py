"""Completes the record of a rank after its segments: runs the remaining measurements, and checks
that all figures are consistent."""

from __future__ import annotations

import json
from typing import Any

from .. import _core
from . import after, record
from .findings import COLD
from .measurement import Measurement


def conclude(m: Measurement, ranks: dict[str, Any], started: str) -> dict[str, Any] | None:
    """Returns the record; ``None`` if the measurements contradict each other and longer segments
    may help. Then the batches of ``m.longer()`` have to be run first."""
    findings = m.findings
    first_of_host = ranks["local_rank"] == 0
    after.drains(m, COLD not in findings.phases)
    after.epoch_start(m)
    document = record.of(m, ranks, started)
    if first_of_host:
        document["storage"] = after.storage(m)
    if m.can_be_longer() and _contradicts_itself(document):
        return None
    if first_of_host:
        document["headrace"] = after.headrace_cost(m)
        document["notes"] = findings.notes
    return document


def _contradicts_itself(document: dict[str, Any]) -> bool:
    """Whether a phase that was verified does not count, because the figures do not fit together:
    training faster than its parts, or time lost without waiting."""
    try:
        result = _core.Stalls.analyse([json.dumps(record.finite(document))])
    except (ValueError, RuntimeError):  # too few segments for any figure
        return False
    return result.summary()["contradicts"]
