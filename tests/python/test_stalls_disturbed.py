"""Disturbed measurements and contradictory figures: detected, recorded and reported."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
from stalls_scripts import measure

from headrace import _core
from headrace.stalls import counters, load
from headrace.stalls.timer import set_pauses_apart

ZERO = load.Load(0.0, 2, 0.0, 0.0, 1, 0.0, 0.0, 0.0)


def judged(used, run_s):
    verdict = _core.stalls_judge({"phase": "host", **used.evidence(run_s)})
    return verdict["others"], verdict["disturbed"]


@pytest.mark.parametrize(
    ("busy", "steal", "own", "delay", "others", "disturbs"),
    [
        (9.0, 0.0, 9.0, 5.0, 0.0, False),  # the run itself wants more cores than it has
        (9.0, 0.0, 5.0, 5.0, 0.2, True),
        (9.0, 0.0, 5.0, 0.1, 0.2, False),  # others, on cores that the run does not need
        (6.0, 0.0, 4.5, 5.0, 0.075, False),  # too little
        (5.0, 4.0, 5.0, 0.1, 0.2, True),  # the hypervisor: no thread of the run notices
        (None, 0.0, 5.0, 5.0, None, False),  # the kernel does not report it
        (5.0, 0.0, 7.0, 0.0, 0.0, False),  # counted in different units
    ],
)
def test_what_disturbs(busy, steal, own, delay, others, disturbs):
    used = load.Load(10.0, 2, busy, steal, 1, own, delay, 0.0).since(ZERO)
    share, disturbed = judged(used, own)
    assert share is None if others is None else share == pytest.approx(others)
    assert disturbed is disturbs


def test_what_the_kernel_counts():
    before = load.read()
    end = before.own_s + 0.2
    while load.read().own_s < end:
        sum(range(10000))
    used = load.read().since(before)
    assert used.own_s >= 0.2 and used.busy_s > 0.1, "this process is among those that are busy"
    assert used.delay_s is not None and used.steal_s >= 0


def test_pauses_are_set_apart():
    wait, batch = [0.01] * 40, [0.05] * 40
    batch[19] += 3.0
    batch[39] += 3.0
    assert set_pauses_apart(wait, batch, 0.04) == pytest.approx([3.0, 3.0])
    assert batch == pytest.approx([0.05] * 40)
    # Work at every other step belongs to the steps.
    batch = [0.05, 0.65] * 20
    assert set_pauses_apart(wait, list(batch), 0.04) == []
    # The host runs ahead of its accelerator and waits for it at every tenth step.
    batch = ([0.011] * 9 + [1.0]) * 4
    assert set_pauses_apart([0.0] * 40, batch, 0.1) == []
    batch[19] += 9.0
    assert set_pauses_apart([0.0] * 40, batch, 0.1) == pytest.approx([10.0 - 0.011])


def test_processes_that_disturb():
    """Starts more processes than there are cores, with another parent than this one's children."""
    count = 2 * len(os.sched_getaffinity(0))
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        before = load.read()
        while (used := load.read().since(before)).at_s < 0.5 or used.own_s < 0.05:
            sum(range(10000))
        # A child's time is the run's own; these stand for processes outside the run.
        theirs = sum(counters.cpu_s(process.pid) or 0.0 for process in busy)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert theirs > 0
    share, disturbed = judged(used, used.own_s - theirs)
    assert share is not None and share > 0.2 and disturbed


def test_too_short_for_a_result():
    used = load.Load(0.05, 2, 0.05, 0.0, 1, 0.04, 0.05, 0.0)
    assert judged(used, used.own_s) == (None, False)
    used = load.Load(0.05, 2, 0.09, 0.0, 1, 0.04, 0.05, 0.0)
    assert judged(used, used.own_s)[0] == pytest.approx(0.5)


def test_others_disturb(tmp_path):
    """Disturbed segments run again, and those that stay disturbed are reported. The kernel's
    figures are replaced: as if others took 0.6 of the cores' time in all segments but the first try
    of the first."""
    record = measure(
        tmp_path,
        """
        import dataclasses
        from headrace.stalls import counters, load
        real, reads, busy_s, last = load.read, 0, 0.0, 0.0
        def read():
            global reads, busy_s, last
            found = real()
            busy_s += (0.6 if reads != 1 else 0.0) * found.cores * (found.at_s - last)
            reads, last = reads + 1, found.at_s
            return dataclasses.replace(
                found, busy_s=found.own_s + busy_s, steal_s=0.0, delay_s=found.at_s
            )
        load.read = read
        loader = DataLoader(Slow(), batch_size=4)
        while True:
            for x, y in loader:
                training.step(x, y, 0.02)
        """,
        batches=80,
    ).record
    found = record["segments"]
    assert found[0]["tries"] == 1 and not found[0]["disturbed"]
    assert any(one["tries"] > 1 for one in found) and all(one["tries"] <= 3 for one in found)
    assert all(one["others"] > 0.4 and one["disturbed"] for one in found[1:])
    assert any("other processes took up to 6" in note for note in record["notes"])


