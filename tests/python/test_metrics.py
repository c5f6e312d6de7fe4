"""What a DataLoader shows of itself: metrics over HTTP, the status of headrace top, the line of
verbose=1."""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import forked  # noqa: E402
import headrace  # noqa: E402
from conftest import COUNT  # noqa: E402
from headrace import transforms as T  # noqa: E402
from headrace.torch import DataLoader  # noqa: E402
from headrace.torch import _epoch_line as lines  # noqa: E402

TRANSFORM = T.Compose([T.CenterCrop(32), T.ToDtype("uint8")])


@pytest.fixture
def dataset(folder):
    return headrace.ImageFolder(folder, TRANSFORM)


@pytest.fixture(autouse=True)
def no_other_loaders():
    """Ends those that other tests left, so that numbers begin at 0."""
    gc.collect()


@pytest.fixture
def port():
    """Two ports that are free, most likely; the first one is returned."""
    for _ in range(100):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            number = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", number + 1))
            except (OSError, OverflowError):
                continue
            return number
    pytest.skip("no two free ports in a row")


def scrape(port):
    """{series: value} of the metrics at a port."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=600) as answer:
        text = answer.read().decode()
    samples = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _, value in samples}


def first_epoch(loader):
    """Begins an epoch; skips the test if the extension was built without the endpoint."""
    try:
        return iter(loader)
    except NotImplementedError as error:
        assert "libmicrohttpd" in str(error)
        pytest.skip(str(error))


def top():
    """The loaders that headrace top shows."""
    command = [sys.executable, "-m", "headrace", "top", "--once", "--json", "--interval", "0.1"]
    environment = {**os.environ, "HEADRACE_AGENT": "/nonexistent/agent.sock"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode == 3 and "no agent" in done.stderr:
        return []
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["loaders"]


# ---- metrics= ----


def test_epochs(dataset, port):
    address = f"127.0.0.1:{port}"
    with DataLoader(dataset, 4, metrics=address, cache="16MiB") as loader:
        with pytest.raises(OSError):
            scrape(port)  # not before the first epoch
        batches = first_epoch(loader)
        before = scrape(port)
        assert before['headrace_loader_running{rank="0",loader="0"}'] == 1
        assert sum(1 for _ in batches) == 10
        after = scrape(port)
        at = '{rank="0",loader="0"}'
        assert after["headrace_loader_prepared_samples_total" + at] == COUNT
        assert after["headrace_loader_batches_total" + at] == 10
        assert after["headrace_loader_position_samples" + at] == COUNT
        assert after["headrace_loader_running" + at] == 0
        assert after["headrace_loader_read_bytes_total" + at] > 0
        assert any(s.startswith("headrace_loader_info") and str(dataset.root) in s for s in after)
        # A second loader of the process has the same address, and another one cannot.
        with DataLoader(dataset, 8, metrics=address) as second:
            list(second)
            both = scrape(port)
            assert both['headrace_loader_batches_total{rank="0",loader="1"}'] == 5
            third = DataLoader(dataset, 8, metrics=f":{port + 1}")
            with pytest.raises(ValueError, match="has one address for all"):
                iter(third)
        list(loader)
        again = scrape(port)
        assert again["headrace_loader_cache_hits_total" + at] == COUNT
        assert again["headrace_loader_epoch" + at] == 1
        assert not any('loader="1"' in series for series in again)
    with pytest.raises(OSError):
        scrape(port)


def test_refusals(dataset, port, monkeypatch, caplog):
    with pytest.raises(ValueError, match="ADDRESS:PORT"):
        DataLoader(dataset, 4, metrics="nonsense")
    with pytest.raises(ValueError, match="ADDRESS:PORT"):
        DataLoader([1, 2, 3], 2, metrics="nonsense")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        loader = DataLoader(dataset, 4, metrics=f":{port}")
        with pytest.raises(OSError, match=f"port {port}: .*another port"):
            first_epoch(loader)
        # The environment's fails nobody, and is said once.
        monkeypatch.setenv("HEADRACE_METRICS", f":{port}")
        assert len(list(DataLoader(dataset, 4))) == 10
    loader.close()
    assert len(list(DataLoader(dataset, 4, metrics=""))) == 10


def test_environment(dataset, port, monkeypatch):
    monkeypatch.setenv("HEADRACE_METRICS", f"127.0.0.1:{port}")
    with DataLoader(dataset, 4, metrics="") as loader:
        list(loader)
        with pytest.raises(OSError):
            scrape(port)
    with DataLoader(dataset, 4) as loader:
        list(loader)
        if not headrace_has_endpoint(dataset):
            pytest.skip("built without libmicrohttpd")
        assert scrape(port)['headrace_loader_batches_total{rank="0",loader="0"}'] == 10


def headrace_has_endpoint(dataset):
    with DataLoader(dataset, 4, metrics=os.environ["HEADRACE_METRICS"]) as loader:
        try:
            iter(loader)
        except NotImplementedError:
            return False
    return True


def test_rank(dataset, port, monkeypatch):
    """Rank 3 of 4, the second of its machine; a sampler's loader has the same rank and port."""
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    for more in ({"shuffle": True}, {"sampler": range(6)}):
        with DataLoader(dataset, 2, metrics=f":{port}", rank=3, world_size=4, **more) as loader:
            for _ in first_epoch(loader):
                pass
            found = scrape(port + 1)
            assert found['headrace_loader_running{rank="3",loader="0"}'] == 0
            with pytest.raises(OSError):
                scrape(port)


