"""Loops that are not `for batch in loader`: found, or the message says how."""

import pytest

torch = pytest.importorskip("torch")
from stalls_scripts import measure

from headrace import _core


def seconds_of_a_batch(record, phase):
    found = [one for one in record["segments"] if one["phase"] == phase]
    return sum(s["elapsed_s"] for s in found) / sum(s["batches"] for s in found)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            """
            data = [torch.zeros(4, 8) for _ in range(10)]
            for epoch in range(15):
                for x in data:
                    training.step(x, torch.zeros(4, dtype=torch.long), 0.005)
            """,
            "no loader that is known",
        ),
        pytest.param(
            """
            data = [torch.zeros(4, 8) for _ in range(10)]
            model = torch.nn.Linear(8, 3)
            for epoch in range(15):  # an update without torch.optim
                for x in data:
                    time.sleep(0.005)
                    model.zero_grad()
                    model(x).sum().backward()
                    with torch.no_grad():
                        for p in model.parameters():
                            p.data.add_(p.grad, alpha=-0.01)
            """,
            "no loader that is known",
            marks=pytest.mark.long,
        ),
        (
            """
            from itertools import islice
            loader = DataLoader(Slow(), batch_size=4)
            for epoch in range(8):
                for x, y in list(islice(loader, 20)):
                    training.step(x, y, 0.005)
            """,
            "train.py:",
        ),
    ],
    ids=["list", "no-optimizer", "islice"],
)
def test_the_watchdog(tmp_path, body, words):
    measured = measure(tmp_path, body, watchdog_s=0.2)
    assert measured.status == 0 and not measured.records
    said = [line for line in measured.stderr.splitlines() if "headrace stalls" in line]
    assert len(said) == 1 and words in said[0] and "headrace.watch" in said[0]
    problem = measured.problems[0]
    assert problem["code"] == "no-training" and words in problem["text"]
    assert "headrace.watch" in problem["remedy"] and "backward passes" in problem["text"]


def test_the_watchdog_is_quiet_where_a_loop_is_measured(tmp_path):
    measured = measure(
        tmp_path,
        """
        loader = DataLoader(Slow(), batch_size=4)
        while True:
            for x, y in loader:
                training.step(x, y, 0.05)
        """,
        watchdog_s=0.1,
        batches=1,
    )
    assert "headrace stalls" not in measured.stderr


PREFETCHER = """
import queue, threading
class Prefetch:
    def __init__(self, loader):
        self.loader = loader
    def __iter__(self):
        ready = queue.Queue(4)
        def read():
            for batch in self.loader:
                ready.put(batch)
            ready.put(None)
        threading.Thread(target=read, daemon=True, name="reads-ahead").start()
        while (batch := ready.get()) is not None:
            yield batch
loader = DataLoader(Slow(960, 0.004), batch_size=4, num_workers=1)
"""


@pytest.mark.parametrize("read_s", [0.004, pytest.param(0.0004, marks=pytest.mark.long)])
def test_a_thread_that_reads_ahead(tmp_path, read_s):
    """Its prepared batches are used up before anything is timed: a worker's 16 ms per batch show;
    otherwise only the step's 4 ms would."""
    record = measure(
        tmp_path,
        PREFETCHER.replace("0.004", str(read_s))
        + """
while True:
    for x, y in Prefetch(loader):
        training.step(x, y, 0.004)
""",
        time_s=3.0,
    ).record
    assert record["loader"]["kind"] == "torch"
    assert any("reads the loader" in note for note in record["notes"])
    assert seconds_of_a_batch(record, "warm") > (0.012 if read_s == 0.004 else 0.004)


def test_a_thread_that_reads_far_ahead(tmp_path):
    measured = measure(
        tmp_path,
        PREFETCHER.replace("Queue(4)", "Queue(100)")
        + """
while True:
    for x, y in Prefetch(loader):
        training.step(x, y, 0.004)
""",
    )
    assert not measured.records and measured.problems[0]["code"] == "thread"
    assert "16 batches ahead" in measured.problems[0]["text"]
    assert "headrace.watch" in measured.problems[0]["remedy"]


def test_a_thread_that_reads_ahead_watched(tmp_path):
    record = measure(
        tmp_path,
        PREFETCHER
        + """
import headrace
while True:
    for x, y in headrace.watch(Prefetch(loader)):
        training.step(x, y, 0.004)
""",
        time_s=3.0,
    ).record
    # Its queue, at least; test_stalls_sources.py tests the number, which a busy machine blurs.
    assert record["loader"]["kind"] == "other" and record["loader"]["batches_ahead"] >= 4
    assert seconds_of_a_batch(record, "warm") > 0.012
    assert not any("counts as compute" in note for note in record["notes"])


