"""The scripts of ``make bench-scripts``: some of them are measured, and left as they were. What
the figures are made of is in the benchmark."""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def scripts():
    sys.path.insert(0, str(BENCH))
    try:
        spec = importlib.util.spec_from_file_location("bench_scripts", BENCH / "scripts.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(BENCH))


@pytest.mark.long
def test_a_script(scripts, tmp_path):
    script = scripts.Script("prefetch_thread", str(tmp_path))
    before = script.contents()
    result, printed = script.analyse(2)
    assert result is not None, printed
    start = scripts.start_of(result)
    assert start is None or min(start) > 0
    assert script.contents() == before
    assert "were kept from its folders" in printed.replace("\n    ", " ")


def test_statements(scripts):
    assert scripts.percentage("x, waits 45 % of the time, give or take 14, for") == pytest.approx(
        (0.45, 0.31, 0.59)
    )
    assert scripts.percentage("Training hardly waits for data (0 % of the time)") is None
    assert scripts.room((100, 90, 110), (112, 114), True)
    assert not scripts.room((100, 90, 110), (118, 120), True)
    assert scripts.room((0.1, 0.05, 0.15), (0.17, 0.18), False)
    assert not scripts.room((0.1, 0.05, 0.15), (0.19, 0.2), False)
    assert scripts.percentage(
        "waits 10 % of the time (give or take 9) for x. Besides, each epoch of 20 batches begins "
        "with 0.055 s of waiting for its first one: in all 26 % (give or take 8) of its time is waiting."
    ) == pytest.approx((0.26, 0.18, 0.34))
    start = 80, 0.2
    assert scripts.with_starts((100, math.nan), start) == pytest.approx((80, math.nan), nan_ok=True)
    assert scripts.with_starts((100,), start, first=4) == pytest.approx((1 / 0.012,))
    assert scripts.with_starts((100,), None) == (100,)


def test_a_script_without_a_result(scripts, tmp_path):
    """It makes no statement, so it does not count among the right ones."""
    bench = scripts.Bench(argparse.Namespace(minutes=1, only=None, table=False), str(tmp_path))
    bench.rows = [("plain_files", None, [], None)]
    bench.finish = lambda name: None
    bench.conclude()
    assert bench.figures["ran"] == 0 and bench.figures["without_result"] == 1
    assert bench.figures["known_share"] == 0
