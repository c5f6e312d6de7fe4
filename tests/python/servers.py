"""memcached servers for tests, and ranks of one run as threads of this process.

A server ends with the process that started it, however that ends: a shell kills the server when the
pipe that it reads from is closed.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import threading
import time

import pytest

from agents import LIMIT_S, is_alive, wait_until
from headrace.torch import DataLoader

_GUARD = '"$@" & echo $!; read -r _; kill -9 $!; wait'


def free_port() -> int:
    """Returns a free port that the kernel does not assign by itself, so that a restarted server
    gets the same port again."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as range_of_kernel:
        first = int(range_of_kernel.read().split()[0])
    while True:
        port = random.SystemRandom().randrange(10240, max(10241, first))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Memcached:
    """A server on a port of its own, or at `path`; killed on leaving."""

    def __init__(
        self, megabytes: int = 64, path: str | None = None, options: tuple = ("-M", "-I", "8m")
    ):
        if shutil.which("memcached") is None:
            pytest.skip("there is no memcached")
        self.megabytes = megabytes
        self.options = options
        self.path = path
        self.port = 0 if path else free_port()
        self.address = path or f"127.0.0.1:{self.port}"
        self.pid = 0
        self._guard: subprocess.Popen | None = None
        for _ in range(5):  # another process may take the port meanwhile
            if self._start():
                return
            self.port = 0 if path else free_port()
            self.address = path or f"127.0.0.1:{self.port}"
        raise AssertionError("memcached does not start")

    def _start(self) -> bool:
        command = ["memcached", "-m", str(self.megabytes), "-U", "0", *self.options]
        command += ["-s", self.path] if self.path else ["-l", "127.0.0.1", "-p", str(self.port)]
        command += ["-u", "nobody"] if os.getuid() == 0 else []
        self._guard = subprocess.Popen(
            ["sh", "-c", _GUARD, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.pid = int(self._guard.stdout.readline())
        wait_until(lambda: self._answers() or not is_alive(self.pid), "memcached")
        if not self._answers():  # it ended: another process has the port
            self.stop()
            return False
        return True

    def _connect(self) -> socket.socket:
        link = socket.socket(socket.AF_UNIX if self.path else socket.AF_INET)
        link.settimeout(LIMIT_S)
        link.connect(self.path or ("127.0.0.1", self.port))
        return link

    def _answers(self) -> bool:
        try:
            return self.ask("version")[0].startswith("VERSION")
        except OSError:
            return False

    def ask(self, command: str) -> list[str]:
        """Returns the lines of the answer to a command of the text protocol, without its END."""
        with self._connect() as link, link.makefile("rb") as answer:
            link.sendall(command.encode() + b"\r\n")
            out = []
            while True:
                line = answer.readline().decode().rstrip("\r\n")
                if line in ("END", ""):
                    return out
                out.append(line)
                if not line.startswith("STAT"):
                    return out

    def stats(self, what: str = "") -> dict[str, str]:
        lines = self.ask(f"stats {what}".rstrip())
        return dict(line.split(" ", 2)[1:] for line in lines)

    @property
    def items(self) -> int:
        return int(self.stats()["curr_items"])

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def stop(self) -> None:
        if self._guard is not None:
            self._guard.stdin.close()  # kills it, even if it is stopped
            self._guard.wait(LIMIT_S)
            self._guard.stdout.close()
            self._guard = None

    def restart(self) -> None:
        """Starts again, empty, at the same address."""
        self.stop()
        wait_until(self._start, "memcached again")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Servers(list):
    """Several servers; `text` describes a cache on the first `count` of them. A server of a busy
    machine may answer late: only tests of that give a shorter `timeout`."""

    def text(self, /, size: str = "32MiB", count: int | None = None, **options) -> str:
        hosts = ",".join(server.address for server in self[:count])
        options.setdefault("timeout", "20s")
        return f"memcached:{hosts}?size={size}" + "".join(f"&{k}={v}" for k, v in options.items())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self:
            server.stop()


class Gathering:
    """Does what MPI's allgather does, for ranks that are threads."""

    def __init__(self, count: int):
        self._records: list[bytes] = [b""] * count
        self._barrier = threading.Barrier(count, timeout=LIMIT_S)

    def of(self, rank: int):
        def gather(record: bytes) -> list[bytes]:
            self._records[rank] = record
            self._barrier.wait()
            everyone = list(self._records)
            self._barrier.wait()
            return everyone

        return gather


class Ranks:
    """The ranks of one run, as threads of this process, assigned in turn to the hosts of the list.
    `change(rank)` returns options for one rank alone."""

    def __init__(self, data, servers, size=4, count=2, hosts=None, change=None, **options):
        self.loaders: list[DataLoader] = []
        self.errors: list[BaseException | None] = [None] * count
        text = options.pop("cache", None) or servers.text()
        hosts = hosts or len(servers)
        gathering = Gathering(count)
        for rank in range(count):
            mine = {
                "shuffle": True,
                "seed": 11,
                "num_workers": 1,
                "return_index": True,
                "rank": rank,
                "world_size": count,
                "cache": f"{text}&self={rank % hosts}",
                "gather": gathering.of(rank),
                **options,
                **(change(rank) if change else {}),
            }
            its_data = mine.pop("data", data)
            self.loaders.append(DataLoader(its_data, mine.pop("batch_size", size), **mine))

    def each(self, do) -> list:
        """Returns the results of `do(rank, loader)` on all ranks at once; exceptions go to errors.
        """
        out = [None] * len(self.loaders)

        def run(rank: int, loader: DataLoader) -> None:
            try:
                out[rank] = do(rank, loader)
            except BaseException as error:
                self.errors[rank] = error

        threads = [
            threading.Thread(target=run, args=pair, daemon=True)
            for pair in enumerate(self.loaders)
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + LIMIT_S
        for thread in threads:
            thread.join(max(0, deadline - time.monotonic()))
        assert not any(thread.is_alive() for thread in threads), "a rank hangs"
        return out

    def good(self, do) -> list:
        out = self.each(do)
        for error in self.errors:
            if error is not None:
                raise error
        return out

    def epoch(self, each=None) -> list[list[tuple]]:
        """Returns each rank's batches of the next epoch, as clones; calls `each(rank, number)`
        after each."""

        def read(rank: int, loader: DataLoader) -> list[tuple]:
            out = []
            for number, batch in enumerate(loader):
                out.append(tuple(t.clone() for t in batch))
                if each is not None:
                    each(rank, number)
            return out

        return self.good(read)

    def stats(self) -> dict[str, int]:
        """Returns the counters, summed over all ranks."""
        names = "samples bytes_read own_hits peer_hits own_bytes peer_bytes stored refused"
        each = [loader.stats() for loader in self.loaders]
        return {name: sum(s[name] for s in each) for name in names.split()}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for loader in self.loaders:
            loader.close()


def global_batches(ranks: list[list[tuple]]) -> list[list[int]]:
    """Returns the sorted samples of each global batch from all ranks' batches of an epoch."""
    return [sorted(i for batch in together for i in batch[2].tolist())
            for together in zip(*ranks, strict=True)]
