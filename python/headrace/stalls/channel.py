"""Synchronises the ranks of a run without using the script's process group.

Every rank calls the same operations in the same order. Ranks on one host communicate through files
in the run's folder, which only the owner can read. Ranks on several hosts communicate through a
TCPStore of torch, at an address from the command line.
"""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from typing import Any

from .._launch.folders import write_whole

PATIENCE_S = 300.0
CONNECT_S = 60.0
LEAVING_S = 10.0
PORTS_ABOVE = 29


class RanksApart(RuntimeError):
    """Another rank did not reach the same operation in time."""


def default_address(size: int, local_size: int) -> str | None:
    """Returns the default address for the ranks of several hosts: a port near MASTER_PORT on
    MASTER_ADDR, which all of them can reach. None if all ranks are on this host. Raises RanksApart
    if the variables are not set."""
    if size == local_size:
        return None
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not host or not port.isdigit():
        raise RanksApart(
            f"{size} ranks, {local_size} of them on this host, and no MASTER_ADDR and MASTER_PORT: "
            "give an address that all of them can reach with --channel HOST:PORT (on rank 0's host)"
        )
    return f"{host}:{int(port) + PORTS_ABOVE}"


class Channel:
    """The channel of rank ``rank`` of ``size``. ``folder`` is the run's folder on this host;
    ``address`` is HOST:PORT, or ``None`` if all ranks are on this host."""

    def __init__(self, rank: int, size: int, folder: str, address: str | None = None) -> None:
        self.rank, self.size = rank, size
        self._step = 0
        self._folder = os.path.join(folder, "channel")
        self._store: Any = None
        if size == 1:
            return
        if address is None:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            return
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        host, _, port = address.rpartition(":")
        # Do not wait for the other ranks: rank 0 may be ahead of them, within a training step.
        self._store = TCPStore(
            host,
            int(port),
            size,
            is_master=rank == 0,
            timeout=timedelta(seconds=CONNECT_S),
            wait_for_workers=False,
        )

    def publish(self, name: str, value: Any) -> None:
        """Publishes ``value`` (as JSON) under a name that is used only once."""
        text = json.dumps(value)
        if self._store is not None:
            self._store.set(name, text)
            return
        write_whole(os.path.join(self._folder, name), text)

    def known(self, name: str) -> bool:
        """Whether a value was published under this name."""
        if self._store is not None:
            return bool(self._store.check([name]))
        return os.path.exists(os.path.join(self._folder, name))

    def ask(self, name: str, patience_s: float | None = None) -> Any:
        """Waits for a value that another rank publishes. Raises RanksApart after ``patience_s``
        seconds (default PATIENCE_S)."""
        if patience_s is None:
            patience_s = PATIENCE_S
        end = time.monotonic() + patience_s
        pause = 0.0002
        while not self.known(name):
            if time.monotonic() > end:
                raise RanksApart(
                    f"rank {self.rank} waited {patience_s:.0f} s for {name!r}: do all ranks "
                    "iterate the loader in step?"
                )
            time.sleep(pause)
            pause = min(pause * 1.5, 0.01)
        if self._store is not None:
            return json.loads(self._store.get(name))
        with open(os.path.join(self._folder, name), encoding="utf-8") as file:
            return json.loads(file.read())

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all ranks, in the order of ranks. Also a barrier."""
        self._step += 1
        if self.size == 1:
            return [value]
        self.publish(f"{self._step}.{self.rank}", value)
        return [self.ask(f"{self._step}.{rank}") for rank in range(self.size)]

    def of_host(self, root: int, value: float) -> float:
        """Returns the sum of the values of this host's ranks. Ranks with the same ``root`` publish
        the same value, which counts once."""
        host = os.uname().nodename
        seen = self.gather([host, root, value])
        return sum({one[1]: one[2] for one in seen if one[0] == host}.values())

    def share(self, value: Any = None) -> Any:
        """Returns rank 0's value on every rank (broadcast)."""
        self._step += 1
        if self.size == 1:
            return value
        if self.rank == 0:
            self.publish(str(self._step), value)
            return value
        return self.ask(str(self._step))

    def leave(self) -> None:
        """Final barrier. Rank 0 holds the store, so it waits until the other ranks have left."""
        self.gather(0)
        if self._store is None or self.size == 1:
            return
        if self.rank > 0:
            self.publish(f"left.{self.rank}", 0)
            return
        for rank in range(1, self.size):
            try:
                self.ask(f"left.{rank}", LEAVING_S)
            except RanksApart:  # that rank has written its record already
                break
