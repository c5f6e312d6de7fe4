"""Errors and bad samples of Python code, and workers that end or are killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

import forked
import headrace
from agents import wait_until
from conftest import encode, synthetic
from headrace.torch import DataLoader
from python_samples import Drawing, Numbers, Sized, batches, same


class Sometimes(Drawing):
    """Some samples are bad."""

    def __getitem__(self, index):
        if index in (3, 11):
            raise ValueError(f"number {index} is broken")
        return super().__getitem__(index)


def test_an_error_names_the_sample_and_keeps_the_traceback():
    for workers in (0, 2):
        loader = DataLoader(Sometimes(), 4, num_workers=workers)
        with pytest.raises(headrace.SampleError, match="number 3 is broken") as caught:
            list(loader)
        error = caught.value
        assert error.index == 3 and "Sometimes[3]" in str(error)
        assert "test_python_errors.py" in error.reason and "__getitem__" in error.reason
        assert isinstance(error.__cause__, ValueError)
        assert "__getitem__" in str(error.__cause__)
        with pytest.raises(headrace.SampleError):  # another epoch begins again
            list(loader)


def test_bad_samples_are_replaced_the_same_way():
    options = {"shuffle": True, "on_error": "skip", "max_bad_share": 0.5, "seed": 2}
    expected = batches(DataLoader(Sometimes(), 4, **options))
    loader = DataLoader(Sometimes(), 4, num_workers=3, **options)
    assert same(batches(loader), expected)
    assert {one.index for one in loader.skipped()} == {3, 11}
    assert all("is broken" in one.reason for one in loader.skipped())
    assert loader.stats()["bad_samples"] == 2
    numbers = sorted(int(n) for batch in expected for n in batch[1])
    assert len(numbers) == 23 and not {3, 11} & set(numbers)
    with pytest.raises(headrace.TooManyBadSamples, match="max_bad_share") as caught:
        list(DataLoader(Sometimes(), 4, on_error="skip"))
    assert {one.index for one in caught.value.skipped} == {3, 11}


def test_stand_ins_are_the_native_loaders(tmp_path, torchvision, v2):
    (tmp_path / "a").mkdir()
    for i in range(12):
        good = encode(synthetic(20, 20, i), "PNG")
        (tmp_path / "a" / f"{i:02}.png").write_bytes(good[:60] if i in (2, 7) else good)
    options = {"shuffle": True, "on_error": "skip", "max_bad_share": 0.5, "return_index": True}
    steps = [v2.CenterCrop(8), v2.ToImage()]
    tail = torchvision.datasets.ImageFolder(tmp_path, v2.Compose([*steps, lambda x: x]))
    native = torchvision.datasets.ImageFolder(tmp_path, v2.Compose(steps))
    ours = DataLoader(tail, 4, num_workers=1, **options)
    theirs = DataLoader(native, 4, **options)
    for a, b in zip(ours, theirs, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert [s.index for s in ours.skipped()] == [s.index for s in theirs.skipped()]


def test_errors_of_other_functions_keep_their_type():
    class Own(Exception):
        pass

    def collate(samples):
        raise Own("cannot collate")

    for workers in (0, 1):
        with pytest.raises((Own, RuntimeError), match="cannot collate"):
            list(DataLoader(Numbers(), 4, collate_fn=collate, num_workers=workers))
    with pytest.raises(RuntimeError, match="equal size"):
        list(DataLoader(Sized(), batch_sampler=[[(0, 3), (0, 4)]], num_workers=1))
    unsent = DataLoader(Numbers(), 4, collate_fn=lambda s: (lambda: s), num_workers=1)
    with pytest.raises(Exception, match="[Pp]ickle"):
        list(unsent)


@pytest.mark.parametrize("workers", [0, 1])
def test_ctrl_c_ends_no_epoch_silently(workers):
    # What the consumer does, for the worker: 1 while it takes a batch, 2 once it was interrupted.
    does = multiprocessing.RawValue("i")

    class Pressed(Numbers):
        def __getitem__(self, index):
            if index == 9:
                wait_until(lambda: does.value == 1, "the consumer's next()")
                os.kill(consumer, signal.SIGINT)
                wait_until(lambda: does.value == 2, "its interrupt")
            return super().__getitem__(index)

    def interrupt(*_):
        does.value = 2
        raise KeyboardInterrupt

    consumer = os.getpid()
    loader = DataLoader(Pressed(), 4, num_workers=workers, prefetch_factor=1 if workers else None)
    iterator, seen = iter(loader), []
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            while True:
                does.value = len(seen) >= 8
                batch = next(iterator)
                does.value = 0
                seen += batch[1].tolist()
    finally:
        signal.signal(signal.SIGINT, before)
    state = loader.state_dict()
    with pytest.raises(RuntimeError, match="stopped by KeyboardInterrupt"):
        next(iterator)
    again = DataLoader(Numbers(), 4)
    again.load_state_dict({**state, "dataset": again.state_dict()["dataset"]})
    seen += [int(n) for _, numbers in again for n in numbers]
    assert seen == list(range(23))


def test_a_killed_worker_is_reported():
    class Killed(Numbers):
        def __getitem__(self, index):
            if index == 9:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__getitem__(index)

    with pytest.raises(RuntimeError, match="killed by signal|exited unexpectedly"):
        list(DataLoader(Killed(), 4, num_workers=1))


def test_workers_end_when_the_script_is_killed(tmp_path):
    script = textwrap.dedent("""
        import os, time, torch
        from headrace.torch import DataLoader
        class Slow:
            def __len__(self): return 10000
            def __getitem__(self, i):
                open(f"%s/{os.getpid()}", "w").close()
                return torch.ones(9000)
        for batch in DataLoader(Slow(), 4, num_workers=2, persistent_workers=True):
            print("ready", flush=True)
            time.sleep(0.05)
    """) % tmp_path
    with forked.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        for _ in range(20):
            process.stdout.readline()
        process.kill()
    pids = [int(name) for name in os.listdir(tmp_path)]
    assert len(pids) == 2
    end = time.monotonic() + 600
    while any(Path(f"/proc/{pid}").exists() and not is_zombie(pid) for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.2)


def is_zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
