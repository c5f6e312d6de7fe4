"""Real training scripts under the probe, for the tests of ``headrace stalls``.

:func:`measure` starts a script as the launcher does: with a run's folder, its settings and
the bootstrap on PYTHONPATH. What it left there is read back.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace

BOOTSTRAP = Path(headrace.__file__).parent / "stalls" / "bootstrap"

# What most scripts have in common. A step takes some 2 ms, a sample 0.2 ms of waiting.
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
    "time_s": 2.0,
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
    """Of a script that is measured; makes the run's folder."""
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


def measure(
    tmp_path: Path,
    body: str,
    *,
    prelude: str = PRELUDE,
    command: tuple[str, ...] = (sys.executable,),
    timeout: float = 120,
    **settings: Any,
) -> Measured:
    """Runs ``prelude`` and ``body`` as a script under the probe."""
    script = tmp_path / "train.py"
    script.write_text(prelude + textwrap.dedent(body))
    folder = tmp_path / "run"
    process = subprocess.run(
        [*command, str(script)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(folder, **settings),
        cwd=tmp_path,
        check=False,
    )
    return collect(folder, process)
