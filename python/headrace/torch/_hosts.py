"""Exchanges rates between the ranks if the cache is on several hosts.

All ranks derive the plan of an epoch from the same numbers, so the plan can use measured rates
only if every rank knows those of all ranks. Each rank sends one small record of fixed layout
through torch.distributed or a function of the user (for example MPI's allgather). The record
also has the rank's epoch and position, so that ranks that are out of step get an error.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch
import torch.distributed as dist

from .. import _core

Gather: TypeAlias = "Callable[[bytes], Sequence[bytes]] | Literal[False] | None"

_logger = logging.getLogger("headrace")

# Of struct hr_loader_rates, in its order, after `host`.
FIGURES = (
    "own_bytes_per_s",
    "peer_bytes_per_s",
    "storage_bytes_per_s",
    "prepare_bytes_per_s",
    "wait_s",
    "ready_s",
)

# Magic, rank, ranks, host, epoch, position in it, figures.
_RECORD = struct.Struct(f"<4sIIiQQ{len(FIGURES)}d")
_MAGIC = b"hrr1"


def is_hosts(cache: str | None) -> bool:
    """Returns whether a cache text names several hosts."""
    return cache is not None and _core.cache_kind(cache) == "hosts"


def figures(rates: Mapping[str, Any]) -> tuple[int, float, float, float, float, float, float]:
    """Converts a rank's rates for the extension. Raises ValueError that names a missing one."""
    missing = [name for name in ("host", *FIGURES) if name not in rates]
    if missing:
        raise ValueError(f"rates of a rank lack {', '.join(missing)}: give what rates() gave there")
    own, peer, storage, prepare, wait, ready = (float(rates[name]) for name in FIGURES)
    return int(rates["host"]), own, peer, storage, prepare, wait, ready


class Exchange:
    """Gathers the rates of all ranks, with torch.distributed or the user's function."""

    def __init__(self, gather: Gather, rank: int, world_size: int) -> None:
        if gather is not None and gather is not False and not callable(gather):
            raise TypeError(
                f"gather must be a function of bytes that returns those of all ranks, got {gather!r}"
            )
        self._gather = gather
        self._rank = rank
        self._world_size = world_size
        self.ranks: list[dict[str, Any]] | None = None  # what was gathered last

    def run(
        self, mine: Mapping[str, Any], epoch: int, position: int
    ) -> list[dict[str, Any]] | None:
        """Returns the rates of all ranks in rank order; None if there is no way to gather. Blocks
        until all ranks call it. Raises RuntimeError if their positions differ."""
        gather = self._gather
        if gather is None and self._has_torch():
            gather = _gather_by_torch
        if gather is None or gather is False:
            return None
        record = _RECORD.pack(
            _MAGIC, self._rank, self._world_size, mine["host"], epoch, position,
            *(mine[name] for name in FIGURES),
        )  # fmt: skip
        self.ranks = self._read(gather(record), epoch, position)
        return self.ranks

    def _has_torch(self) -> bool:
        """Returns whether torch.distributed's default group consists of this loader's ranks."""
        if not (dist.is_available() and dist.is_initialized()):
            return False
        return dist.get_rank() == self._rank and dist.get_world_size() == self._world_size

    def _read(self, records: Sequence[bytes], epoch: int, position: int) -> list[dict[str, Any]]:
        if len(records) != self._world_size:
            raise RuntimeError(
                f"gather returned records of {len(records)} ranks of {self._world_size}: it has to "
                "return what every rank gave, in the order of their ranks"
            )
        out = []
        for rank, record in enumerate(records):
            if len(record) != _RECORD.size or record[:4] != _MAGIC:
                raise RuntimeError(
                    f"what gather returned for rank {rank} is not what a rank of this version of "
                    "Headrace gives: let it return what every rank gave, as it is, and run the "
                    "same version everywhere"
                )
            _, by, ranks, host, its_epoch, its_position, *rates = _RECORD.unpack(record)
            if by != rank or ranks != self._world_size:
                raise RuntimeError(
                    f"what gather returned for rank {rank} of {self._world_size} is of rank {by} "
                    f"of {ranks}: it has to return what every rank gave, in the order of their ranks"
                )
            if (its_epoch, its_position) != (epoch, position):
                raise RuntimeError(
                    f"rank {self._rank} begins epoch {epoch} at sample {position}, but rank {rank} "
                    f"begins epoch {its_epoch} at sample {its_position}: every rank has to begin "
                    "the same epochs, and to load the same state"
                )
            out.append({"host": host, **dict(zip(FIGURES, rates))})
        return out


def stats_of_ranks(ranks: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
    """Returns the gathered entries of stats(): the waiting of each rank, and its spread."""
    if not ranks:
        return {}
    waits = [rank["wait_s"] for rank in ranks]
    readies = [rank["ready_s"] for rank in ranks]
    return {
        "rank_wait_s": waits,
        "rank_ready_s": readies,
        "wait_spread_s": max(waits) - min(waits),
        "ready_spread_s": max(readies) - min(readies),
    }


def say_local(hosts: int) -> None:
    """Logs one line, once per process, if the user did not choose the assignment."""
    global _said_local
    if not _said_local:
        _said_local = True
        _logger.warning(
            "samples of a batch go to ranks on the %d hosts that keep them; the samples of all ranks "
            "together are the usual ones. Losses that depend on which "
            "samples are in one rank's batch (batch norm without synchronisation, in-batch "
            "negatives, MixUp, a mean over a per-rank count) need assignment='exact'; "
            "assignment='local' says that this is known. See docs/hosts.md",
            hosts,
        )


_said_local = False


def _gather_by_torch(record: bytes) -> list[bytes]:
    mine = torch.frombuffer(bytearray(record), dtype=torch.uint8).to(_device())
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    work = dist.all_gather(everyone, mine, async_op=True)
    # Polls instead of waiting, so that Ctrl-C works while a rank is missing.
    pause = 0.0001
    while not work.is_completed():
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
    work.wait()
    return [bytes(tensor.tolist()) for tensor in everyone]


def _device() -> str:
    """Returns the device type whose tensors the default group can send."""
    config = dist.get_backend_config()  # "cpu:gloo,cuda:nccl"
    kinds = [part.partition(":")[0] for part in config.split(",")]
    return "cpu" if "cpu" in kinds else kinds[0]
