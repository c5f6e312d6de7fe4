"""Agents and jobs for tests: real processes with strict time limits, all ended at the end of a
test."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

import forked
import headrace
from headrace.torch import DataLoader

LIMIT_S = 600.0  # limit for one wait: anything longer hangs


def wait_until(condition, what: str, limit_s: float = LIMIT_S):
    """Waits until `condition()` is true; returns its value."""
    deadline = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what}: not within {limit_s} s"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Returns whether this process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Process:
    """A child whose output is read line by line, with a time limit; killed on leaving."""

    def __init__(self, command, start=subprocess.Popen, **environment):
        self.errors = tempfile.TemporaryFile()
        self.process = start(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        self.pid = self.process.pid
        self._pending = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(LIMIT_S)
        self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()

    def line(self, limit_s: float = LIMIT_S) -> str | None:
        """Returns the next line of its output; None at the end."""
        deadline = time.monotonic() + limit_s
        output = self.process.stdout.fileno()
        while b"\n" not in self._pending:
            ready, _, _ = select.select([output], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"process {self.pid} says nothing for {limit_s} s: {self.said()}"
            more = os.read(output, 1 << 16)
            if not more:
                assert not self._pending, self._pending
                return None
            self._pending += more
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode()

    def said(self) -> str:
        """Returns its output on stderr so far."""
        return os.pread(self.errors.fileno(), 1 << 20, 0).decode(errors="replace")

    def tell(self, line: str = "") -> None:
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def status(self, limit_s: float = LIMIT_S) -> int:
        """Waits for the end; returns the exit status."""
        return self.process.wait(limit_s)


class Agent(Process):
    """`python -m headrace.agent` at a socket of its own. It must end cleanly on leaving."""

    def __init__(self, *options: str, threads: int = 2, socket: str | None = None):
        self.place = tempfile.mkdtemp(prefix="headrace-agent-")
        self.socket = socket or os.path.join(self.place, "agent.sock")
        super().__init__(
            [sys.executable, "-m", "headrace.agent", "--socket", self.socket]
            + ["--threads", str(threads), *options]
        )
        try:
            line = self.line()
            assert line and line.startswith(f"serving at {self.socket}"), (line, self.said())
        except BaseException:
            super().__exit__()
            shutil.rmtree(self.place)
            raise

    def __exit__(self, kind, *_):
        try:
            if kind is None and self.process.poll() is None:
                self.end()
        finally:
            super().__exit__()
            shutil.rmtree(self.place, ignore_errors=True)

    def end(self) -> None:
        self.send(signal.SIGTERM)
        assert self.status() == 0, self.said()
        assert self.said() == ""
        assert not os.path.exists(self.socket)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.status()

    def look(self) -> dict:
        return headrace.agent_status(self.socket)

    def queues(self, stream: str | None = None) -> list[dict]:
        """Returns the queues of a stream, or of all streams."""
        streams = self.look()["streams"]
        return [q for s in streams if stream in (None, s["name"]) for q in s["queues"]]

    def subscribers(self, stream: str | None = None) -> list[dict]:
        return [cursor for queue in self.queues(stream) for cursor in queue["subscribers"]]


class Job(Process):
    """Runs tests/python/agent_job.py, a training script that prints each batch."""

    def __init__(self, data, options: dict, environment: dict | None = None, **more):
        spec = {"data": str(data), "options": options, **more}
        script = Path(__file__).with_name("agent_job.py")
        super().__init__(
            [sys.executable, str(script), json.dumps(spec)], forked.Popen, **(environment or {})
        )

    def next(self, limit_s: float = LIMIT_S) -> dict | None:
        """Returns its next output; None at the end."""
        line = self.line(limit_s)
        return None if line is None else json.loads(line)

    def batches(self, count: int | None = None) -> list[dict]:
        """Returns the next `count` batches, or those until an epoch's end."""
        out = []
        while count is None or len(out) < count:
            told = self.next()
            assert told is not None, self.said()
            if "end" in told:
                assert count is None, f"epoch {told['end']} ended after {len(out)} batches"
                return out
            assert "index" in told, told
            out.append(told)
        return out


class Reader(threading.Thread):
    """A job in this process: reads `epochs` epochs of a loader on a thread of its own, and calls
    `each` with the reader and each batch."""

    def __init__(self, loader, epochs: int = 1, pace_s: float = 0.0, each=None):
        super().__init__(daemon=True)
        self.loader = loader
        self.epochs = epochs
        self.pace_s = pace_s
        self.each = each
        self.batches: list[tuple[int, tuple]] = []  # (epoch of this job, clones)
        self.times: list[float] = []
        self.error: BaseException | None = None
        self.start()

    def run(self):
        try:
            for epoch in range(self.epochs):
                for batch in self.loader:
                    self.times.append(time.monotonic())
                    self.batches.append((epoch, tuple(t.clone() for t in batch)))
                    if self.each is not None:
                        self.each(self, batch)
                    if self.pace_s:
                        time.sleep(self.pace_s)
        except BaseException as error:
            self.error = error

    def result(self, limit_s: float = LIMIT_S) -> list[list[tuple]]:
        """Returns the batches of each epoch."""
        self.join(limit_s)
        assert not self.is_alive(), f"a job has {len(self.batches)} batches after {limit_s} s"
        if self.error is not None:
            raise self.error
        return [[b for n, b in self.batches if n == epoch] for epoch in range(self.epochs)]


def begin(agent: Agent, stream: str, jobs: list) -> list:
    """Starts an epoch in all jobs of a stream, and waits until each has its place, so that none
    reads before another joins. Returns their iterators."""
    epochs = [iter(job) for job in jobs]
    wait_until(lambda: len(agent.subscribers(stream)) == len(jobs), "a cursor for each job")
    return epochs


def taken(loader, count: int | None = None) -> list[tuple]:
    """Returns the next epoch's batches, or the first `count` of them, as clones."""
    out = []
    for batch in loader:
        out.append(tuple(t.clone() for t in batch))
        if len(out) == count:
            break
    return out


def same(a: list[tuple], b: list[tuple]) -> bool:
    return len(a) == len(b) and all(
        torch.equal(x, y) for p, q in zip(a, b, strict=True) for x, y in zip(p, q, strict=True)
    )


def indices(batches: list[tuple]) -> list[int]:
    return [i for batch in batches for i in batch[2].tolist()]


class Truth:
    """The expected samples of each epoch, prepared in this process."""

    def __init__(self, dataset, **options):
        self.loader = DataLoader(dataset, 16, return_index=True, **options)
        self.epochs: dict[int, dict[int, tuple]] = {}
        self.orders: dict[int, list[int]] = {}

    def order(self, epoch: int) -> list[int]:
        if epoch not in self.orders:
            self.loader.set_epoch(epoch)
            samples = [
                (int(index), image, label)
                for images, labels, known in taken(self.loader)
                for image, label, index in zip(images, labels, known)
            ]
            self.orders[epoch] = [index for index, *_ in samples]
            self.epochs[epoch] = {index: (image, label) for index, image, label in samples}
        return self.orders[epoch]

    def check(self, batches: list[tuple], epoch: int, start: int = 0) -> None:
        """Checks that the batches are the epoch's samples from `start` on, in order, bit for bit.
        """
        order = self.order(epoch)
        known = self.epochs[epoch]
        found = indices(batches)
        assert found == order[start : start + len(found)]
        for images, labels, index in batches:
            for image, label, i in zip(images, labels, index.tolist(), strict=True):
                assert torch.equal(image, known[i][0]) and label == known[i][1]
