"""Finds the rank of this process and the number of ranks.

torch.distributed is used if it is initialised, otherwise environment variables. torchrun sets RANK
and WORLD_SIZE for processes that train one model together, so they are used. Open MPI's mpirun,
MPICH's and Intel's, and Slurm's srun set their variables for any processes, even for eight
independent runs: these are used only if the caller says that the ranks train together. Either way
one line is logged. Each launcher has three variables; it is recognised if the first two are set.
Slurm's variables are those of a job step: a batch script has a rank in the job too, although it is
a single process.
"""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

import torch
import torch.distributed

from .._launch.ranks import LAUNCHERS

_logger = logging.getLogger("headrace")


class Part:
    """The part of every epoch that this process gets: its rank and the number of ranks.

    Unless the caller gives it, it is determined when the first epoch begins, not when the loader
    is made: frameworks start torch.distributed in between. Until then :meth:`now` returns the
    current environment's answer; after that a different answer is an error.
    """

    def __init__(self, given: tuple[int, int] | None, work_together: bool) -> None:
        self._given = given
        self._work_together = work_together  # the caller says that ranks of any launcher do
        self._settled: tuple[int, int] | None = None

    @property
    def is_known(self) -> bool:
        """Whether the part can no longer change."""
        return (self._given or self._settled or _of_distributed()) is not None

    @property
    def is_settled(self) -> bool:
        """Whether an epoch has begun."""
        return self._settled is not None

    def now(self) -> tuple[int, int]:
        """(rank, ranks)"""
        return self._given or self._settled or self._choose(_look())

    def settle(self) -> None:
        """Fixes the part; call when an epoch begins. Raises RuntimeError if torch.distributed's
        answer has changed since the first epoch."""
        if self._given is not None:
            self._settled = self._given
            return
        if self._settled is None:
            seen = _look()
            self._settled = self._choose(seen)
            _say(seen, self._settled)
            return
        now = _of_distributed()
        if now is not None and now != self._settled:
            raise RuntimeError(
                "this DataLoader began its first epoch as rank {} of {}, but torch.distributed has been "
                "initialised since and says rank {} of {}: call init_process_group before the "
                "first iter(), make another DataLoader after it, or give rank= and world_size=".format(
                    *self._settled, *now
                )
            )

    def forget(self) -> None:
        """Unfixes the part in a forked child, which may be another rank."""
        self._settled = None

    def _choose(self, seen: _Seen) -> tuple[int, int]:
        return (seen.rank, seen.ranks) if seen.counts or self._work_together else (0, 1)


class _Seen(NamedTuple):
    """Rank and number of ranks according to torch.distributed or the environment."""

    rank: int
    ranks: int
    counts: bool  # whether it is said of processes that train one model together
    where: str  # the variables, "" for torch.distributed or none


def _of_distributed() -> tuple[int, int] | None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return None


def _look() -> _Seen:
    said = _of_distributed()
    if said is not None:
        return _Seen(*said, counts=True, where="")
    for who, rank, size, _ in LAUNCHERS:
        if rank in os.environ and size in os.environ:
            own, all_ = _number(rank), _number(size)
            if not 0 <= own < all_:
                raise ValueError(f"{rank}={own} must be from 0 to {size}={all_} less one")
            return _Seen(own, all_, who == "torchrun", f"{rank} and {size}")
    return _Seen(0, 1, counts=True, where="")


def _say(seen: _Seen, taken: tuple[int, int]) -> None:
    """Logs one line, once per process, on how a launcher's variables were used."""
    global _said
    if _said or seen.ranks == 1 or not seen.where:
        return
    _said = True
    if taken == (seen.rank, seen.ranks):
        _logger.warning(
            "this process reads part %d of %d of every epoch because of %s; torch.distributed is not "
            "initialised. Give rank= and world_size= to avoid this line",
            *taken,
            seen.where,
        )
        return
    _logger.warning(
        "%s say that this is rank %d of %d, but torch.distributed is not initialised, so that these may be "
        "independent runs: this process reads all samples. Where they train one model together, "
        "initialise torch.distributed before the first epoch, or give rank= and world_size=; "
        "rank=0, world_size=1 says that they do not",
        seen.where,
        seen.rank,
        seen.ranks,
    )


_said = False


def local_ranks() -> int:
    """Returns the number of ranks on this machine."""
    for who, rank, _, local in LAUNCHERS:
        if local and local in os.environ:
            return max(1, _number(local))
        if who == "Slurm" and "SLURM_STEP_TASKS_PER_NODE" in os.environ and rank in os.environ:
            return _of_this_node(os.environ["SLURM_STEP_TASKS_PER_NODE"])
    return 1


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise ValueError(
            f"the environment variable {name} must be a whole number, not {os.environ[name]!r}"
        ) from None


def _of_this_node(tasks: str) -> int:
    """Returns this node's entry in Slurm's list of tasks per node, "2(x3),1"; 1 if unknown."""
    try:
        node = int(os.environ.get("SLURM_NODEID", "0"))
        for part in tasks.split(","):
            count, many, times = part.partition("(x")
            node -= int(times.rstrip(")")) if many else 1
            if node < 0:
                return max(1, int(count))
    except ValueError:
        pass
    return 1
