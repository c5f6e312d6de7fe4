"""Parts of make bench-hosts that compute."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import hosts


def epoch(waits, seconds, disk=0, sent=0, **sums):
    answers = [{"wait_s": wait, "seconds": seconds, "ready_s": 0.01, **sums} for wait in waits]
    return hosts.Epoch(answers, disk, sent)


def test_an_epoch_sums_up_its_ranks():
    found = epoch([0.5, 2.0, 1.0], 4.0, own_bytes=10, peer_bytes=1, bytes_read=5)
    assert found.spread == 1.5
    assert found.seconds == 4.0
    assert found.consumed == 3 * 16
    assert found.sum("stored") == 0


def test_servers_are_named_by_address_with_their_budgets():
    those = [SimpleNamespace(address=f"10.77.0.{n}") for n in (1, 2)]
    text = hosts.servers_text(those, 1000.7)
    assert text == "memcached:10.77.0.1:11211,10.77.0.2:11211?size=1000&form=encoded"
    assert hosts.megabytes_for(70 << 20) == 100 + hosts.BESIDE_MB


def test_rates_are_the_median_of_rounds():
    found = {"slow": [epoch([0], s) for s in (8, 9, 30)], "fast": [epoch([0], 3.0)] * 3}
    assert hosts.ratio(found, "slow", "fast") == pytest.approx(3)


def test_the_spread_is_that_of_fixed_threads_over_ours(capsys):
    bench = SimpleNamespace(figures={"fixed_held_over_ours": 1.1})
    found = {"ours": [epoch([0.1, 0.3], 5, disk=100)] * 3,
             "exact": [epoch([0.1, 2.1], 8, disk=100)] * 2,
             "fixed": [epoch([0.0, 4.0], 10, disk=150)] * 2}
    hosts.conclude_spread(bench, found, 40_000)
    assert bench.figures["wait_spread_vs_fixed"] == pytest.approx(20)
    assert bench.figures["wait_spread_exact_s"] == pytest.approx(2)
    assert bench.figures["epoch_vs_fixed"] == pytest.approx(2)
    assert bench.figures["reads_fixed_over_ours"] == pytest.approx(1.5)
    assert "20.0" in capsys.readouterr().out
