"""The record of a rank, its machine, and segments on a device (a stand-in for one)."""

from __future__ import annotations

import json
import math
import os

import pytest

torch = pytest.importorskip("torch")

from stalls_scripts import measure  # noqa: E402

from headrace import _core  # noqa: E402
from headrace.stalls import counters, record  # noqa: E402
from headrace.stalls import measurement as measuring  # noqa: E402
from headrace.stalls.channel import Channel  # noqa: E402
from headrace.stalls.replay import Replay  # noqa: E402
from headrace.stalls.sources import Other  # noqa: E402


def test_json_has_no_nan(tmp_path):
    path = tmp_path / "rank-0.json"
    record.write(str(path), {"a": math.nan, "b": [1.5, (math.inf, 2)], "c": {"d": -math.inf}})

    def no(text):
        raise AssertionError(text)

    found = json.loads(path.read_text(), parse_constant=no)
    assert found == {"a": None, "b": [1.5, [None, 2]], "c": {"d": None}}
    assert [p.name for p in tmp_path.iterdir()] == ["rank-0.json"]


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        (None, 0),
        ("64MiB", 64 << 20),
        ("1.5GB", 1.5e9),
        ("shm:name?size=2GiB&form=encoded", 2 << 30),
        ("shm:b?size=64GiB&share=0.5", 32 << 30),
        ("memcached:a=8GiB,b=8GiB?size=64GiB", 16 << 30),
        ("1000", 1000),
        ("a lot", None),
    ],
)
def test_cache_bytes(cache, expected):
    class Loader:
        _options = {"cache": cache}

    assert record.cache_bytes(Loader()) == expected
    assert record.cache_bytes(object()) == 0


def test_machine():
    """tests/unit/base/test_machine.c tests the limits of control groups."""
    host = record.machine(None)
    assert 1 <= host["cores"] <= os.cpu_count()
    assert host["cpu"]
    with open("/proc/meminfo", encoding="ascii") as file:
        total = int(file.readline().split()[1]) * 1024
    assert 1 << 28 < host["memory_bytes"] <= total
    assert 0 < host["available_bytes"] <= host["memory_bytes"]


# Segments on a device. torch's meta device stands in: it has no values, and counts versions.


class Quiet:
    def say(self, text, fraction):
        pass


class Loop:
    """Runs a measurement with an endless list as its source, as a script's loop would."""

    def __init__(self, tmp_path, monkeypatch, batch, change=None, files=None, **settings):
        self.synchronized = 0
        self.seen = []
        device = torch.device("meta")
        monkeypatch.setattr(torch.accelerator, "synchronize", self.synchronize)
        monkeypatch.setenv("HEADRACE_STALLS_DIR", str(tmp_path))
        replay = Replay()
        replay.keep(batch)
        replay.freeze()
        loader = [batch]
        self.replay = replay
        self.measurement = measuring.Measurement(
            Other(loader, iter(loader), iter, files),
            replay,
            device,
            Channel(0, 1, str(tmp_path)),
            measuring.Settings(time_s=0.5, precision=0.5, **settings),
            measuring.Findings(),
            Quiet(),
            step_s=1e-3,
            steps_each=1,
        )
        for one in self.measurement.batches():
            where = one.device.type if isinstance(one, torch.Tensor) else "cpu"
            self.seen.append((self.measurement.phase, where))
            if change is not None:
                change(one)
        self.findings = self.measurement.findings

    def synchronize(self, device):
        assert device == torch.device("meta")
        self.synchronized += 1

    def phases(self):
        return {segment["phase"] for segment in self.findings.segments}


def test_the_device_phase(tmp_path, monkeypatch):
    loop = Loop(tmp_path, monkeypatch, torch.zeros(4, 3))
    assert loop.phases() == {"device", "host", "warm"} and "device" not in loop.findings.phases
    assert {where for phase, where in loop.seen if phase == "device"} == {"meta"}
    assert {where for phase, where in loop.seen if phase != "device"} == {"cpu"}
    # While a step is measured; then at both ends of segments and nowhere else.
    assert loop.synchronized == 5 + 2 * sum(one["tries"] for one in loop.findings.segments)
    assert loop.findings.ended in ("precise", "limit")


def test_batches_on_the_device_are_restored_between_segments_only(tmp_path, monkeypatch):
    restored = []
    kind = type(_kept())
    real = kind.restore

    def restore(kept):
        restored.append(loop_now()[-1:])
        real(kept)

    seen = []

    def loop_now():
        return seen

    monkeypatch.setattr(kind, "restore", restore)

    def change(batch):
        seen.append(batch.device.type)
        batch.zero_()

    loop = Loop(tmp_path, monkeypatch, torch.ones(4, 3), change)
    assert any("in place" in note for note in loop.findings.notes)
    of_device = sum(s["tries"] for s in loop.findings.segments if s["phase"] == "device")
    on_device = sum(last == ["meta"] for last in restored)
    # To restore after a device segment: its batch, before the next one begins.
    assert of_device - 1 <= on_device <= of_device
    assert sum(last == ["cpu"] for last in restored) > on_device


def _kept():
    replay = Replay()
    replay.keep(torch.zeros(2))
    replay.freeze()
    return replay._host[0]


def test_what_cannot_lie_on_the_device(tmp_path, monkeypatch):
    loop = Loop(tmp_path, monkeypatch, ["a", "b"])
    assert loop.phases() == {"host", "warm"}
    assert "cannot be put on the device" in loop.findings.phases["device"]


