"""The schedule and the results of ``headrace stalls``, through the extension."""

import errno
import json
import math
import os
import random
import re
import threading

import pytest

from headrace import _core, stalls

STEP = {"device": 0.10, "host": 0.11, "warm": 0.15, "cold": 0.25, "alone": 0.13}


def run(schedule, most=10_000):
    """Runs a perfectly steady run; returns its segments, and the progress after each."""
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
        times = 1 + segment["round"] % 3 if segment["phase"] == "warm" else 1
        noisy = STEP[segment["phase"]] * 5 * times
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


# Results


def record(rank=0, ranks=1, host="here", seconds=None, seed=0, **members):
    """Returns a record as a rank writes it, of a run with the steps above plus noise."""
    rng = random.Random(seed * 1000 + rank)
    steps = {**STEP, **(seconds or {})}
    segments, begin = [], 0.0
    for number in range(6):
        phases = ["device", "host", "cold", "warm"]
        for phase in phases if number % 2 == 0 else phases[::-1]:
            batch_s = [steps[phase] * rng.uniform(0.98, 1.02) for _ in range(20)]
            waits = {"warm": steps["warm"] - steps["host"], "cold": steps["cold"] - steps["host"]}
            real = phase in waits
            segments.append(
                {
                    "phase": phase,
                    "round": number,
                    "set": number,
                    "alone_rank": -1,
                    "batches": 20,
                    "samples": 20 * 32,
                    "begin_s": begin,
                    "elapsed_s": sum(batch_s),
                    "process_cpu_s": 0.01 * 20,
                    "worker_cpu_s": 0.3 * 20 if real else 0.0,
                    "read_bytes": 20 * 32 * 100_000 if phase == "cold" else 0,
                    "expected_bytes": 20 * 32 * 100_000 if real else None,
                    "verified": True if real else None,
                    "reason": "",
                    "wait_s": [max(0.0, waits.get(phase, 0.0))] * 20,
                    "batch_s": batch_s,
                }
            )
            begin += sum(batch_s)
    return {
        "headrace_stalls_record": 1,
        "run": "a run",
        "rank": rank,
        "world_size": ranks,
        "local_rank": rank,
        "local_world_size": ranks,
        "host": host,
        "command": ["python", "train.py"],
        "started": "2026-11-21T12:00:00Z",
        "ended": "precise",
        "machine": {
            "cores": 4,
            "cpu": "a CPU",
            "memory_bytes": 16 << 30,
            "available_bytes": 8 << 30,
            "device": "an accelerator",
        },
        "loader": {
            "kind": "torch",
            "class": "torch.utils.data.DataLoader",
            "workers": 2,
            "batches_ahead": 4,
            "batch_size": 32,
            "cache_bytes": 0,
        },
        "training": {"device": "cuda:0", "threads": 1, "warm_up_batches": 5},
        "dataset": {
            "name": "photographs",
            "samples": 100_000,
            "bytes": 100_000 * 100_000,
            "sizes": [100_000] * 50,
            "filesystem": "ext4",
        },
        "phases": {},
        "segments": segments,
        "drains": [
            {
                "phase": phase,
                "cores": cores,
                "samples": 640,
                "elapsed_s": elapsed,
                "cpu_s": 6.0,
                "read_bytes": 640 * 100_000 if phase == "cold" else 0,
            }
            for phase, cores, elapsed in [("warm", 4, 3.0), ("warm", 2, 3.0), ("cold", 4, 5.0)]
        ],
        "preparation": [
            {"phase": "warm", "samples": 32, "cpu_s": 0.3, "wall_s": 0.3, "read_bytes": 0}
        ]
        * 20,
        "storage": {
            "depths": [
                {"depth": d, "bytes_per_s": 1e8 * d, "reads_per_s": 1e3 * d} for d in (1, 2, 4)
            ],
            "memory_bytes_per_s": 2e9,
        },
        "headrace": {
            "recipe": "RandomResizedCrop(224)",
            "forms": [
                {"form": "encoded", "cpu_s": 1e-3, "bytes": 100_000},
                {"form": "coefficients", "cpu_s": 1.5e-4, "bytes": 135_000},
            ],
        },
        "first_batch_s": 0.5,
        "notes": ["a note"],
        "files_written": [],
        **members,
    }


