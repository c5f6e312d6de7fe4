"""The schedule and the results of ``headrace stalls``, as the extension shows them."""

import math

import pytest

from headrace import _core

STEP = {"device": 0.10, "host": 0.11, "warm": 0.15, "cold": 0.25, "alone": 0.13}


def run(schedule, most=10_000):
    """Segments of a perfectly steady run, and the progress after each."""
    segments, progress = [], []
    while (segment := schedule.next()) is not None:
        assert schedule.end == "" and schedule.next() == segment
        segments.append(segment)
        timed = STEP[segment["phase"]] * segment["batches"]
        schedule.report(timed, timed * 1.1)
        progress.append(schedule.progress)
        assert len(segments) < most
    return segments, progress


def test_schedule_in_abba_order():
    schedule = _core.StallsSchedule(["device", "host", "warm", "cold"], batches=10, settle=3)
    segments, progress = run(schedule)
    assert [s["phase"] for s in segments[:8]] == [
        "device", "host", "cold", "warm", "warm", "cold", "host", "device",
    ]  # fmt: skip
    assert [s["round"] for s in segments[:8]] == [0] * 4 + [1] * 4
    assert all(s["settle"] == 3 and s["batches"] == 10 and s["rank"] == -1 for s in segments)
    assert [s["preread"] for s in segments[:8]] == [False] * 4 + [True] + [False] * 3
    assert schedule.end == "precise"
    assert progress == sorted(progress) and schedule.progress == 1.0


def test_schedule_of_ranks_has_each_alone():
    segments, _ = run(_core.StallsSchedule(("host", "warm"), ranks=3))
    alone = [s["rank"] for s in segments if s["phase"] == "alone"]
    assert sorted(alone) == [0, 0, 1, 1, 2, 2]


def test_schedule_ends_at_its_limit():
    schedule = _core.StallsSchedule(["host", "warm"], batches=5, settle=0, max_s=8.0)
    while (segment := schedule.next()) is not None:
        noisy = STEP[segment["phase"]] * 5 * (1 + segment["round"] % 3)
        schedule.report(noisy, noisy)
    assert schedule.end == "limit"


def test_schedule_without_a_phase():
    schedule = _core.StallsSchedule(["device", "host", "warm", "cold"])
    first = schedule.next()
    schedule.drop(first["phase"])
    segments, _ = run(schedule)
    assert first["phase"] not in {s["phase"] for s in segments}


def test_schedule_wrong_arguments():
    for wrong, error in [
        (["warm"], ValueError),
        ([], ValueError),
        (["host", "hot"], ValueError),
        ("host", TypeError),
        ([1], TypeError),
        (None, TypeError),
    ]:
        with pytest.raises(error):
            _core.StallsSchedule(wrong)
    for wrong in {"ranks": 0}, {"batches": 0}, {"settle": -1}, {"max_s": math.nan}, {"nothing": 1}:
        with pytest.raises((ValueError, TypeError)):
            _core.StallsSchedule(["host"], **wrong)
    with pytest.raises(ValueError, match="'hot' is no phase"):
        _core.StallsSchedule(["host"]).drop("hot")
