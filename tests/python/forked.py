"""Python processes that have torch and headrace imported already, with the interface of
:mod:`subprocess`.

They are forked from a process that has (zygote.py), which saves each of them 1.5 s of CPU. They run
a script, ``-c`` code or a module, and end as every Python does. A test that is about the interpreter's start,
its options or its environment starts a new one instead.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ZYGOTE = Path(__file__).with_name("zygote.py")


class Zygote:
    """Starts zygote.py, with an environment of its own; forks from it."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, str(ZYGOTE), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # Scripts that are forked from it have all of torch.
                env={**(environment or os.environ), "OMP_NUM_THREADS": "1",
                     "HEADRACE_TEST_WHOLE_TORCH": "1"},
            )
        atexit.register(self.close)

    def close(self) -> None:
        self.channel.close()
        self.process.wait(600)

    def fork(self, task: dict, descriptors: list[int]) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            message = json.dumps(task).encode()
            socket.send_fds(self.channel, [message], [*descriptors, theirs.fileno()])
        return ours


_plain: dict[int, Zygote] = {}  # by the process that started it


def plain() -> Zygote:
    """Returns this process's zygote."""
    if os.getpid() not in _plain:
        _plain[os.getpid()] = Zygote()
    return _plain[os.getpid()]


class Popen:
    """A forked Python. ``command`` begins with an interpreter, which is not looked at. ``stdin`` and
    ``stdout`` may be PIPE; stderr is a file."""

    def __init__(self, command, *, stdin=None, stdout=None, stderr=None, env=None, cwd=None,
                 text=False, start_new_session=False, zygote: Zygote | None = None) -> None:
        self.returncode: int | None = None
        self.stdin = self.stdout = None
        opened, own = [], []
        for number, stream in enumerate((stdin, stdout, stderr)):
            if stream == subprocess.PIPE:
                read, write = os.pipe()
                mine, given = (write, read) if number == 0 else (read, write)
                file = os.fdopen(mine, ("w" if number == 0 else "r") + ("" if text else "b"))
                setattr(self, ("stdin", "stdout", "stderr")[number], file)
            elif stream == subprocess.DEVNULL:
                given = os.open(os.devnull, os.O_RDWR)
            else:
                own.append(number)
                given = number if stream is None else stream.fileno()
            opened.append(given)
        task = {
            "arguments": [str(word) for word in command[1:]],
            "cwd": str(cwd or os.getcwd()),
            "environment": dict(os.environ if env is None else env),
            "session": start_new_session,
        }
        self._end = (zygote or plain()).fork(task, opened)
        for number, descriptor in enumerate(opened):
            if number not in own:
                os.close(descriptor)
        self.pid = int(self._end.recv(100))

    def poll(self) -> int | None:
        return self._status(0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._status(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return status

    def _status(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._end], [], [], timeout)[0]:
            self.returncode = int(self._end.recv(100))
            self._end.close()
        return self.returncode

    def communicate(self, text=None, timeout: float = 600):
        """Writes the text, closes stdin, and returns all of stdout, and None."""
        if self.stdin is not None:
            if text is not None:
                self.stdin.write(text)
            self.stdin.close()
        late = threading.Timer(timeout, self.kill)
        late.start()
        try:
            return self.stdout.read() if self.stdout is not None else None, None
        finally:
            self.wait()
            late.cancel()

    def __enter__(self) -> Popen:
        return self

    def __exit__(self, *_) -> None:
        for file in self.stdin, self.stdout:
            if file is not None:
                file.close()
        self.wait()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_ranks(count: int, command, *, env=None, cwd=None,
              zygote: Zygote | None = None) -> list[subprocess.CompletedProcess[str]]:
    """Runs it as torchrun starts ranks of one host: with its variables and its store, where they
    meet. A test that is about torchrun starts torchrun, whose ranks each import torch anew."""
    from torch.distributed import TCPStore

    zygote = zygote or plain()
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {
        **(os.environ if env is None else env),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
    }
    with ThreadPoolExecutor(count) as threads:
        ranks = [
            threads.submit(run, command, cwd=cwd, zygote=zygote,
                           env={**shared, "RANK": rank, "LOCAL_RANK": rank})
            for rank in map(str, range(count))
        ]
        return [rank.result() for rank in ranks]


def run(command, *, timeout: float = 600, env=None, cwd=None, start_new_session=False,
        zygote: Zygote | None = None) -> subprocess.CompletedProcess[str]:
    """Runs it to its end; returns its status and what it printed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, cwd=cwd,
                        start_new_session=start_new_session, zygote=zygote)
        try:
            process.wait(timeout)
        finally:
            process.kill()

        def said(file):
            return os.pread(file.fileno(), 1 << 30, 0).decode()

        return subprocess.CompletedProcess(command, process.returncode, said(out), said(err))
