"""Ranks, by the environment variables of launchers."""

from __future__ import annotations

import os

# (who, rank, ranks, ranks of this machine)
LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ""),
)


def rank() -> int | None:
    """Returns this process's rank; None if no launcher has set the variables of several ranks."""
    for _, own, size, _ in LAUNCHERS:
        found, of = os.environ.get(own, ""), os.environ.get(size, "")
        if found.isdigit() and of.isdigit():
            return int(found) if int(of) > 1 else None
    return None
