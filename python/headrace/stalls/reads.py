"""Finds out what the samples of a dataset read, by loading some of them: files that they open,
files that were open or mapped before, bytes from the network, or nothing at all."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .. import _core
from . import counters, guard, work

# Of a sample. A worker reads its indices, a stream its own position: less than this.
HARDLY_ANYTHING = 1024
UNEXPLAINED = 1.5  # times the bytes of the known files
SLACK_BYTES = 1 << 20
MADV_DONTNEED = 4
# Pauses before samples are loaded once more, where another process may have used the network.
AGAIN_AFTER_S = (0.5, 1.0, 2.0)


@dataclass
class Learned:
    """What is known of a dataset that does not name its files."""

    whole: list[str] | None = None  # files that hold the dataset; None: not looked for yet
    nothing: bool = False  # no file and no network: the samples are in memory
    network: bool = False  # the samples come over connections of the loader's processes
    network_bytes: int = 0  # that this machine received meanwhile, if not over these
    unknown_bytes: int = 0  # that reads gave and no known file explains
    samples: int = 0  # that were loaded to find out
    problems: list[str] = field(default_factory=list)

    def of(self, run: Callable[[], int], let_go: Callable[[list[str]], None]) -> list[str]:
        """The files that ``run`` opens, where it opens some. ``run`` loads samples and
        returns how many; ``let_go`` ends mappings of files. Samples of the network bring traffic
        each time, so they are loaded again where only other processes' traffic was perhaps seen."""
        opened = self._once(run, let_go)
        for pause in AGAIN_AFTER_S:
            if not self.network_bytes:
                break
            time.sleep(pause)
            opened = self._once(run, let_go)
        return opened

    def _once(self, run: Callable[[], int], let_go: Callable[[list[str]], None]) -> list[str]:
        self.unknown_bytes, self.network, self.nothing = 0, False, False
        self.network_bytes = 0
        since, received = time.perf_counter_ns(), counters.received()
        begun = guard.connections()
        work.learn(True)
        try:
            samples = run()
        finally:
            work.learn(False)
        now = counters.received()
        self.samples = max(1, samples)
        opened, held = work.learned()
        own_bytes, connections = work.received()
        all_begun = guard.connections()
        # None: connections that code underneath Python begins are not seen.
        more = None if begun is None or all_begun is None else all_begun - begun
        given = [row.given_bytes for row in work.rows() if row.end_ns >= since]
        known = sum(map(file_size, opened))
        amounts = [amount for amount in given if amount is not None]
        # The first batch of a process may read its libraries.
        if len(amounts) > 4:
            amounts.remove(max(amounts))
        unexplained = sum(amounts) - known
        if not opened and held:
            self.whole = self._really_read(held, run, let_go)
            if self.whole:
                return []
        # Small samples do not come to much, but each batch reads some.
        usual = sorted(amounts)[len(amounts) // 2] if amounts else 0
        all_read = usual * len(given) > HARDLY_ANYTHING * self.samples
        most = max(HARDLY_ANYTHING * self.samples, SLACK_BYTES, (UNEXPLAINED - 1) * known)
        if unexplained > most or (all_read and not opened):
            self.unknown_bytes = unexplained
        over = 0 if now is None or received is None else now - received
        if opened:
            return opened
        self.whole = []
        if not self.unknown_bytes:
            self._note_network(over, own_bytes, connections if more is None else more)
            if more == 0:
                self.network_bytes = 0
        self.nothing = bool(amounts) and not (
            self.unknown_bytes or self.network or self.network_bytes
        )
        return []

    def _note_network(self, machine_bytes: int, own_bytes: int, connections: int) -> None:
        """Whether the samples come over the network. What the machine receives may be
        another process's: only connections of the loader's own processes are a proof. Those
        that a batch began and ended are known by their number."""
        much = HARDLY_ANYTHING * self.samples
        if own_bytes > much or (machine_bytes > much and connections >= self.samples / 2):
            self.network = True
        elif machine_bytes > much:
            self.network_bytes = machine_bytes

    def _really_read(
        self, held: list[str], run: Callable[[], int], let_go: Callable[[list[str]], None]
    ) -> list[str]:
        """Those of the files that come back to memory when samples are loaded."""
        let_go(held)
        _core.storage_drop(held)
        left = [_core.storage_check([path])["resident_bytes"] for path in held]
        run()
        found = []
        for path, before in zip(held, left):
            state = _core.storage_check([path])
            if state["in_memory"] or state["resident_bytes"] > before:
                found.append(path)
        return found


def file_size(path: str) -> int:
    """0 where it is not known."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def unmap(names: set[str]) -> None:
    """Lets go of the pages of this process's mappings of files; the mappings stay, and read the
    files again when they are used."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for path, places in work.mapped_files().items():
        if path in names:
            for begin, end in places:
                libc.madvise(begin, end - begin, MADV_DONTNEED)
