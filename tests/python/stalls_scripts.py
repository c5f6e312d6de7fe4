"""Runs real training scripts under the probe, for the tests of ``headrace stalls``.

:func:`measure` starts a script as the launcher does: with a run's folder, its settings and the
bootstrap on PYTHONPATH. Then it reads the files that the run left.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forked
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

    @property
    def said(self) -> str:
        """Returns stderr without the warnings that a busy machine causes: time_s is too short, or
        after a minute no loop has begun."""
        busy = "more than the", "but no loop over a loader to measure"
        lines = self.stderr.splitlines(keepends=True)
        return "".join(line for line in lines if not any(words in line for words in busy))

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


_zygote: dict[int, forked.Zygote] = {}  # by the process that started it


def zygote() -> forked.Zygote:
    """Returns a process that has imported torch under the probe's hook, which scripts are forked
    from."""
    if os.getpid() not in _zygote:
        folder = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, folder)
        _zygote[os.getpid()] = forked.Zygote(environment(folder))
    return _zygote[os.getpid()]


def measure(
    tmp_path: Path,
    body: str,
    *,
    fresh: bool = False,
    command: tuple[str, ...] = (),
    ranks: int = 0,
    timeout: float = 600,  # anything longer hangs
    **settings: Any,
) -> Measured:
    """Runs the prelude and ``body`` as a script under the probe: in a process forked from one that
    has imported torch, or in a new Python (``command``: one that starts it). ``ranks``: in so many
    processes, as torchrun starts them."""
    script = tmp_path / "train.py"
    script.write_text(PRELUDE + textwrap.dedent(body))
    folder = tmp_path / "run"
    variables = environment(folder, **settings)
    words = [*(command or (sys.executable,)), str(script)]
    if ranks:
        ended = forked.run_ranks(ranks, words, env=variables, cwd=tmp_path, zygote=zygote())
        process = subprocess.CompletedProcess(
            words,
            next((rank.returncode for rank in ended if rank.returncode), 0),
            "".join(rank.stdout for rank in ended),
            "".join(rank.stderr for rank in ended),
        )
    elif fresh or command:
        process = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=variables,
            cwd=tmp_path,
            check=False,
        )
    else:
        process = forked.run(words, timeout=timeout, env=variables, cwd=tmp_path, zygote=zygote())
    return collect(folder, process)
