"""The probe in real training scripts: which loop it measures, and how the scripts end."""

from __future__ import annotations

import pytest
from stalls_scripts import measure

pytest.importorskip("torch")

LONG = pytest.mark.long
ALL = {"host", "warm"}  # without a device, and with files that are not known
FOREVER = """
while True:
    for x, y in loader:
        training.step(x, y)
"""


def check(measured, phases=ALL):
    """Checks a whole measuring run, which must show no trace of anything else."""
    assert measured.status == 0, (measured.problems, measured.stderr)
    assert not measured.problems and not measured.said, measured.stderr
    assert "own end" not in measured.stdout
    record = measured.record
    assert record["ended"] in ("precise", "limit")
    assert measured.phases() == phases
    for segment in record["segments"]:
        assert segment["batches"] == len(segment["wait_s"]) == len(segment["batch_s"]) > 0
        assert sum(segment["batch_s"]) == pytest.approx(segment["elapsed_s"], rel=0.2, abs=0.02)
        assert segment["samples"] > 0 and segment["elapsed_s"] > 0
    rounds = {segment["round"] for segment in record["segments"] if segment["round"] >= 0}
    assert rounds == set(range(len(rounds))) and len(rounds) >= 2
    return record


def rate(record, phase):
    """Samples per second."""
    of = [s for s in record["segments"] if s["phase"] == phase]
    return sum(s["samples"] for s in of) / sum(s["elapsed_s"] for s in of)


def test_a_plain_script(tmp_path):
    """A step of 4 ms and preparation of 4 x 2 ms, one after the other: both are measured."""
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
    assert step > 0.004 and both > 0.012
    assert record["loader"] == {
        "kind": "torch",
        "class": "torch.utils.data.dataloader.DataLoader",
        "workers": 0,
        "batches_ahead": 0,
        "batch_size": 4,
        "cache_bytes": 0,
        "persistent": False,
    }
    assert "CPU" in record["phases"]["device"] and "no files" in record["phases"]["cold"]
    rows = record["preparation"]
    assert rows and all(r["samples"] == 4 and r["wall_s"] > max(0.008, r["cpu_s"]) for r in rows)
    assert {drain["cores"] for drain in record["drains"]} >= {record["machine"]["cores"]}


def test_headraces_loader_of_a_python_dataset(tmp_path):
    record = check(
        measure(
            tmp_path,
            """
            from headrace.torch import DataLoader as Ours
            def main():
                loader = Ours(Slow(seconds=0.002), batch_size=4, shuffle=True, num_workers=1)
                while True:
                    for x, y in loader:
                        training.step(x, y, 0.004)
            if __name__ == "__main__":
                main()
            """,
        )
    )
    assert record["loader"]["kind"] == "torch" and record["loader"]["workers"] == 1
    assert "this runs in Python: the dataset" in record["headrace"]["reason"]


