"""The probe within real training scripts: which loop it takes, and how the scripts end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from stalls_scripts import PRELUDE, collect, environment, measure

pytest.importorskip("torch")

ALL = {"host", "warm"}  # without a device, and with files that are not known
FOREVER = """
while time.time() - t0 < 100:
    for x, y in loader:
        training.step(x, y)
print("the script's own end")
"""


def check(measured, phases=ALL):
    """A whole measuring run, of which nothing else can be seen."""
    assert measured.status == 0, (measured.problems, measured.stderr)
    assert not measured.problems and measured.stderr == ""
    assert "own end" not in measured.stdout
    record = measured.record
    assert record["ended"] in ("precise", "limit")
    assert measured.phases() == phases
    for segment in record["segments"]:
        assert segment["batches"] == len(segment["wait_s"]) == len(segment["batch_s"]) > 0
        assert sum(segment["batch_s"]) == pytest.approx(segment["elapsed_s"], rel=0.02, abs=1e-3)
        assert segment["samples"] > 0 and segment["elapsed_s"] > 0
    rounds = {segment["round"] for segment in record["segments"] if segment["round"] >= 0}
    assert rounds == set(range(len(rounds))) and len(rounds) >= 2
    return record


def rate(record, phase):
    """Samples per second."""
    of = [s for s in record["segments"] if s["phase"] == phase]
    return sum(s["samples"] for s in of) / sum(s["elapsed_s"] for s in of)


def test_a_plain_script(tmp_path):
    """A step of 4 ms and preparation of 4 x 2 ms, one after the other: both are recovered."""
    record = check(
        measure(
            tmp_path,
            """
            loader = DataLoader(Slow(seconds=0.002), batch_size=4, shuffle=True)
            for epoch in range(10000):
                for x, y in loader:
                    training.step(x, y, 0.004)
            """,
        )
    )
    step, both = 4 / rate(record, "host"), 4 / rate(record, "warm")
    assert 0.004 < step < 0.02 and step + 0.008 < both < step + 0.03
    assert record["loader"] == {
        "kind": "torch",
        "class": "torch.utils.data.dataloader.DataLoader",
        "workers": 0,
        "batches_ahead": 0,
        "batch_size": 4,
        "cache_bytes": 0,
    }
    assert "CPU" in record["phases"]["device"] and "--data" in record["phases"]["cold"]
    rows = record["preparation"]
    assert rows and all(r["samples"] == 4 and r["wall_s"] > 0.008 > r["cpu_s"] for r in rows)
    assert {drain["cores"] for drain in record["drains"]} >= {record["machine"]["cores"]}


@pytest.mark.parametrize(
    "options",
    [
        "num_workers=2, prefetch_factor=1, persistent_workers=True",
        "num_workers=1, pin_memory=True, drop_last=True",
        "num_workers=1, multiprocessing_context='spawn', collate_fn=collate",
    ],
)
def test_workers(tmp_path, options):
    body = f"""
        def collate(samples):
            return {{"x": torch.stack([x for x, _ in samples]), "y": [y for _, y in samples]}}

        def main():
            loader = DataLoader(Slow(), batch_size=4, shuffle=True, {options})
            while True:
                for batch in loader:
                    x, y = batch.values() if isinstance(batch, dict) else batch
                    training.step(x, torch.as_tensor(y))

        if __name__ == "__main__":
            main()
    """
    measured = measure(tmp_path, body)
    measured.stderr = "" if "pin_memory" in measured.stderr else measured.stderr  # torch warns
    record = check(measured)
    workers = 2 if "num_workers=2" in options else 1
    assert record["loader"]["workers"] == workers
    assert record["loader"]["batches_ahead"] == workers * (1 if "factor=1" in options else 2)
    assert record["preparation"] and record["first_batch_s"] > 0
    assert all(s["worker_cpu_s"] is not None for s in record["segments"] if s["phase"] == "warm")


def test_a_loop_that_is_left_and_begun_again(tmp_path):
    """What a script does between its epochs is no part of a step."""
    record = check(
        measure(
            tmp_path,
            """
            loader = DataLoader(Slow(), batch_size=4, num_workers=1, persistent_workers=True)
            for epoch in range(10000):
                for i, (x, y) in enumerate(loader):
                    if i == 3:
                        break
                    training.step(x, y)
                time.sleep(0.3)
            """,
        )
    )
    assert any("leaves its loop" in note for note in record["notes"])
    for segment in record["segments"]:
        assert max(segment["batch_s"]) < 0.2


def test_an_epoch_shorter_than_a_segment(tmp_path):
    record = check(measure(tmp_path, "loader = DataLoader(Slow(13), batch_size=4)" + FOREVER))
    whole = [s["samples"] / s["batches"] for s in record["segments"]]
    assert all(one == 4 for one in whole[:2]), "the last, partial batch is left out"


def test_a_loader_made_anew_for_each_epoch(tmp_path):
    record = check(
        measure(
            tmp_path,
            """
            while time.time() - t0 < 100:
                loader = DataLoader(Slow(12), batch_size=4, shuffle=True)
                for x, y in loader:
                    training.step(x, y)
            """,
        )
    )
    assert not any("several loaders" in note for note in record["notes"])
