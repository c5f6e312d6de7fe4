"""Lets the ranks of a run agree on what to do next, without the script's process group.

Every rank calls the same operations in the same sequence. On one host they meet in files
of the run's folder, which only the owner can read; several hosts meet at an address that
was given on the command line, with torch's TCPStore.
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
    """Another rank did not come to where all have to meet."""


def default_address(size: int, local_size: int) -> str | None:
    """Where the ranks of several hosts meet unless an address is given: beside the launcher's own
    port, which is reachable from all of them."""
    if size == local_size:
        return None
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if not host or not port.isdigit():
        raise RanksApart(
            f"{size} ranks, {local_size} of them on this host, and no MASTER_ADDR and MASTER_PORT: "
            "say where they can meet with --channel HOST:PORT (on rank 0's host)"
        )
    return f"{host}:{int(port) + PORTS_ABOVE}"


class Channel:
    """For rank ``rank`` of ``size``; ``folder`` is the run's on this host, ``address``
    HOST:PORT, or ``None`` where all ranks are on this host."""

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
        # Nobody waits here: rank 0 may be ahead of the others, within a step of training.
        self._store = TCPStore(
            host,
            int(port),
            size,
            is_master=rank == 0,
            timeout=timedelta(seconds=CONNECT_S),
            wait_for_workers=False,
        )

    def publish(self, name: str, value: Any) -> None:
        """Publishes ``value`` (of JSON) under a name that is used once."""
        text = json.dumps(value)
        if self._store is not None:
            self._store.set(name, text)
            return
        write_whole(os.path.join(self._folder, name), text)

    def known(self, name: str) -> bool:
        """Whether it was published."""
        if self._store is not None:
            return bool(self._store.check([name]))
        return os.path.exists(os.path.join(self._folder, name))

    def ask(self, name: str, patience_s: float | None = None) -> Any:
        """Waits for what another rank publishes. RanksApart after ``patience_s``, or the usual
        time."""
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
        """Everybody's values, by rank; also a barrier."""
        self._step += 1
        if self.size == 1:
            return [value]
        self.publish(f"{self._step}.{self.rank}", value)
        return [self.ask(f"{self._step}.{rank}") for rank in range(self.size)]

    def of_host(self, root: int, value: float) -> float:
        """The sum of the values of all ranks of this host; of ranks with the same ``root``,
        which publish the same, one."""
        host = os.uname().nodename
        seen = self.gather([host, root, value])
        return sum({one[1]: one[2] for one in seen if one[0] == host}.values())

    def share(self, value: Any = None) -> Any:
        """Rank 0's value, on every rank."""
        self._step += 1
        if self.size == 1:
            return value
        if self.rank == 0:
            self.publish(str(self._step), value)
            return value
        return self.ask(str(self._step))

    def leave(self) -> None:
        """The last meeting. Whoever holds what the others read stays until they are gone."""
        self.gather(0)
        if self._store is None or self.size == 1:
            return
        if self.rank > 0:
            self.publish(f"left.{self.rank}", 0)
            return
        for rank in range(1, self.size):
            try:
                self.ask(f"left.{rank}", LEAVING_S)
            except RanksApart:  # it has its record already
                break
