"""Page-cache residency from Python: the same figures as in the C library's own tests, arguments of
every kind, and other threads that continue meanwhile."""

import os
import pathlib
import threading

import pytest

from headrace import _core

SIZE = 300_000


@pytest.fixture
def files(tmp_path_factory):
    folder = pathlib.Path(tmp_path_factory.mktemp("storage"))
    paths = []
    for i in range(20):
        path = folder / f"file {i}"
        path.write_bytes(os.urandom(SIZE))
        paths.append(path)
    return paths


def test_drop_and_preread(files):
    now = _core.storage_check(files)
    assert now["files"] == 20 and now["bytes"] == 20 * SIZE
    assert now["resident_bytes"] == 20 * SIZE
    assert now["failed"] == now["unknown"] == 0 and now["problem"] == ""
    assert now["filesystem"] and now["network"] is False
    left = 20 * SIZE if now["in_memory"] else 0
    assert _core.storage_drop(files)["resident_bytes"] == left
    assert _core.storage_check([str(p) for p in files])["resident_bytes"] == left
    assert _core.storage_preread([os.fsencode(p) for p in files])["resident_bytes"] == 20 * SIZE
    assert set(now) == set(_core.storage_check([]))


def test_many_runs_are_added_up(files, tmp_path):
    missing = tmp_path / "missing"
    now = _core.storage_check(files * 100 + [missing] + files * 10 + [tmp_path / "other"])
    assert now["files"] == 2200 and now["bytes"] == 2200 * SIZE and now["failed"] == 2
    assert now["problem"].endswith("missing: No such file or directory")


def test_measure(files):
    _core.storage_drop(files)
    rate = _core.storage_measure(files, depth=4, seconds=30)
    assert rate["bytes"] == 20 * SIZE and rate["reads"] == 20 and rate["exhausted"] is True
    assert rate["failed"] == 0 and rate["elapsed_s"] > 0
    assert rate["parts"] == [], "over before a quarter of the time"
    assert rate["bytes_per_s"] == pytest.approx(rate["bytes"] / rate["elapsed_s"])
    assert rate["reads_per_s"] == pytest.approx(rate["reads"] / rate["elapsed_s"])
    now = _core.storage_check(files)
    assert now["resident_bytes"] == (20 * SIZE if now["in_memory"] else 0)


def test_a_rate_in_parts(files):
    rate = _core.storage_measure(files * 5000, depth=4, seconds=0.2)
    assert not rate["exhausted"] and len(rate["parts"]) == 4
    assert 0 < sum(rate["parts"]) * 0.05 <= rate["bytes"]
    assert rate["steady_bytes_per_s"] > 0


def test_wrong_arguments(files, tmp_path):
    for call in _core.storage_check, _core.storage_drop, _core.storage_preread:
        for wrong in "a path", b"a path", 7, [7], ["a\0b"]:
            with pytest.raises((TypeError, ValueError)):
                call(wrong)
    with pytest.raises(ValueError, match="depth is 0"):
        _core.storage_measure(files, 0, 1.0)
    with pytest.raises(ValueError, match="seconds is -1"):
        _core.storage_measure(files, 1, -1.0)
    with pytest.raises(OSError, match="none of 1 files could be read"):
        _core.storage_measure([tmp_path / "missing"], 1, 1.0)


def test_names_that_are_not_utf8(tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9"
    with open(path, "wb") as file:
        file.write(b"x" * 10)
    assert _core.storage_check([path])["bytes"] == 10
    assert _core.storage_check([os.fsdecode(path)])["bytes"] == 10


def test_other_threads_go_on(files):
    """A thread goes on counting while files are measured."""
    counted = 0
    end = threading.Event()

    def count():
        nonlocal counted
        while not end.wait(0.001):
            counted += 1

    thread = threading.Thread(target=count)
    thread.start()
    _core.storage_measure(files * 2000, 1, 0.3)
    end.set()
    thread.join()
    assert counted > 20


# ---- holding ----


def locked_kib():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmLck"))


def test_held_files_stay_until_they_are_released(files):
    total = 20 * SIZE
    dropped = _core.storage_drop(files)["resident_bytes"]
    before = locked_kib()
    hold = _core.StorageHold(files, most_bytes=2 * total)
    assert hold.bytes == hold.held_bytes == total
    assert hold.locked_bytes == total or "(ulimit -l)" in hold.problem
    assert locked_kib() - before >= hold.locked_bytes >> 10
    assert _core.storage_drop(files)["resident_bytes"] == total
    hold.close()
    hold.close()
    assert locked_kib() == before and hold.held_bytes == total
    assert _core.storage_drop(files)["resident_bytes"] == dropped


def test_a_hold_ends_with_its_block_or_its_owner(files):
    dropped = _core.storage_drop(files)["resident_bytes"]
    with _core.StorageHold(files * 60, 2**40) as hold:
        assert hold.held_bytes == 1200 * SIZE
        assert _core.storage_drop(files)["resident_bytes"] == 20 * SIZE
    assert _core.storage_drop(files)["resident_bytes"] == dropped
    hold = _core.StorageHold(files, 2**40)
    del hold
    assert _core.storage_drop(files)["resident_bytes"] == dropped


def test_holding_no_more_than_asked(files, tmp_path):
    _core.storage_drop(files)
    with _core.StorageHold(files, 4 * 2**20) as hold:
        assert hold.bytes == 20 * SIZE and 0 < hold.held_bytes <= 4 * 2**20
        assert hold.problem.endswith("more than is to be held in memory")
        assert _core.storage_check(files)["resident_bytes"] == 20 * SIZE
    with _core.StorageHold([tmp_path / "missing"], 0) as hold:
        assert hold.bytes == 0 and hold.problem.endswith("No such file or directory")
    with _core.StorageHold([], 0) as hold:
        assert hold.problem == ""


def test_wrong_holds():
    for wrong in "a path", 7, [7]:
        with pytest.raises((TypeError, ValueError)):
            _core.StorageHold(wrong, 1)
    with pytest.raises(ValueError, match="not negative"):
        _core.StorageHold([], -1)