@pytest.fixture(scope="module")
def result():
    return _core.Stalls.analyse([json.dumps(record())])


def check_interval(interval):
    value, low, high = interval
    assert math.isnan(value) or math.isnan(low) or low <= value <= high
    return value


def test_summary(result):
    found = result.summary()
    assert (found["ranks"], found["cores"]) == (1, 4)
    assert (found["samples"], found["bytes"]) == (100_000, 10_000_000_000)
    assert found["measured"] == {
        "device": True, "host": True, "warm": True, "cold": True, "alone": False,
    }  # fmt: skip
    for phase in "device", "host", "warm", "cold":
        assert check_interval(found["rate"][phase]) == pytest.approx(32 / STEP[phase], rel=0.02)
    share = {name: check_interval(value) for name, value in found["share"].items()}
    assert list(share) == ["compute", "copy", "preparation", "fetch"]
    assert sum(share.values()) == pytest.approx(1)
    assert share["fetch"] == pytest.approx(0.10 / 0.25, abs=0.02)
    assert share["preparation"] == pytest.approx(0.04 / 0.25, abs=0.02)
    warm = {name: check_interval(value) for name, value in found["warm_share"].items()}
    assert list(warm) == ["compute", "copy", "preparation"]
    assert sum(warm.values()) == pytest.approx(1)
    for name in "device_rate", "prepare_rate", "fetch_rate":
        check_interval(found[name])


def test_sentence_says_it(result):
    assert "40 %" in result.sentence or "40%" in result.sentence, result.sentence


def test_written_and_read_again(result, tmp_path):
    path = tmp_path / "stalls.json"
    assert result.write(path) is None
    again = stalls.read(os.fsencode(path))
    assert isinstance(again, stalls.Stalls)
    assert again.sentence == result.sentence
    assert json.loads(path.read_text())
    before, after = result.summary(), again.summary()
    assert str(before) == str(after)  # NaN is not equal to itself
    again.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_text_and_trace(result, tmp_path):
    result.write_text(tmp_path / "text", columns=70)
    text = (tmp_path / "text").read_text()
    assert all(len(line) <= 70 for line in text.splitlines())
    assert " ".join(text.split()).startswith(" ".join(result.sentence.split())[:40])
    result.write_text(tmp_path / "wide", 120)
    result.write_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert len(trace["traceEvents"] if isinstance(trace, dict) else trace) > 24


def test_page_is_one_file(result, tmp_path):
    result.write_page(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>") and page.rstrip().endswith("</html>")
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)


def test_hosts_are_merged():
    texts = [
        json.dumps(record(rank, 2, host, local_rank=0, local_world_size=1))
        for rank, host in enumerate(["one", "two"])
    ]
    parts = [_core.Stalls.analyse([text]) for text in texts]
    merged = stalls.merge(iter(parts))
    assert merged.summary()["ranks"] == 2
    together = _core.Stalls.analyse([text.encode() for text in texts])
    assert merged.sentence == together.sentence
    assert str(merged.summary()) == str(together.summary())


def test_bad_records_and_files(result, tmp_path):
    good = json.dumps(record())
    for wrong, error in [
        ([], ValueError),
        (["{"], ValueError),
        (["{}"], ValueError),
        ([good, good], ValueError),
        ([good + "x"], ValueError),
        (good, TypeError),
        ([7], TypeError),
        (["\ud800"], ValueError),
    ]:
        with pytest.raises(error):
            _core.Stalls.analyse(wrong)
    with pytest.raises(ValueError):
        _core.Stalls.analyse([json.dumps(record(segments=[]))])
    with pytest.raises(FileNotFoundError) as missing:
        _core.Stalls.read(tmp_path / "missing")
    assert missing.value.filename == tmp_path / "missing"
    (tmp_path / "damaged").write_text(good)
    with pytest.raises(ValueError):
        _core.Stalls.read(tmp_path / "damaged")
    with pytest.raises(OSError):
        result.write(tmp_path / "no folder" / "file")
    with pytest.raises(OSError) as full:
        result.write("/dev/full")
    assert full.value.errno == errno.ENOSPC
    for wrong in [7], ["text"], None:
        with pytest.raises(TypeError):
            _core.Stalls.merge(wrong)
    with pytest.raises(ValueError):
        _core.Stalls.merge([])
    with pytest.raises(TypeError):
        _core.Stalls()


