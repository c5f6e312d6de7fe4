"""Runs real training scripts under the probe, for the tests of ``headrace stalls``.

:func:`measure` starts a script as the launcher does: with a run's folder, its settings and the
bootstrap on PYTHONPATH. Then it reads the files that the run left.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace

BOOTSTRAP = Path(headrace.__file__).parent / "_launch" / "bootstrap"

# Common lines of most scripts. A step takes some 2 ms, a sample 0.2 ms of waiting.
PRELUDE = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Slow(Dataset):
    def __init__(self, count=96, seconds=0.0002):
        self.count, self.seconds = count, seconds
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError(index)
        time.sleep(self.seconds)
        return torch.full((8,), float(index)), index % 3

class Training:
    def __init__(self):
        self.model = torch.nn.Linear(8, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.steps = 0
    def step(self, x, y, seconds=0.002):
        time.sleep(seconds)
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1

training = Training()
t0 = time.time()
"""

SETTINGS = {
    "run": "0123456789abcdef",
    "data": None,
    "batches": 0,
    "time_s": 1.0,
    "precision": 0.5,
    "loader": None,
    "warm_up": None,
    "device_replay": True,
    "channel": None,
}


@dataclass
class Measured:
    """A script that has ended."""

    status: int
    stdout: str
    stderr: str
    records: dict[int, dict[str, Any]]
    problems: dict[int, dict[str, str]]

    @property
    def record(self) -> dict[str, Any]:
        assert self.records, (self.problems, self.stdout, self.stderr)
        return self.records[0]

    def phases(self) -> set[str]:
        return {segment["phase"] for segment in self.record["segments"]}


def environment(folder: Path, **settings: Any) -> dict[str, str]:
    """Returns the environment of a script that is measured; makes the run's folder."""
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "settings.json").write_text(json.dumps({**SETTINGS, **settings}))
    path = os.pathsep.join([str(BOOTSTRAP), os.environ.get("PYTHONPATH", "")])
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return {**os.environ, **threads, "HEADRACE_STALLS_DIR": str(folder), "PYTHONPATH": path}


def collect(folder: Path, process: subprocess.CompletedProcess[str]) -> Measured:
    def numbered(kind: str) -> dict[int, Any]:
        return {
            int(path.stem.rpartition("-")[2]): json.loads(path.read_text(), parse_constant=_no)
            for path in folder.glob(f"{kind}-*.json")
        }

    return Measured(
        process.returncode,
        process.stdout,
        process.stderr,
        numbered("rank"),
        numbered("problem"),
    )


def _no(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


class Zygote:
    """See stalls_zygote.py."""

    _only: Zygote | None = None

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("stalls_zygote.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(Path(self.folder.name)),
        )
        atexit.register(self.close)

    @classmethod
    def get(cls) -> Zygote:
        if cls._only is None:
            cls._only = cls()
        return cls._only

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(600)
        self.process.stdout.close()
        self.folder.cleanup()

    def run(self, script: Path, folder: Path, timeout: float) -> subprocess.CompletedProcess[str]:
        out, err = script.with_name("stdout"), script.with_name("stderr")
        task = {
            "script": str(script),
            "folder": str(folder),
            "cwd": str(script.parent),
            "stdout": str(out),
            "stderr": str(err),
        }
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        child = int(self.process.stdout.readline())
        late = threading.Timer(timeout, os.kill, (child, signal.SIGABRT))
        late.start()
        try:
            status = int(self.process.stdout.readline())
        finally:
            late.cancel()
        assert status != -signal.SIGABRT, f"took longer than {timeout} s: {err.read_text()}"
        return subprocess.CompletedProcess([str(script)], status, out.read_text(), err.read_text())


def measure(
    tmp_path: Path,
    body: str,
    *,
    fresh: bool = False,
    command: tuple[str, ...] = (),
    timeout: float = 300,  # anything longer hangs
    **settings: Any,
) -> Measured:
    """Runs the prelude and ``body`` as a script under the probe: in a process forked from one that
    has imported torch, or in a new Python (``command``: one that starts it)."""
    script = tmp_path / "train.py"
    script.write_text(PRELUDE + textwrap.dedent(body))
    folder = tmp_path / "run"
    variables = environment(folder, **settings)
    if fresh or command:
        process = subprocess.run(
            [*(command or (sys.executable,)), str(script)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=variables,
            cwd=tmp_path,
            check=False,
        )
    else:
        process = Zygote.get().run(script, folder, timeout)
    return collect(folder, process)