def test_pauses_of_a_script(tmp_path):
    record = measure(
        tmp_path,
        """
        loader = DataLoader(Slow(), batch_size=4, num_workers=1)
        while True:
            for x, y in loader:
                training.step(x, y)
                if training.steps % 6 == 0:
                    time.sleep(0.3)
        """,
        time_s=5.0,
    ).record
    paused = [one for one in record["segments"] if one["pauses"]]
    assert paused
    for one in paused:
        assert one["paused_s"] > 0.2
        assert one["elapsed_s"] == pytest.approx(sum(one["batch_s"]), abs=0.05)
    assert any("paused" in note for note in record["notes"])


def test_segments_outlast_what_is_read_ahead(tmp_path):
    record = measure(
        tmp_path,
        """
        loader = DataLoader(Slow(400), batch_size=4, num_workers=2, prefetch_factor=4)
        while True:
            for x, y in loader:
                training.step(x, y)
        """,
        time_s=60.0,  # it ends when it is precise; a busy machine needs longer
    ).record
    assert record["loader"]["batches_ahead"] == 8
    assert not any("of --time" in note for note in record["notes"])
    assert all(one["batches"] >= 24 for one in record["segments"])
    assert {one["round"] for one in record["segments"]} >= {0, 1, 2, 3}
    warm = [one for one in record["segments"] if one["phase"] == "warm"]
    assert all(0 <= one["queue_begin"] <= 9 and one["queue_end"] is not None for one in warm)


def test_the_time_that_a_slow_loop_needs(tmp_path):
    """At least four rounds of two segments of ten batches: announced at the start."""
    measured = measure(
        tmp_path,
        """
        loader = DataLoader(Slow(400), batch_size=4)
        while True:
            for x, y in loader:
                training.step(x, y, 0.05)
        """,
        time_s=1.0,
    )
    said = "more than the 1 s of --time"
    assert said in measured.stderr
    assert any(said in note for note in measured.record["notes"])
    assert len(measured.record["segments"]) >= 8


def test_a_queue_that_empties_is_no_steady_state(tmp_path):
    """The first segment hardly waits, as if something had slowed its steps. The loader then does
    not keep up, so later segments must not begin with batches that were prepared before."""
    record = measure(
        tmp_path,
        """
        loader = DataLoader(Slow(2000, 0.004), batch_size=4, num_workers=1, prefetch_factor=8)
        late = time.time() + 1e9
        warm = 0
        from headrace.stalls import measurement
        real = measurement.Measurement._real_segment
        def segment(self, given):
            global warm
            warm += 1
            return real(self, given)
        measurement.Measurement._real_segment = segment
        while True:
            for x, y in loader:
                training.step(x, y, 0.03 if warm == 1 else 0.004)
        """,
        time_s=6.0,
    ).record
    warm = [one for one in record["segments"] if one["phase"] == "warm" and one["verified"]]
    assert len(warm) >= 3
    # A batch takes its worker 16 ms, the step 4 ms.
    for one in warm:
        assert one["elapsed_s"] / one["batches"] > 0.012


def test_longer_segments_where_figures_contradict_each_other(tmp_path):
    """The loader alone seems slower than training with it: everything is measured once more."""
    measured = measure(
        tmp_path,
        """
        from headrace.stalls import after
        real, times = after.drains, 0
        def drains(m, cold):
            global times
            real(m, cold)
            times += 1
            print("drained", flush=True)
            for one in m.findings.drains if times == 1 else ():
                one["elapsed_s"] *= 20
        after.drains = drains
        loader = DataLoader(Slow(4000), batch_size=4)
        while True:
            for x, y in loader:
                training.step(x, y)
        """,
        time_s=8.0,
    )
    lengths = {one["batches"] for one in measured.record["segments"]}
    assert len(lengths) == 1 and min(lengths) >= 16, "twice the least"
    assert measured.stdout == "drained\ndrained\n", "anew"