def test_several_threads_ask_one_result(result):
    sentences = []
    threads = [
        threading.Thread(
            target=lambda: sentences.extend(
                (result.sentence, str(result.summary())) for _ in range(200)
            )
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(sentences) == {(result.sentence, str(result.summary()))}
    assert len(sentences) == 800


# Predictions

CAUSES = ["compute", "copy", "preparation", "fetch"]


def test_phases_have_titles():
    assert list(_core.stalls_phases) == ["device", "host", "warm", "cold", "alone"]
    assert _core.stalls_phases["warm"] == "files in memory"


def test_lengths_of_segments():
    pace = {"step_s": 0.1, "load_s": 0.2, "ahead": 0, "unit": 1, "epoch_batches": 0}
    phases = ["device", "host", "warm", "cold"]
    found = _core.stalls_lengths(phases, **pace, max_s=60.0, max_batches=0)
    assert found == {"batches": 13, "settle": 2}
    with pytest.raises(ValueError, match="unit"):
        _core.stalls_lengths(phases, **{**pace, "unit": 0}, max_s=60.0, max_batches=0)
    with pytest.raises(ValueError, match="no phase"):
        _core.stalls_lengths(["hot"], **pace, max_s=60.0, max_batches=0)


def test_prediction_of_nothing_changed(result):
    found = result.predict()
    assert set(found) == {
        "rate", "low", "high", "share", "reference_rate", "device_rate", "prepare_rate",
        "fetch_rate", "core_share", "extrapolated", "why",
    }  # fmt: skip
    assert list(found["share"]) == CAUSES
    assert sum(found["share"].values()) == pytest.approx(1)
    assert found["rate"] > 0 and isinstance(found["extrapolated"], bool)
    assert str(found) == str(result.predict())  # the same result for the same change


def test_prediction_of_changes(result):
    now = result.predict(cache_share=0.0)["rate"]
    assert result.predict(cache_share=1.0)["rate"] > now
    assert result.predict(cache_bytes=10_000_000_000)["rate"] == pytest.approx(
        result.predict(cache_share=1.0)["rate"]
    )
    ours = result.predict(cache_share=1.0, loader="headrace", form="coefficients")
    assert ours["rate"] >= result.predict(cache_share=1.0)["rate"]
    assert result.predict(cores=64)["extrapolated"] is True
    assert result.predict(cores=64)["why"]
    assert result.predict(storage_bytes_per_s=1e5)["rate"] < now
    assert result.predict(device_speedup=2.0, cache_share=1.0, loader="headrace")["rate"] > now


def test_wrong_changes(result):
    for wrong, error in [
        ({"cache_share": 2.0}, ValueError),
        ({"cache_bytes": -1}, ValueError),
        ({"cores": -1}, ValueError),
        ({"loader": "other"}, ValueError),
        ({"form": "zip"}, ValueError),
        ({"cache_share": 0.5, "cache_bytes": 5}, ValueError),
        ({"colour": 1}, TypeError),
        ({"cores": 1.5}, TypeError),
    ]:
        with pytest.raises(error):
            result.predict(**wrong)
    with pytest.raises(TypeError):
        result.predict(0.5)
    without = _core.Stalls.analyse([json.dumps(record(headrace=None))])
    with pytest.raises(ValueError):
        without.predict(loader="headrace")


def test_suggestions(result):
    found = result.suggest(0.05)
    assert 1 <= len(found) <= 8
    for one in found:
        assert one["text"]
        again = result.predict(**one["change"])
        assert str(again) == str(one["prediction"])
        assert again["share"]["preparation"] + again["share"]["fetch"] <= 0.05 + 1e-9
    assert len(result.suggest(0.05, 1)) == 1
    for wrong in (-1.0, 8), (0.05, 0), (0.05, 1000), (math.nan, 8):
        with pytest.raises(ValueError):
            result.suggest(*wrong)