def test_larger_batches(dataset, port):
    """The native loader is made anew, and stays the same loader in the figures."""
    batches = [[0, 1], [2, 3, 4, 5, 6, 7, 8, 9]]
    with DataLoader(dataset, batch_sampler=batches, metrics=f":{port}") as loader:
        assert [len(labels) for _, labels in first_epoch(loader)] == [2, 8]
        found = scrape(port)
        assert found['headrace_loader_batch_samples{rank="0",loader="0"}'] >= 8
        assert not any('loader="1"' in series for series in found)


def test_resume(dataset, port):
    with DataLoader(dataset, 4, shuffle=True) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
    with DataLoader(dataset, 4, shuffle=True, metrics=f":{port}") as loader:
        loader.load_state_dict(state)
        first_epoch(loader)
        assert scrape(port)['headrace_loader_position_samples{rank="0",loader="0"}'] == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork(dataset, port):
    """A forked child's loader is one of its own, which the parent's address does not show."""
    with DataLoader(dataset, 4, metrics=f":{port}") as loader:
        list(first_epoch(loader))
        with DataLoader(dataset, 4) as other:
            list(other)
            child = os.fork()
            if not child:
                bad = 1
                try:
                    bad = len(list(other)) != 10
                finally:
                    os._exit(bad)
            assert os.waitpid(child, 0)[1] == 0
            assert scrape(port)['headrace_loader_batches_total{rank="0",loader="1"}'] == 10
        os.kill(os.getpid(), 0)