def test_a_watched_loop_has_a_rate_of_preparation(tmp_path):
    record = measure(
        tmp_path,
        """
        import headrace
        class Batches:
            def __iter__(self):
                for number in range(100):
                    time.sleep(0.004)
                    yield torch.full((4, 8), 1.0), torch.zeros(4, dtype=torch.long)
        while True:
            for x, y in headrace.watch(Batches()):
                training.step(x, y)
        """,
    ).record
    assert {one["cores"] for one in record["drains"]} >= {record["machine"]["cores"]}
    rates = [one["samples"] / one["elapsed_s"] for one in record["drains"]]
    assert all(rate < 1000 for rate in rates), "a batch of 4 takes at least 4 ms"


@pytest.mark.long
def test_dali(tmp_path):
    pytest.importorskip("nvidia.dali")
    record = measure(
        tmp_path,
        """
        import numpy
        from nvidia.dali import pipeline_def, fn
        from nvidia.dali.plugin.pytorch import DALIGenericIterator
        def sample(info):
            time.sleep(0.001)
            return numpy.full((8,), 1.0, dtype=numpy.float32)
        @pipeline_def(batch_size=4, num_threads=1, device_id=None)
        def pipeline():
            return fn.external_source(source=sample, batch=False)
        one = pipeline()
        one.build()
        loader = DALIGenericIterator([one], ["x"], size=400, auto_reset=True)
        while True:
            for batch in loader:
                training.step(batch[0]["x"], torch.zeros(4, dtype=torch.long))
        """,
        fresh=True,
        time_s=4.0,
    ).record
    assert record["loader"]["kind"] == "other" and "DALI" in record["loader"]["class"]
    assert {one["cores"] for one in record["drains"]} >= {record["machine"]["cores"]}


def test_processes_that_train_together(tmp_path):
    """As in Hogwild: each trains by itself; the first is measured, the others are notified."""
    measured = measure(
        tmp_path,
        """
        import torch.multiprocessing
        def train(rank, model):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            loader = DataLoader(Slow(), batch_size=4)
            for epoch in range(20):
                for x, y in loader:
                    time.sleep(0.004)
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(model(x), y).backward()
                    optimizer.step()
        if __name__ == "__main__":
            model = torch.nn.Linear(8, 3)
            model.share_memory()
            context = torch.multiprocessing.get_context("fork")
            processes = [context.Process(target=train, args=(r, model)) for r in range(2)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
        """,
    )
    assert len(measured.records) == 1 and "trains, too" in measured.stderr


def test_the_start_of_an_epoch(tmp_path):
    record = measure(
        tmp_path,
        """
        def slow_start(worker):
            time.sleep(0.3)
        loader = DataLoader(Slow(160), batch_size=4, num_workers=1, worker_init_fn=slow_start)
        while True:
            for x, y in loader:
                training.step(x, y)
        """,
    ).record
    assert record["epoch"]["batches"] == 40 and record["epoch"]["each"] is True
    assert record["epoch"]["start_s"] > 0.3 and record["loader"]["persistent"] is False


def test_measuring_in_a_program_of_ones_own(tmp_path, monkeypatch):
    import time

    from headrace.stalls import counters
    from headrace.stalls import measure as measure_here

    # Other processes may receive data: without the guard it would count as perhaps the loop's.
    monkeypatch.setattr(counters, "received", dict)

    class Waits(torch.utils.data.Dataset):
        def __len__(self):
            return 96

        def __getitem__(self, index):
            time.sleep(0.003)
            return torch.full((8,), float(index)), index % 3

    model = torch.nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = []

    def step(batch):
        x, y = batch
        time.sleep(0.004)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        steps.append(len(x))

    loader = torch.utils.data.DataLoader(Waits(), batch_size=4)
    result = measure_here(loader, step, time=10, precision=0.5)
    assert isinstance(result, _core.Stalls) and result.sentence and len(steps) > 60
    summary = result.summary()
    assert summary["measured"]["warm"], (result.sentence, summary)
    assert summary["rate"]["warm"][1] < 4 / 0.016, summary["rate"]
    result.write_page(str(tmp_path / "page.html"))
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert len(list(loader)) == 24, "the loader is as before"
    with pytest.raises(ValueError, match="no batch"):
        measure_here([], step)
    monkeypatch.setenv("HEADRACE_STALLS_DIR", str(tmp_path))
    with pytest.raises(RuntimeError, match="under `headrace stalls`"):
        measure_here(loader, step)