@pytest.mark.parametrize(
    "options",
    [
        "num_workers=2, prefetch_factor=1, persistent_workers=True",
        pytest.param("num_workers=1, pin_memory=True, drop_last=True", marks=LONG),
        pytest.param(
            "num_workers=1, multiprocessing_context='spawn', persistent_workers=True, "
            "collate_fn=collate",
            marks=LONG,
        ),
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
    measured = measure(tmp_path, body, fresh="spawn" in options)
    measured.stderr = "" if "pin_memory" in measured.stderr else measured.stderr  # torch warns
    record = check(measured)
    workers = 2 if "num_workers=2" in options else 1
    assert record["loader"]["workers"] == workers
    assert record["loader"]["batches_ahead"] == workers * (1 if "factor=1" in options else 2)
    assert record["preparation"] and record["first_batch_s"] > 0
    assert all(s["worker_cpu_s"] is not None for s in record["segments"] if s["phase"] == "warm")


def test_a_loop_that_is_left_and_begun_again(tmp_path):
    """A script's work between its epochs is not part of a step."""
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
        # A third of the rate, if the pauses counted.
        assert sum(batch_s >= 0.3 for batch_s in segment["batch_s"]) <= len(segment["batch_s"]) / 6


def test_an_epoch_shorter_than_a_segment(tmp_path):
    record = check(measure(tmp_path, "loader = DataLoader(Slow(13), batch_size=4)" + FOREVER))
    whole = [s["samples"] / s["batches"] for s in record["segments"]]
    assert all(one == 4 for one in whole[:2]), "the last, partial batch is left out"


def test_a_loader_made_anew_for_each_epoch(tmp_path):
    record = check(
        measure(
            tmp_path,
            """
            while True:
                loader = DataLoader(Slow(12), batch_size=4, shuffle=True)
                for x, y in loader:
                    training.step(x, y)
            """,
        )
    )
    assert not any("several loaders" in note for note in record["notes"])


# The choice of the loop


def test_validation_before_and_within_training(tmp_path):
    """A loop that does not train is not measured, even if it is long and keeps gradients."""
    record = check(
        measure(
            tmp_path,
            """
            def validate():
                for x, y in DataLoader(Slow(80), batch_size=2):
                    training.model(x)
            validate()
            loader = DataLoader(Slow(64), batch_size=4, shuffle=True)
            while True:
                for x, y in loader:
                    training.step(x, y)
                validate()
            """,
        )
    )
    assert record["loader"]["batch_size"] == 4
    assert any("several loaders; measured: 2" in note for note in record["notes"])


def test_a_pass_over_the_data_before_training(tmp_path):
    """Mean and deviation, with the loader that trains later: no warm-up, nothing to keep."""
    record = check(
        measure(
            tmp_path,
            """
            loader = DataLoader(Slow(96), batch_size=4, shuffle=True)
            mean = torch.stack([x.mean() for x, y in loader]).mean()
            while True:
                for x, y in loader:
                    training.step(x, y)
                    print("step", training.steps, flush=True)
            """,
        )
    )
    assert record["ended"] == "precise"


def test_no_optimizer_of_torch(tmp_path):
    check(
        measure(
            tmp_path,
            """
            loader = DataLoader(Slow(), batch_size=4)
            weight = torch.zeros(8, requires_grad=True)
            while True:
                for x, y in loader:
                    loss = ((x @ weight) ** 2).mean()
                    loss.backward()
                    weight.data -= 1e-6 * weight.grad
                    weight.grad = None
            """,
        )
    )


def test_a_loop_that_stands_in_for_training(tmp_path):
    """The script has no optimizer: a loop that is long enough is measured."""
    check(
        measure(
            tmp_path,
            """
            del training
            loader = DataLoader(Slow(), batch_size=4)
            while True:
                for x, y in loader:
                    time.sleep(0.002)
            """,
        )
    )


def test_only_validation(tmp_path):
    measured = measure(
        tmp_path,
        """
        for epoch in range(3):
            for x, y in DataLoader(Slow(40), batch_size=4):
                training.model(x)
        print("own end")
        """,
    )
    assert measured.status == 0 and "own end" in measured.stdout and not measured.records
    assert measured.problems[0]["code"] == "no-training"
    text = measured.problems[0]["text"]
    assert "loader 1 (torch.utils.data.dataloader.DataLoader, read at train.py:" in text
    assert "10 batches, no optimizer step" in text


def test_too_few_batches(tmp_path):
    measured = measure(
        tmp_path,
        """
        for x, y in DataLoader(Slow(12), batch_size=4):
            training.step(x, y)
        """,
    )
    assert measured.problems[0]["code"] == "few-batches" and not measured.records
    assert "3 batches, 3 optimizer steps" in measured.problems[0]["text"]


def test_the_loader_that_was_chosen(tmp_path):
    body = """
        first = DataLoader(Slow(96), batch_size=4)
        second = DataLoader(Slow(96), batch_size=2)
        while True:
            for (x, y), (x2, y2) in zip(first, second):
                training.step(torch.cat([x, x2]), torch.cat([y, y2]))
    """
    record = check(measure(tmp_path, body, loader=2))
    assert record["loader"]["batch_size"] == 2
    assert any("was read within the measured loop" in note for note in record["notes"])


def test_nested_loops_and_accumulation(tmp_path):
    record = check(
        measure(
            tmp_path,
            """
            tasks = DataLoader(Slow(1000), batch_size=1)
            loader = DataLoader(Slow(48), batch_size=4)
            for task in tasks:
                for i, (x, y) in enumerate(loader):
                    loss = torch.nn.functional.cross_entropy(training.model(x), y)
                    (loss / 4).backward()
                    if i % 4 == 3:
                        training.optimizer.step()
                        training.optimizer.zero_grad()
            """,
        )
    )
    assert record["loader"]["batch_size"] == 4
    assert all(s["batches"] % 4 == 0 for s in record["segments"][:2])


SUBCLASSES = {
    "through": """
        class Loader(DataLoader):
            def __iter__(self):
                for x, y in super().__iter__():
                    yield {"x": x, "y": y}
        """,
    "eager": """
        class Loader(DataLoader):
            def __iter__(self):
                self.own = super().__iter__()
                return self
            def __next__(self):
                x, y = next(self.own)
                return {"x": x, "y": y}
        """,
    "endless": """
        class Again:
            def __init__(self, sampler):
                self.sampler = sampler
            def __iter__(self):
                while True:
                    yield from self.sampler

        class Loader(DataLoader):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                object.__setattr__(self, "batch_sampler", Again(self.batch_sampler))
                self.iterator = super().__iter__()
            def __len__(self):
                return len(self.batch_sampler.sampler)
            def __iter__(self):
                for _ in range(len(self)):
                    x, y = next(self.iterator)
                    yield {"x": x, "y": y}
        """,
    "in a thread": """
        import queue, threading

        class Loader(DataLoader):
            def __iter__(self):
                ahead = queue.Queue(2)
                def fill(batches):
                    for x, y in batches:
                        ahead.put({"x": x, "y": y})
                    ahead.put(None)
                threading.Thread(target=fill, args=(super().__iter__(),), daemon=True).start()
                return iter(ahead.get, None)
        """,
    "around": """
        class Loader:
            def __init__(self, *args, **kwargs):
                self.inner = DataLoader(*args, **kwargs)
            def __iter__(self):
                for x, y in self.inner:
                    yield {"x": x, "y": y}
        """,
}


@pytest.mark.parametrize(
    ("kind", "workers"),
    [(kind, i % 2) for i, kind in enumerate(SUBCLASSES)],
)
def test_loaders_of_ones_own(tmp_path, kind, workers):
    """Batches reach the script through its own class's code."""
    body = f"""
        {SUBCLASSES[kind]}
        loader = Loader(Slow(), batch_size=4, num_workers={workers})
        while True:
            for batch in loader:
                assert set(batch) == {{"x", "y"}} and batch["x"].shape == (4, 8), batch
                training.step(batch["x"], batch["y"])
    """
    record = check(measure(tmp_path, body))
    assert record["loader"]["workers"] == workers
    assert not any("several loaders" in note for note in record["notes"])


# Ends of scripts

TRAIN = "loader = DataLoader(Slow(), batch_size=4, shuffle=True)"


def test_nothing_of_the_script_runs_at_the_end(tmp_path):
    check(
        measure(
            tmp_path,
            f"""
            import atexit
            atexit.register(print, "own end: atexit")
            {TRAIN}
            try:
                with open("log", "w") as log:
                    while True:
                        for x, y in loader:
                            training.step(x, y)
            except BaseException:
                print("own end: except")
            finally:
                print("own end: finally")
            """,
        )
    )


@pytest.mark.parametrize("when", [pytest.param("before", marks=LONG), "within"])
@pytest.mark.parametrize(
    ("how", "status", "text"),
    [
        ("raise ValueError('of the script')", 1, "ValueError: of the script"),
        ("sys.exit(3)", 3, ""),
        pytest.param("sys.exit('a text')", 1, "a text", marks=LONG),
        ("os._exit(4)", 4, ""),
    ],
)
def test_a_script_that_fails(tmp_path, when, how, status, text):
    """Its own exit status and traceback, whatever was measured before."""
    at = "training.steps == 3" if when == "before" else "os.path.exists('run/recording-%d' % pid)"
    measured = measure(
        tmp_path,
        f"""
        pid = os.getpid()
        {TRAIN}
        while True:
            for x, y in loader:
                training.step(x, y)
                if {at}:
                    {how}
        """,
    )
    assert measured.status == status and text in measured.stderr
    if "raise" in how:
        assert measured.said.count("Traceback") == 1
        assert measured.said.rstrip().endswith(text) and "headrace" not in measured.said
    if measured.records:
        assert measured.record["ended"] == "script"


@pytest.mark.parametrize("workers", [pytest.param(0, marks=LONG), 1])
def test_a_dataset_that_fails_within_a_segment(tmp_path, workers):
    measured = measure(
        tmp_path,
        f"""
        class Broken(Slow):
            def __getitem__(self, index):
                if os.path.exists("run/recording-%d" % pid):
                    raise KeyError("sample %d is broken" % index)
                return super().__getitem__(index)
        pid = os.getpid()
        try:
            for epoch in range(1000):
                for x, y in DataLoader(Broken(), batch_size=4, num_workers={workers}):
                    training.step(x, y)
        finally:
            print("own end")
        """,
    )
    assert measured.status == 1 and measured.stdout == "own end\n"
    assert "KeyError" in measured.stderr and "is broken" in measured.stderr
    assert not measured.problems or measured.problems[0]["code"] != "internal"


def test_a_script_that_skips_what_its_loader_raises(tmp_path):
    measured = measure(
        tmp_path,
        """
        class Broken(Slow):
            def __getitem__(self, index):
                if os.path.exists("run/recording-%d" % pid):
                    raise KeyError("sample %d is broken" % index)
                return super().__getitem__(index)
        pid = os.getpid()
        loader = DataLoader(Broken(), batch_size=4)
        batches = iter(loader)
        while True:
            try:
                x, y = next(batches)
            except StopIteration:
                batches = iter(loader)
            except KeyError:
                print("skipped")
                continue
            training.step(x, y)
        """,
    )
    assert measured.status == 70 and "skipped" in measured.stdout
    assert measured.problems[0]["code"] == "loader"
    assert "KeyError" in measured.problems[0]["text"]


@pytest.mark.parametrize("caught", [False, True])
def test_an_interrupt(tmp_path, caught):
    measured = measure(
        tmp_path,
        f"""
        import signal
        pid, caught = os.getpid(), {caught}
        {TRAIN}
        signal.signal(signal.SIGINT, signal.default_int_handler)
        def run():
            while True:
                for x, y in loader:
                    training.step(x, y)
                    if any(s.startswith("rows") for s in os.listdir("run")):
                        signal.raise_signal(signal.SIGINT)
        try:
            run()
        except KeyboardInterrupt:
            if not caught:
                raise
            print("caught")
        """,
        batches=100000,
        time_s=60,
    )
    if caught:
        assert measured.status == 0 and measured.stdout == "caught\n"
    else:
        assert measured.status == -2 and "KeyboardInterrupt" in measured.stderr
    if measured.records:
        assert measured.record["ended"] == ("script" if caught else "interrupted")
    else:
        assert measured.problems[0]["code"] == "few-batches"


def test_children(tmp_path):
    """Processes that a script forks or starts disturb nothing and are not ranks."""
    record = check(
        measure(
            tmp_path,
            f"""
            import subprocess
            {TRAIN}
            while True:
                for x, y in loader:
                    training.step(x, y)
                    if training.steps in (2, 9):
                        child = os.fork()
                        if not child:
                            for x, y in DataLoader(Slow(80), batch_size=4):
                                training.step(x, y, 0)
                            sys.exit(5)
                        assert os.waitpid(child, 0)[1] == 5 << 8
                    if training.steps == 3:
                        subprocess.run(["true"], check=True)
            """,
        )
    )
    assert record["rank"] == 0 and record["world_size"] == 1


# Other properties of training


def test_mixed_precision_and_compiled_models(tmp_path):
    check(
        measure(
            tmp_path,
            """
            model = torch.compile(training.model, backend="aot_eager")
            optimizer = torch.optim.AdamW(model.parameters())
            scaler = torch.amp.GradScaler("cpu")
            loader = DataLoader(Slow(), batch_size=4)
            while True:
                for x, y in loader:
                    with torch.autocast("cpu", dtype=torch.bfloat16):
                        loss = torch.nn.functional.cross_entropy(model(x), y)
                    optimizer.zero_grad(set_to_none=True)
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
            """,
        )
    )


def test_batches_changed_in_place(tmp_path):
    """Each step sees the batch as the loader made it."""
    record = check(
        measure(
            tmp_path,
            f"""
            {TRAIN}
            while True:
                for batch in loader:
                    x, y = batch
                    assert (x == x[:, :1]).all() and x.max() < 96 and len(batch) == 2, x
                    training.step(x.mul_(1000).add_(torch.arange(8)), y)
                    batch.clear()
            """,
        )
    )
    assert any("in place" in note for note in record["notes"])


@pytest.mark.parametrize("workers", [pytest.param(0, marks=LONG), 2])
def test_streams(tmp_path, workers):
    """Iterable datasets like Hugging Face's: without a length, ended and begun again."""
    record = check(
        measure(
            tmp_path,
            f"""
            class Stream(IterableDataset):
                def __iter__(self):
                    worker = torch.utils.data.get_worker_info()
                    first, step = (worker.id, worker.num_workers) if worker else (0, 1)
                    for i in range(first, 160, step):
                        time.sleep(0.0002)
                        yield {{"x": torch.full((8,), float(i)), "y": i % 3, "text": str(i)}}
            loader = DataLoader(Stream(), batch_size=4, num_workers={workers})
            while True:
                for batch in loader:
                    training.step(batch["x"], batch["y"])
            """,
        )
    )
    assert record["dataset"]["samples"] is None and record["preparation"]


def test_an_empty_stream(tmp_path):
    measured = measure(
        tmp_path,
        """
        class Once(IterableDataset):
            given = iter([(torch.zeros(8), 0)] * 400)
            def __iter__(self):
                return self.given
        for x, y in DataLoader(Once(), batch_size=4):
            training.step(x, y)
        """,
    )
    assert measured.status in (0, 70) and not measured.said
    assert measured.records or measured.problems[0]["code"] == "few-batches"


def test_watch(tmp_path):
    record = check(
        measure(
            tmp_path,
            """
            import headrace

            class Batches:
                def __iter__(self):
                    for i in range(50):
                        time.sleep(0.001)
                        yield [i] * 6
            loader = headrace.watch(Batches(), batch_size=3)
            while True:
                for batch in loader:
                    time.sleep(0.002)
            """,
        )
    )
    assert record["loader"]["kind"] == "other" and record["loader"]["batch_size"] == 3
    assert 3 / rate(record, "host") > 0.002 and 3 / rate(record, "warm") > 0.003


@pytest.mark.parametrize("loader", [None, 9])
def test_cost_of_the_idle_probe(tmp_path, loader):
    """For a loop that is not measured: a few function calls per batch, however many came before."""
    measured = measure(
        tmp_path,
        """
        import sys

        class Batches:
            def __iter__(self):
                return iter([batch] * 20000)
        batch, calls = {"x": torch.zeros(8, 3), "y": torch.zeros(8)}, []

        def called(frame, event, arg):
            if event in ("call", "c_call"):
                calls[-1] += 1

        import headrace.stalls.probe as probe
        probe._wrap_class(Batches)
        for number, batch in enumerate(Batches()):
            if number % 5000 == 4000:
                calls.append(0)
                sys.setprofile(called)
            elif number % 5000 == 4100:
                sys.setprofile(None)
        print(*calls)
        """,
        loader=loader,
    )
    assert measured.status == 0, measured.stderr
    assert not measured.records and measured.problems[0]["code"] == "no-training"
    calls = [int(word) for word in measured.stdout.split()]
    assert len(calls) == 4 and len(set(calls)) == 1  # for 100 batches
    assert 0 < calls[0] < 100 * 40
