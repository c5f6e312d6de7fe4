"""From the segments of a rank to its record: what is measured with the loop standing still, and
whether all of it fits together."""

from __future__ import annotations

from typing import Any

from . import after, crosscheck, record
from .measurement import Measurement


def conclude(m: Measurement, ranks: dict[str, Any], started: str) -> dict[str, Any] | None:
    """The record; ``None`` where what was measured contradicts itself and longer segments may
    help: the batches of ``m.longer()`` come first then."""
    findings = m.findings
    first_of_host = ranks["local_rank"] == 0
    after.drains(m, "cold" not in findings.phases)
    after.epoch_start(m)
    document = record.of(m, ranks, started)
    if first_of_host:
        document["storage"] = after.storage(m)
    if m.channel.size == 1:
        findings.cannot_tell = crosscheck.why_not(document)
    if findings.cannot_tell and m.can_be_longer():
        return None
    document["cannot_tell"] = findings.cannot_tell or None
    if first_of_host:
        document["headrace"] = after.headrace_cost(m)
        document["notes"] = findings.notes
    return document
