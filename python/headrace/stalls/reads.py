"""Detects what the samples of a dataset read, by loading some of them: files that they open, files
that were already open or mapped, bytes from the network, or nothing at all."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .. import _core
from . import counters, guard, work

# Bytes per sample. Reads of indices, or of a stream's position, are smaller than this.
HARDLY_ANYTHING = 1024
UNEXPLAINED = 1.5  # reads of more than this, times the bytes of the known files, are unexplained
SLACK_BYTES = 1 << 20
MADV_DONTNEED = 4
# Pauses before samples are loaded once more, where another process may have used the network.
AGAIN_AFTER_S = (0.5, 1.0, 2.0)


@dataclass
class Learned:
    """What was detected about a dataset that does not name its files."""

    whole: list[str] | None = None  # files that contain the dataset; None: not searched yet
    nothing: bool = False  # no file and no network: the samples are in memory
    network: bool = False  # the samples come over connections of the loader's processes
    network_bytes: int = 0  # received by this machine meanwhile, if not over these connections
    unknown_bytes: int = 0  # returned by reads, and explained by no known file
    samples: int = 0  # loaded for the detection
    problems: list[str] = field(default_factory=list)

    def of(self, run: Callable[[], int], release: Callable[[list[str]], None]) -> list[str]:
        """Returns the files that ``run`` opens, if any. ``run`` loads samples and returns their
        number; ``release`` ends mappings of files. Samples from the network cause traffic each
        time, so they are loaded again if the traffic may have been that of other processes."""
        opened = self._once(run, release)
        for pause in AGAIN_AFTER_S:
            if not self.network_bytes:
                break
            time.sleep(pause)
            opened = self._once(run, release)
        return opened

    def _once(self, run: Callable[[], int], release: Callable[[list[str]], None]) -> list[str]:
        self.unknown_bytes, self.network, self.nothing = 0, False, False
        self.network_bytes = 0
        since, received = time.perf_counter_ns(), counters.received()
        begun = guard.connections()
        work.learn(True)
        try:
            samples = run()
        finally:
            work.learn(False)
        over = counters.received_since(received) or 0
        self.samples = max(1, samples)
        opened, held = work.learned()
        own_bytes, connections = work.received()
        all_begun = guard.connections()
        is_counted = False
        if begun is not None and all_begun is not None:
            connections, is_counted = all_begun - begun, True
        given = [row.given_bytes for row in work.rows() if row.end_ns >= since]
        known = sum(map(file_size, opened))
        amounts = [amount for amount in given if amount is not None]
        # The first batch of a process may read the process' libraries.
        if len(amounts) > 4:
            amounts.remove(max(amounts))
        unexplained = sum(amounts) - known
        if not opened and held:
            self.whole = self._really_read(held, run, release)
            if self.whole:
                return []
        # Small samples read few bytes, but every batch reads some.
        usual = sorted(amounts)[len(amounts) // 2] if amounts else 0
        all_read = usual * len(given) > HARDLY_ANYTHING * self.samples
        most = max(HARDLY_ANYTHING * self.samples, SLACK_BYTES, (UNEXPLAINED - 1) * known)
        if unexplained > most or (all_read and not opened):
            self.unknown_bytes = unexplained
        if opened:
            return opened
        self.whole = []
        if not self.unknown_bytes:
            self._note_network(over, own_bytes, connections, is_counted)
        self.nothing = bool(amounts) and not (
            self.unknown_bytes or self.network or self.network_bytes
        )
        return []

    def _note_network(
        self, machine_bytes: int, own_bytes: int, connections: int, is_counted: bool
    ) -> None:
        """Notes whether the samples come over the network. Other processes may cause the machine's
        traffic, so only connections of the loader's own processes prove it. Connections that a
        batch opened and closed are known only by their number, which includes those opened
        underneath Python only if ``is_counted``: then 0 means that the traffic is another's."""
        much = HARDLY_ANYTHING * self.samples
        if own_bytes > much or (machine_bytes > much and connections >= self.samples / 2):
            self.network = True
        elif machine_bytes > much and (connections or not is_counted):
            self.network_bytes = machine_bytes

    def _really_read(
        self, held: list[str], run: Callable[[], int], release: Callable[[list[str]], None]
    ) -> list[str]:
        """Returns those of the files that enter memory again when samples are loaded."""
        release(held)
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
    """Returns a file's size in bytes; 0 if it is unknown."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def unmap(names: set[str]) -> None:
    """Releases the pages of this process' mappings of files. The mappings stay, and read the files
    again when they are accessed."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for path, places in work.mapped_files().items():
        if path in names:
            for begin, end in places:
                libc.madvise(begin, end - begin, MADV_DONTNEED)
