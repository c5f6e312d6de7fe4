"""``python -m headrace.stalls`` with the real probe and a real torch: the ends of scripts, measured
or not, and the launcher's messages. test_stalls_scripts.py tests which loops are measured, and the
measurements."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import places
import pytest
from headrace import _core

pytest.importorskip("torch")

# Loops over files that the probe can identify; each test appends its own loop.
MODULES = "import os, sys, time\n"
TRAINING = """
from torch.utils.data import DataLoader, Dataset, IterableDataset

torch.set_num_threads(1)


class Files(Dataset):
    def __init__(self):
        self.samples = [(os.path.join("data", n), 0) for n in sorted(os.listdir("data"))]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        with open(path, "rb") as file:
            data = file.read()
        time.sleep(0.0005)
        return torch.frombuffer(bytearray(data[:64]), dtype=torch.uint8).float(), label


model = torch.nn.Linear(64, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.001)


def step(batch):
    x, y = batch
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.004)


def train(loader, epochs=1000):
    for epoch in range(epochs):
        for number, batch in enumerate(loader):
            step(batch)


"""


class Place(places.Place):
    common = MODULES + "import torch\n" + TRAINING

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self.work / "data").mkdir()
        for i in range(600):
            (self.work / "data" / f"{i:03}").write_bytes(bytes([i % 251]) * 6000)

    def start(self, *words: str) -> subprocess.Popen:
        if "--" not in words:
            words = (*words, "--", sys.executable, "train.py")
        command = [sys.executable, "-P", "-m", "headrace.stalls", "--time", "2", *words]
        self.log = open(self.work / "log", "w+")
        return subprocess.Popen(
            command, cwd=self.work, env=self.environment, stdout=self.log, stderr=self.log
        )

    def run(self, *words: str, timeout: float = 600) -> tuple[int, str]:
        """Returns (status, all output)."""
        status = self.start(*words).wait(timeout)
        assert list(self.temporary.glob("headrace-*")) == []
        return status, self.said()

    def said(self) -> str:
        return (self.work / "log").read_text()

    def phases(self, rank: int = 0) -> set[str]:
        """Returns the phases of the segments in a rank's record."""
        return {segment["phase"] for segment in self.record(rank)["segments"]}

    def record(self, rank: int = 0) -> dict:
        return json.loads((self.work / f"headrace-stalls/records/rank-{rank}.json").read_text())

    def check_result(self) -> None:
        result = _core.Stalls.read(str(self.work / "headrace-stalls/stalls.json"))
        shares = result.summary()["warm_share"].values()
        assert sum(share[0] for share in shares) == pytest.approx(1)


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


# Scripts that are measured


def test_a_child_that_loads_by_itself(place):
    """Without workers; the script is a child of another Python, and writes files."""
    place.script(
        """
        open("events.log", "w").close()
        os.rename("events.log", "events.txt")
        train(DataLoader(Files(), 8, shuffle=True))
        """,
        "child.py",
    )
    place.script(
        "import subprocess, sys\nsys.exit(subprocess.call([sys.executable, 'child.py']))", common=""
    )
    place.environment["HEADRACE_TEST_WHOLE_TORCH"] = "1"
    status, said = place.run()
    assert status == 0, said
    assert {"host", "warm"} <= place.phases()
    place.check_result()
    record = place.record()
    assert record["loader"]["workers"] == 0
    assert record["files_written"] == [str(place.work / "events.txt")]
    assert "waits" in said


def test_a_file_that_cannot_be_written(place):
    """The result is printed anyway, and the other files are written."""
    place.script('os.makedirs("headrace-stalls/report.html")\ntrain(DataLoader(Files(), 8))')
    status, said = place.run("--unguarded")
    assert status == 3, said
    assert "waits" in said and "report.html could not be written" in said
    place.check_result()
    assert (place.work / "headrace-stalls" / "trace.json").stat().st_size > 0


def test_an_iterable_dataset_and_then_the_run_itself(place):
    place.script(
        """
        class Endless(IterableDataset):
            def __iter__(self):
                while True:
                    time.sleep(0.0005)
                    yield torch.zeros(64), 1

        limit = None if os.environ.get("HEADRACE_STALLS_DIR") else 3
        for number, batch in enumerate(DataLoader(Endless(), 8, num_workers=1)):
            if number == limit:
                print("trained", number)
                sys.exit(6)
            step(batch)
        """
    )
    status, said = place.run("--then-run")
    assert (status, said.splitlines()[-1]) == (6, "trained 3"), said
    assert {"host", "warm"} <= place.phases()
    assert "cold" in place.record()["phases"]


@pytest.mark.long
def test_two_ranks(place):
    place.script(
        """
        import torch.distributed
        from torch.utils.data import DistributedSampler

        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.001)
        files = Files()
        train(DataLoader(files, 8, sampler=DistributedSampler(files), num_workers=1))
        """
    )
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    status, said = place.run("--", sys.executable, *launcher, "train.py")
    assert status == 0, said
    assert place.record(0)["run"] == place.record(1)["run"]
    phases = [[s["phase"] for s in place.record(rank)["segments"]] for rank in range(2)]
    assert phases[0] == phases[1]
    assert {"host", "warm"} <= set(phases[0])
    place.check_result()


# Scripts that end in other ways


def test_too_few_batches(place):
    place.script("train(DataLoader(Files(), 200), epochs=1)")
    status, said = place.run()
    assert status == 1
    assert "ended before enough batches" in said
    assert not (place.work / "headrace-stalls").exists()


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("raise KeyError('mine')", marks=pytest.mark.long),
        pytest.param("sys.exit(42)", marks=pytest.mark.long),
        "os.kill(os.getpid(), 9)",
    ],
)
def test_failures_while_it_is_measured(place, how):
    place.script(
        f"""
        def steps(loader):
            for epoch in range(1000):
                for number, batch in enumerate(loader):
                    step(batch)
                    if epoch * len(loader) + number == 60:
                        {how}

        steps(DataLoader(Files(), 8))
        """
    )
    status, said = place.run()
    assert status == {"r": 1, "s": 42, "o": 137}[how[0]], said
    assert said.count("Traceback") == (1 if how.startswith("raise") else 0)
    assert "the command itself failed" in said
    assert not (place.work / "headrace-stalls").exists()


def test_an_error_of_the_scripts_own_loader(place):
    place.script(
        """
        class Broken(Files):
            def __getitem__(self, index):
                if self.reads > 100:
                    raise OSError(f"sample {index} is damaged")
                self.reads += 1
                return super().__getitem__(index)

            reads = 0

        train(DataLoader(Broken(), 8))
        """
    )
    status, said = place.run()
    assert status == 1, said
    assert said.count("is damaged") >= 1 and "train.py" in said


def test_an_interrupt_while_it_is_measured(place):
    place.script(
        """
        loader = DataLoader(Files(), 8, num_workers=1)
        try:
            train(loader)
        except KeyboardInterrupt:
            print("tidied up", flush=True)
            raise
        """
    )
    process = place.start("--time", "60", "--batches", "100000")
    until = time.monotonic() + 600

    def measuring() -> bool:
        for path in place.temporary.glob("headrace-stalls-*/progress-0.json"):
            try:
                return "round 3" in json.loads(path.read_text())["text"]
            except (OSError, ValueError):
                return False
        return False

    while not measuring() and time.monotonic() < until:
        assert process.poll() is None, place.said()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(600) == 130, place.said()
    said = place.said()
    assert "tidied up" in said and "waiting for the script to end" in said
    assert place.record()["ended"] == "interrupted"
    place.check_result()
    assert "until it was interrupted" in " ".join(said.split())