# ---- of samples that Python makes ----


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.tensor(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_python_samples(port, workers):
    with DataLoader(Slow(), 4, num_workers=workers, shuffle=True, metrics=f":{port}") as loader:
        batches = first_epoch(loader)
        at = '{rank="0",loader="0"}'
        before = scrape(port)
        assert before["headrace_loader_running" + at] == 1
        assert before["headrace_loader_epoch_samples" + at] == 12
        assert sum(1 for _ in batches) == 3
        after = scrape(port)
        assert after["headrace_loader_running" + at] == 0
        assert after["headrace_loader_position_samples" + at] == 12
        assert after["headrace_loader_prepared_samples_total" + at] == 12
        assert after["headrace_loader_batches_total" + at] == 3
        assert after["headrace_loader_prepare_seconds_total" + at] >= 0.12
        assert after["headrace_loader_wait_seconds_total" + at] > 0
        assert after["headrace_loader_threads" + at] == workers
        [info] = [series for series in after if series.startswith("headrace_loader_info")]
        assert "Slow" in info and 'prepared_by="python"' in info
        list(loader)
        assert scrape(port)["headrace_loader_epoch" + at] == 1
    with pytest.raises(OSError):
        scrape(port)


def test_python_samples_beside_native_ones(dataset, port, monkeypatch):
    """Loaders of both kinds have one address; each rank's is its own."""
    monkeypatch.setenv("LOCAL_RANK", "1")
    more = {"rank": 3, "world_size": 4, "metrics": f":{port}"}
    with DataLoader(dataset, 2, **more) as native:
        list(first_epoch(native))
        with DataLoader(Slow(), 1, num_workers=0, sampler=[3, 4], **more) as loader:
            list(loader)
            found = scrape(port + 1)
            assert found['headrace_loader_position_samples{rank="3",loader="1"}'] == 2
            assert 'headrace_loader_epoch_samples{rank="3",loader="1"}' not in found
            assert 'headrace_loader_running{rank="3",loader="0"}' in found
            with pytest.raises(ValueError, match="has one address for all"):
                iter(DataLoader([1, 2], 2, metrics=f":{port + 9}"))


def test_an_end_with_an_error(port):
    def stream():
        yield 1
        raise OSError("gone")

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return stream()

    with DataLoader(Stream(), 1, num_workers=0, metrics=f":{port}") as loader:
        batches = first_epoch(loader)
        next(batches)
        with pytest.raises(OSError, match="gone"):
            next(batches)
        found = scrape(port)
        assert found['headrace_loader_running{rank="0",loader="0"}'] == 0
        assert found['headrace_loader_batches_total{rank="0",loader="0"}'] == 1


def test_without_opentelemetry(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "headrace.opentelemetry", raising=False)
    with pytest.raises(ModuleNotFoundError, match="pip install opentelemetry-api"):
        importlib.import_module("headrace.opentelemetry")


# ---- headrace top ----


def test_top_of_python_samples():
    with DataLoader(Slow(), 4, num_workers=1) as loader:
        batches = iter(loader)
        next(batches)
        time.sleep(0.6)
        next(batches)
        one = [one for one in top() if one["pid"] == os.getpid()][-1]
        assert one["running"] is True and one["step_s"] >= 0.5 and one["samples"] == 12
        assert one["position"] == 8 and one["prepared_by"] == "python"
        assert one["dataset"].endswith("Slow") and "pytest" in one["program"]
        command = [sys.executable, "-m", "headrace", "top", "--once", "--interval", "0.1"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "Slow" in shown
    assert one["loader"] not in [o["loader"] for o in top() if o["pid"] == os.getpid()]


def test_top(dataset):
    mine = [one for one in top() if one["pid"] == os.getpid()]
    with DataLoader(dataset, 4, shuffle=True) as loader:
        batches = iter(loader)
        next(batches)
        found = [one for one in top() if one["pid"] == os.getpid()]
        assert len(found) == len(mine) + 1
        one = found[-1]
        assert one["dataset"] == str(dataset.root) and one["samples"] == COUNT
        assert one["batch_samples"] == 4 and one["running"] is True and one["epoch"] == 0
        list(batches)
        [one] = [o for o in top() if o["pid"] == os.getpid() and o["loader"] == one["loader"]]
        assert one["running"] is False and one["prepared"] == COUNT
    assert len([one for one in top() if one["pid"] == os.getpid()]) == len(mine)


def test_top_of_a_killed_process(folder):
    code = f"""
import headrace, time
from headrace import transforms as T
from headrace.torch import DataLoader
loader = DataLoader(headrace.ImageFolder({str(folder)!r}, T.CenterCrop(8)), 4)
next(iter(loader))
print("ready", flush=True)
time.sleep(600)
"""
    process = forked.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        assert process.pid in [one["pid"] for one in top()]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    place = Path(os.environ["HEADRACE_SHM"], f"headrace-{os.geteuid()}-loaders")
    assert process.pid not in [one["pid"] for one in top()]
    assert list(place.glob(f"{process.pid}.*"))
    with DataLoader(headrace.ImageFolder(folder, T.CenterCrop(8)), 4) as loader:
        iter(loader)
        assert not list(place.glob(f"{process.pid}.*"))


def test_steps_are_published(dataset):
    """Twice a second, in a call of next."""
    with DataLoader(dataset, 4, num_workers=1) as loader:
        batches = iter(loader)
        next(batches)
        time.sleep(0.6)
        next(batches)
        one = [one for one in top() if one["pid"] == os.getpid()][-1]
        assert one["step_s"] >= 0.5 and one["batches"] == 2


# ---- verbose ----


def epoch_lines(capfd):
    return [line for line in capfd.readouterr().err.splitlines() if "headrace: epoch" in line]


def test_line(dataset, capfd):
    with DataLoader(dataset, 4, verbose=1, cache="64MiB") as loader:
        list(loader)
        list(loader)
        next(iter(loader))
        list(loader)
    first, second, third = epoch_lines(capfd)  # an epoch that was left has none
    number = r"[\d,.]+"
    assert re.fullmatch(
        rf"headrace: epoch 0: {COUNT} samples in {number} s, {number} samples/s; training waited "
        rf"{number} s \({number} %\)(, (for|and) [^;]*)?; samples: 100 % from files \({number} [kM]B\)",
        first,
    ), first
    assert f"epoch 1: {COUNT} samples" in second and second.endswith("samples: 100 % from the cache")
    assert "epoch 3: " in third


def test_line_of_a_python_tail(dataset, capfd):
    with DataLoader(dataset, 4, collate_fn=list, verbose=1) as loader:
        list(loader)
    [line] = epoch_lines(capfd)
    assert f"epoch 0: {COUNT} samples" in line and line.endswith("for Python's code: explain() shows its cost")


def test_cause_with_an_agent():
    """explain() has no costs of an agent's."""
    line = lines.EpochLine(is_native=False, has_agent=True)
    report = lines.Report(0, samples=9, seconds=1.0, wait_s=0.9, cause=0)
    cause = line._cause(report, {}, threads=1)
    assert "headrace top" in lines.one_line(report._replace(cause=cause))


def test_line_after_a_resume(dataset, capfd):
    with DataLoader(dataset, 4, verbose=1) as loader:
        batches = iter(loader)
        for _ in range(9):
            next(batches)
        state = loader.state_dict()
    with DataLoader(dataset, 4, verbose=1) as loader:
        loader.load_state_dict(state)
        list(loader)
    [line] = epoch_lines(capfd)
    assert f"epoch 0: {COUNT - 36} samples" in line


def test_line_of_a_loader_made_again(dataset, capfd):
    """Accelerate's prepare makes another loader of the same one."""
    with DataLoader(dataset, 4, verbose=1) as loader, loader._again([[0, 1], [2, 3]]) as other:
        list(other)
    first, second = capfd.readouterr().err.splitlines()
    assert "native threads do everything" in first and "epoch 0: 4 samples" in second


def test_cause():
    """Of known figures."""
    line = lines.EpochLine(is_native=True, has_agent=False)
    for prepare_s, fetch_s, cause in ((9, 30, 1), (1, 3, 2), (3, 1, 3)):
        report = lines.Report(0, 1, 10, 2, 0)
        now = {"prepare": prepare_s * 10**9, "fetch": fetch_s * 10**9}
        assert line._cause(report, now, 1) == cause
    assert line._cause(lines.Report(0, 1, 10, 0.05, 0), {"prepare": 0, "fetch": 0}, 1) == 0
    assert lines.EpochLine(is_native=True, has_agent=True)._cause(report, now, 1) == 4
    assert lines.EpochLine(is_native=False, has_agent=False)._cause(report, now, 1) == 5


def test_line_of_ranks():
    report = lines.Report(3, 1000, 10.0, 0.1, 0)
    slow = lines.Report(3, 1000, 10.0, 4.1, 2)
    text = lines.line_of_ranks([(0, report), (1, slow), (2, report)], 3)
    assert text == ("epoch 3 (3 ranks): 3,000 samples in 10.0 s, 300 samples/s; rank 1 waited longer "
                    "than the others: 4.1 s (41.0 %), they 0.1 s, for storage")  # fmt: skip
    text = lines.line_of_ranks([(0, report), (2, report)], 3)
    assert "(of 2 of 3 ranks)" in text and "training waited 0.1 s (1.0 %) at most" in text


RANKS = """
import sys
import torch.distributed as dist
import headrace
from headrace import transforms as T
from headrace.torch import DataLoader

rank, store, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
dataset = headrace.ImageFolder(folder, T.CenterCrop(8))
for verbose in (1, 1 - rank):  # of both ranks, then of rank 0 alone
    loader = DataLoader(dataset, 4, num_workers=1, verbose=verbose)
    for epoch in range(2):
        for images, labels in loader:
            pass
        dist.barrier()
dist.destroy_process_group()
"""


def test_ranks(folder, tmp_path):
    """Rank 0 prints for both; where only it has verbose, nobody waits for the other for ever."""
    command = [sys.executable, "-c", RANKS]
    logs = [tmp_path / str(rank) for rank in range(2)]
    processes = []
    for rank, log in enumerate(logs):
        words = [str(rank), str(tmp_path / "store"), str(folder)]
        with open(log, "w") as stderr:
            processes.append(forked.Popen([*command, *words], stderr=stderr))
    for process in processes:
        process.wait(600)
    errors = [log.read_text() for log in logs]
    assert [process.returncode for process in processes] == [0, 0], errors
    printed = [[l for l in error.splitlines() if "headrace: epoch" in l] for error in errors]
    assert len(printed[0]) == 4 and not printed[1]
    for i, line in enumerate(printed[0]):
        ranks, samples = ("2 ranks", 40) if i < 2 else ("of 1 of 2 ranks", 20)
        assert f"epoch {i % 2} ({ranks}): {samples} samples" in line


def test_reports_of_an_epoch_that_is_read_again(monkeypatch):
    """An old report, of the first time, does not count for the second."""
    store = torch.distributed.HashStore()
    monkeypatch.setattr(lines, "_store", lambda part: store)
    monkeypatch.setattr(lines, "_WAIT_S", 0.0)
    old = lines.Report(0, 20, 1.0, 0.1, 0)
    assert lines.exchange(old, 7, (1, 2)) == []
    assert lines.exchange(old, 7, (0, 2)) == [(0, old), (1, old)]
    again = old._replace(times=2)
    assert lines.exchange(again, 7, (0, 2)) == [(0, again)]
    assert lines.exchange(again, 7, (1, 2)) == []
    assert lines.exchange(again, 7, (0, 2)) == [(0, again), (1, again)]


def test_times_that_an_epoch_has_begun(dataset):
    with DataLoader(dataset, 4, verbose=1) as loader:
        for epoch in (0, 1, 0, 0):
            loader.set_epoch(epoch)
            list(loader)
        assert loader._line._times == {0: 3, 1: 1}


def test_stats_of_steps(dataset):
    with DataLoader(dataset, 4) as loader:
        for _ in loader:
            time.sleep(0.01)
        assert loader.stats()["step_ns"] >= 9 * 10_000_000
        assert np.isfinite(loader.stats()["wait_ns"])
