"""Whether what was measured fits together. Where it does not, no share is to be told."""

from __future__ import annotations

import json
import math
from typing import Any

from .. import _core

ROOM = 1.05  # times a limit: no contradiction yet
SURE = 3.0  # standard errors
MATTERS = 0.1  # of a batch's time
LEAST_ROUNDS = 3  # for a standard error


def why_not(record: dict[str, Any]) -> str:
    """What contradicts what in the record of a run of one rank; "" where nothing does."""
    return _above_its_limits(record) or _lost_without_waiting(record["segments"])


def _above_its_limits(record: dict[str, Any]) -> str:
    """Training is not faster than the slowest of storage, preparation and step."""
    try:
        summary = _core.Stalls.analyse([json.dumps(record)]).summary()
    except (ValueError, RuntimeError):  # nothing to compare
        return ""
    limits = {
        "the storage alone": summary["fetch_rate"],
        "its loader alone": summary["prepare_rate"],
        "the step alone": summary["device_rate"],
    }
    for phase, where in ("cold", "storage"), ("warm", "memory"):
        if not summary["measured"][phase]:
            continue
        rate, low, _ = summary["rate"][phase]
        for what, (limit, _, high) in limits.items():
            if phase == "warm" and what == "the storage alone":
                continue
            if low > ROOM * high:  # false where either is not known
                return (
                    f"training with files from {where} seemed faster ({rate:.4g} samples/s) than "
                    f"{what} ({limit:.4g}): its segments were too short for what the loader reads "
                    "ahead, or the machine was disturbed"
                )
    return ""


def _lost_without_waiting(segments: list[dict[str, Any]]) -> str:
    """What a batch takes longer than a replayed one is time blocked in next(), or cores that the
    loader took from the step."""
    rounds: dict[int, dict[str, dict[str, Any]]] = {}
    for one in segments:
        rounds.setdefault(one["round"], {})[one["phase"]] = one
    for phase in "cold", "warm":
        pairs = [
            (found[phase], found["host"])
            for found in rounds.values()
            if phase in found and "host" in found
        ]
        each = [_unexplained(real, replay) for real, replay in pairs]
        each = [one for one in each if one is not None]
        if len(each) < LEAST_ROUNDS:
            continue
        mean = sum(each) / len(each)
        spread = math.sqrt(sum((one - mean) ** 2 for one in each) / (len(each) - 1) / len(each))
        batch_s = sum(real["elapsed_s"] / real["batches"] for real, _ in pairs) / len(pairs)
        if mean - SURE * spread > MATTERS * batch_s:
            return (
                f"real batches take {mean * 1e3:.3g} ms longer than repeated ones for which neither "
                "waiting in next() nor the loader's CPU time accounts: other programs took the "
                "cores, or real batches are more work for the step"
            )
    return ""


def _unexplained(real: dict[str, Any], replay: dict[str, Any]) -> float | None:
    """Seconds of a batch."""
    if real["worker_cpu_s"] is None or not real["batches"] or not replay["batches"]:
        return None

    def each(one: dict[str, Any], seconds: float) -> float:
        return seconds / float(one["batches"])

    lost = each(real, real["elapsed_s"]) - each(replay, replay["elapsed_s"])
    more_cpu = each(real, real["process_cpu_s"]) - each(replay, replay["process_cpu_s"])
    explained = each(real, sum(real["wait_s"])) + each(real, real["worker_cpu_s"])
    return lost - explained - max(0.0, more_cpu)
