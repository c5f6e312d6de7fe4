"""Reading with pauses: real files. Rates depend on the machine and are not asserted."""

import pytest

pytest.importorskip("torch")

from headrace.stalls import paused
from headrace.stalls.paused import PIECE_BYTES, paused_rate, saved_bytes


def files(folder, count, size):
    found = []
    for number in range(count):
        path = folder / f"{number}.bin"
        path.write_bytes(bytes([number % 256]) * size)
        found.append(str(path))
    return found


def test_small_files_and_pieces_of_a_large_one(tmp_path):
    small = files(tmp_path, 200, 1000)
    assert paused_rate(small, 1e7, 1e-6) is None  # no time
    assert paused_rate(small, 1e9, 0.0) is None
    rate = paused_rate(small, 1e8, 5.0)
    assert rate is None or rate > 0  # None: the files were read within the lead-in
    large = tmp_path / "large.tar"
    large.write_bytes(bytes(20 * PIECE_BYTES))
    # A piece takes 10 ms without pauses: most of them come after the lead-in.
    assert paused_rate([str(large)], 100 * PIECE_BYTES, 0.2) > 0


def test_nothing_to_compare_with(tmp_path):
    assert paused_rate(files(tmp_path, 3, 10), 0.0, 0.1) is None
    assert paused_rate([], 1e6, 0.1) is None


def test_what_idling_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(paused, "IDLE_S", 0)
    monkeypatch.setattr(paused, "BURST_S", 60)
    found = files(tmp_path, 20, 1000)
    assert saved_bytes(found, 0.0) == 20_000  # beyond a rate of nothing: all of it
    assert saved_bytes(found, 1e15) == 0
    assert 0 < saved_bytes(found, 1.0) <= 20_000
    assert saved_bytes([], 1.0) == 0
    monkeypatch.setattr(paused, "BURST_S", 0)
    assert saved_bytes(found, 0.0) == 1000  # the allowance may be larger
    with pytest.raises(OSError):
        saved_bytes([str(tmp_path / "gone")], 1e6)


def test_a_file_that_is_gone(tmp_path):
    with pytest.raises(OSError):
        paused_rate([str(tmp_path / "gone")], 1e6, 0.1)
