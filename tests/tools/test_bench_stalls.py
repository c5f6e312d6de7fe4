"""Parts of make bench-stalls that compute: the turns, the scaling, and the report."""

import argparse
import math
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import harness
import limits
import plain_runs
import reference
from plain_runs import Case, Epoch, Measured
from reference import Speed


class Process:
    """A stand-in for a trial's process, with the members used here."""

    def __init__(self, cores):
        self.cores = cores


def measured(rates, speeds, epochs=2, cores=2):
    case = Case("figure", "case", {}, epochs)
    return Measured(Process(cores), case,
                    [Epoch(rate, 1.0, 0.0, 0.0, 1.0, Speed(speed / 2, speed))
                     for rate, speed in zip(rates, speeds)])


def test_cases_take_turns_forth_and_back():
    def order(epochs, rounds):
        cases = [measured([], [], count) for count in epochs]
        return [[cases.index(one) for one in plain_runs.turns(cases, n, rounds)]
                for n in range(rounds)]

    assert order((1, 3, 2), 3) == [[0, 1, 2], [2, 1], [1]]
    assert order((2, 2), 2) == [[0, 1], [1, 0]]
    # More epochs than rounds: forward and back within one.
    assert order((1, 5, 4), 3) == [[0, 1, 2, 2, 1], [1, 2, 1], [1, 2]]
    assert sum(order((3, 9), 2), []).count(1) == 9


def test_files_are_held_for_cases_in_memory_only(tmp_path):
    """Also if the kernel evicts files meanwhile."""
    core = pytest.importorskip("headrace._core")
    paths = []
    for number in range(3):
        paths.append(str(tmp_path / f"{number}.jpg"))
        Path(paths[-1]).write_bytes(os.urandom(100_000))
    left = core.storage_drop(paths)["resident_bytes"]
    bench = argparse.Namespace(reference=argparse.Namespace(read=lambda: Speed(1, 2)),
                               files=argparse.Namespace(paths=paths))

    class Plain(Process):
        def measure(self, case, before):
            return core.storage_drop(paths)["resident_bytes"], before

    def one(storage):
        plain = Plain(2)
        plain.trial = plain_runs.Trial([], [], storage=storage)
        return Measured(plain, Case("figure", "case", {}, 1))

    due = [one(False), one(False), one(True), one(False), one(True)]
    plain_runs.run_round(bench, due)
    assert [case.epochs for case in due] == [[300_000], [300_000], [left], [300_000], [left]]
    assert core.storage_drop(paths)["resident_bytes"] == left


def test_scaled_to_the_speed_of_the_analyses():
    """Rates that follow the machine's speed are equal after scaling."""
    analysed = Speed(1000, 2000)
    one = measured([100, 110, 90], [2000, 2200, 1800])
    assert plain_runs.scaled_rate(one, analysed) == pytest.approx(100)
    assert not plain_runs.is_off(one, analysed)
    slower = measured([100, 100], [1900, 1900])
    assert plain_runs.is_off(slower, analysed)
    assert plain_runs.scaled_rate(slower, analysed) == pytest.approx(100 * 20 / 19)
    # On one core, by the speed of one core.
    narrow = measured([100], [2000], cores=1)
    assert plain_runs.scaled_rate(narrow, Speed(500, 2000)) == pytest.approx(50)


def said(prepare, fetch, device):
    return {"prepare_rate": prepare, "fetch_rate": fetch, "device_rate": device}


def test_only_what_cores_bound_is_scaled():
    assert plain_runs.bound_by_cores(said(2400, math.inf, 4000), False)
    assert not plain_runs.bound_by_cores(said(2400, math.inf, 2000), False), "the step sleeps"
    assert not plain_runs.bound_by_cores(said(2400, 600, 2000), False), "the disk"
    assert plain_runs.bound_by_cores(said(2400, math.inf, 600), True), "the step computes"
    assert not plain_runs.bound_by_cores(said(1300, 400, 600), True), "the disk"


def test_mean_of_two_analyses():
    keys = ("rate", "low", "high", "reference_rate", "prepare_rate", "fetch_rate", "device_rate")
    first, second = ({**dict.fromkeys(keys, value), "low": low}
                     for value, low in ((10.0, None), (20.0, 4.0)))
    mean = plain_runs.mean_of([first, second])
    assert mean["rate"] == 15 and mean["low"] == 4
    assert math.isnan(plain_runs.mean_of([first])["low"])


def test_what_is_off_runs_again_as_far_as_there_is_time(monkeypatch):
    ran = []
    monkeypatch.setattr(plain_runs, "run_round", lambda bench, due: ran.append(due))
    runs = object.__new__(plain_runs.Runs)
    runs.bench = None
    cases = [measured([1], [1]) for _ in range(3)]
    assert runs.again(cases, 3.5) == cases[:2] and ran == [cases[:2]]
    assert runs.again(cases, 0) == [] and len(ran) == 1


def test_a_reading_of_the_machine(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("headrace")
    paths = []
    for number in range(3):
        paths.append(str(tmp_path / f"{number}.jpg"))
        image.effect_noise((160, 120), 40 + number).convert("RGB").save(paths[-1])
    speed = reference.Reference(paths, 2).read()
    assert speed.one > 10 and speed.all > 10
    assert speed.of(1) == speed.one and speed.of(2) == speed.all
    assert reference.mean([Speed(1, 2), Speed(3, 6)]) == Speed(2, 4)


def test_options_that_benchmarks_share(monkeypatch, tmp_path):
    monkeypatch.delenv("CACHE_FILES", raising=False)
    parser = harness.parser("name", "what it does", {"one": 1, "two": 2}, minutes=3)
    options = parser.parse_args(["--only", "two", "one", "--data", str(tmp_path)])
    assert options.only == ["two", "one"] and options.minutes == 3
    harness.need_cache_files(options)
    with pytest.raises(SystemExit, match="no such folder"):
        harness.need_cache_files(argparse.Namespace(data=str(tmp_path / "nothing")))
    monkeypatch.setenv("CACHE_FILES", "/somewhere")
    assert harness.parser("name", "", {}, 1).parse_args([]).data == "/somewhere"
    with pytest.raises(SystemExit):
        parser.parse_args(["--only", "three"])


def test_a_disk_that_delivers_in_lumps_has_the_same_rate_wherever_they_fall():
    for phase in range(10):
        points = [(t / 100, 27 * math.floor((t + phase) / 10)) for t in range(600)]
        assert limits.slope(points) == pytest.approx(270, rel=0.005)
