"""Finds the rank of this process and the number of ranks.

torch.distributed counts where it is initialised. Without it the environment is all there is. RANK
and WORLD_SIZE, torchrun's, are set for processes that train one model together, and count. Those of
Open MPI's mpirun, of MPICH's and Intel's, and of Slurm's srun are set for any processes, eight
independent runs in one step too: they count only where the caller says that ranks work
together. Either way one line says what was made of them. Each launcher names three numbers; it
counts where its first two are there. Slurm's are those of a step: a batch script has a rank of the
job too, and is one process all the same.
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
    """Which part of every epoch is this process's.

    Where the caller does not say it, the surroundings do when the first epoch begins, not when
    the loader is made: frameworks start torch.distributed in between. Until then :meth:`now`
    follows the surroundings, and from then on another answer of theirs is an error.
    """

    def __init__(self, given: tuple[int, int] | None, work_together: bool) -> None:
        self._given = given
        self._work_together = work_together  # the caller says that ranks of any launcher do
        self._settled: tuple[int, int] | None = None

    @property
    def is_known(self) -> bool:
        """Whether nothing can change it any more."""
        return (self._given or self._settled or _of_distributed()) is not None

    @property
    def is_settled(self) -> bool:
        """Whether an epoch has begun."""
        return self._settled is not None

    def now(self) -> tuple[int, int]:
        """(rank, ranks)"""
        return self._given or self._settled or self._choose(_look())

    def settle(self) -> None:
        """Called when an epoch begins. RuntimeError where torch.distributed has come to say
        something else than what the first one began with."""
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
        """In a forked child: it may be another rank."""
        self._settled = None

    def _choose(self, seen: _Seen) -> tuple[int, int]:
        return (seen.rank, seen.ranks) if seen.counts or self._work_together else (0, 1)


class _Seen(NamedTuple):
    """What torch.distributed or the environment says."""

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
    """One line, once in a process, of what was made of a launcher's variables."""
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


def suggest_agent(rank: int, ranks: int) -> None:
    """One line, once in a process, from the first of a machine's ranks that prepare for
    themselves: each has its part of the cores, however much work the others have."""
    global _suggested
    here = min(local_ranks(), ranks)
    first = _number("LOCAL_RANK") if "LOCAL_RANK" in os.environ else rank % here
    if _suggested or here == 1 or first != 0:
        return
    _suggested = True
    _logger.warning(
        "%d ranks of this machine prepare for themselves, each with its part of the cores: "
        'agent="auto" shares the cores among them',
        here,
    )


_suggested = False


def local_ranks() -> int:
    """Ranks on this machine, this one included."""
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
    """This node's number in Slurm's list for all, "2(x3),1"; 1 where it is not known."""
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