def test_a_batch_whose_move_fails(tmp_path, monkeypatch):
    class Odd:
        def __init__(self):
            self.x = torch.zeros(4)

        def to(self, device):
            raise LookupError("this batch stays")

    loop = Loop(tmp_path, monkeypatch, Odd())
    assert "LookupError('this batch stays')" in loop.findings.phases["device"]
    assert loop.phases() == {"host", "warm"}


def test_without_replay_on_the_device(tmp_path, monkeypatch):
    loop = Loop(tmp_path, monkeypatch, torch.zeros(4), device_replay=False)
    assert loop.phases() == {"host", "warm"} and "failed" in loop.findings.phases["device"]


def test_a_loader_that_gives_batches_on_the_device(tmp_path, monkeypatch):
    loop = Loop(tmp_path, monkeypatch, torch.zeros(4, device="meta"))
    assert loop.phases() == {"device", "warm"} and "already" in loop.findings.phases["host"]


def test_io_counters_that_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(counters, "bytes_read", lambda pid: None)
    loop = Loop(tmp_path, monkeypatch, torch.zeros(4))
    warm = [s for s in loop.findings.segments if s["phase"] == "warm"]
    assert warm and all(s["verified"] is False and "I/O counters" in s["reason"] for s in warm)
    assert all(s["read_bytes"] is None for s in loop.findings.segments)


def locked_kib():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmLck"))


def test_files_are_held_while_they_are_to_be_in_memory(tmp_path, monkeypatch):
    files = []
    for i in range(4):
        path = tmp_path / f"file {i}"
        path.write_bytes(os.urandom(100_000))
        files.append(str(path))
    before, held = locked_kib(), {}
    reclaimed = {}

    def reclaim(batch):
        """Evicts files as the kernel does although memory is not short."""
        phase = loop_of[0].phase
        for path in files:
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        reclaimed.setdefault(phase, []).append(_core.storage_check(files)["resident_bytes"])
        held.setdefault(phase, []).append(locked_kib() - before)

    loop_of = []
    batches = measuring.Measurement.batches

    def remember(self):
        loop_of.append(self)
        return batches(self)

    monkeypatch.setattr(measuring.Measurement, "batches", remember)
    loop = Loop(tmp_path, monkeypatch, torch.zeros(4), reclaim, files=files)
    state = _core.storage_check(files)
    assert "warm" in loop.phases()
    assert set(reclaimed["warm"]) == {state["bytes"]} and min(held["warm"]) >= 0
    if not state["in_memory"]:
        assert not any(reclaimed["host"]) and not any(reclaimed.get("cold", []))
    if max(held["warm"]):  # the limit for locked memory
        assert not any(held["host"]) and not any(held.get("cold", []))
    assert locked_kib() == before
    assert not any("takes files out of memory" in note for note in loop.findings.notes)


def test_reads_of_warm_segments_are_reported(tmp_path, monkeypatch):
    loop = Loop(tmp_path, monkeypatch, torch.zeros(4))
    segments = [
        {"phase": phase, "expected_bytes": 200_000_000, "read_bytes": read}
        for phase, read in [
            ("warm", 0),
            ("warm", None),
            ("warm", 900_000),
            ("warm", 5_800_000),
            ("warm", 1_400_000),
            ("cold", 200_000_000),
        ]
    ]
    assert _core.stalls_notes(segments, "") == [
        "2 of 5 segments with data in memory read up to 5.8 MB from storage: the system takes "
        "files out of memory meanwhile"
    ]
    path = tmp_path / "file"
    path.write_bytes(b"x" * 3_000_000)
    monkeypatch.setattr(measuring._core, "machine", lambda: {"page_cache_bytes": 4_000_000})
    loop.measurement.hold([str(path)]).close()
    assert _core.stalls_notes(segments, loop.measurement._unheld)[0].endswith(
        f"; 0.0 of 3.0 MB could be held there ({path}: more than is to be held in memory)"
    )


ON_META = """
torch.accelerator.synchronize = lambda device: None
model = torch.nn.Linear(8, 3, device="meta")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Slow(), batch_size=4)
while True:
    for x, y in loader:
        {first}
        time.sleep(0.001)
        loss = model(x.to("meta")).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_script_on_a_device(tmp_path):
    measured = measure(tmp_path, ON_META.format(first="pass"))
    assert measured.status == 0, (measured.problems, measured.stderr)
    assert measured.phases() == {"device", "host", "warm"}
    assert measured.record["training"]["device"] == "meta"
    assert measured.record["machine"]["device"] == "meta"


def test_a_script_that_fails_with_batches_on_the_device(tmp_path):
    """The probe's batches made it fail: the launcher starts it again without them."""
    measured = measure(tmp_path, ON_META.format(first="assert x.numpy().max() < 96"))
    assert measured.status == 1 and "TypeError" in measured.stderr or "numpy" in measured.stderr
    assert measured.problems[0]["code"] == "device-replay" and not measured.records
    again = tmp_path / "again"
    again.mkdir()
    measured = measure(
        again, ON_META.format(first="assert x.numpy().max() < 96"), device_replay=False
    )
    assert measured.status == 0 and measured.phases() == {"host", "warm"}
    assert "failed with batches" in measured.record["phases"]["device"]
