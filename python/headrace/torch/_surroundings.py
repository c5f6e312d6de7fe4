"""Which of how many ranks this process is, as whoever started it says.

torch.distributed is asked first; then the environment that torchrun sets; then those of
Open MPI's mpirun, of MPICH's and Intel's, and of Slurm's srun. Each names three numbers; a
launcher counts where its first two are there. Slurm's are those of a step: a batch script
has a rank of the job too, and is one process all the same.
"""

from __future__ import annotations

import logging
import os

import torch
import torch.distributed

from .._launch.ranks import LAUNCHERS

_logger = logging.getLogger("headrace")


def ranks() -> tuple[int, int]:
    """(rank, ranks) of this process; 0 of 1 where nobody says anything."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    for who, rank, size, _ in LAUNCHERS:
        if rank not in os.environ or size not in os.environ:
            continue
        found = _number(rank), _number(size)
        if who != "torchrun" and found[1] > 1:
            _logger.info("this is rank %d of %d, as %s says in %s and %s", *found, who, rank, size)
        return found
    return 0, 1


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
    """This node's number in Slurm's list for all, "2(x3),1"; 1 where it cannot be told."""
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
