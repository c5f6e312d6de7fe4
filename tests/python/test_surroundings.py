"""Which rank a process is, by the environments of torchrun, Open MPI, MPICH and Slurm."""

import pytest

from headrace.torch import _surroundings
from headrace.torch._arguments import ranks

NAMES = {name for launcher in _surroundings.LAUNCHERS for name in launcher[1:] if name}
NAMES |= {"SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID", "SLURM_NTASKS"}


@pytest.fixture
def surroundings(monkeypatch):
    """Sets exactly these variables of all launchers'."""

    def set_all(**variables):
        for name in NAMES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))

    set_all()
    return set_all


def test_nobody_says_anything(surroundings):
    assert ranks(None, None) == (0, 1, 1)


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": 5, "WORLD_SIZE": 8, "LOCAL_WORLD_SIZE": 4},
        {
            "OMPI_COMM_WORLD_RANK": 5,
            "OMPI_COMM_WORLD_SIZE": 8,
            "OMPI_COMM_WORLD_LOCAL_SIZE": 4,
        },
        {"PMI_RANK": 5, "PMI_SIZE": 8, "MPI_LOCALNRANKS": 4},
        {
            "SLURM_PROCID": 5,
            "SLURM_STEP_NUM_TASKS": 8,
            "SLURM_STEP_TASKS_PER_NODE": "1,3,4",
            "SLURM_NODEID": 2,
        },
    ],
    ids=["torchrun", "openmpi", "mpich", "slurm"],
)
def test_each_launcher(surroundings, variables):
    surroundings(**variables)
    assert ranks(None, None) == (5, 8, 4)
    assert ranks(0, 1) == (0, 1, 4)  # what the caller says counts


def test_torchrun_counts_before_who_started_it(surroundings):
    surroundings(
        RANK=1, WORLD_SIZE=2, LOCAL_WORLD_SIZE=2, SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=1,
        SLURM_STEP_TASKS_PER_NODE="1",
    )  # fmt: skip
    assert ranks(None, None) == (1, 2, 2)


def test_a_batch_script_is_one_process(surroundings):
    """sbatch sets the job's tasks and rank 0 for a script that is alone."""
    surroundings(SLURM_PROCID=0, SLURM_NTASKS=16)
    assert ranks(None, None) == (0, 1, 1)


@pytest.mark.parametrize(
    "tasks, node, expected",
    [
        ("4", 0, 4),
        ("2(x3),1", 0, 2),
        ("2(x3),1", 2, 2),
        ("2(x3),1", 3, 1),
        ("2(x3),1", 9, 1),
        ("two", 0, 1),
        ("2(x", 0, 1),
    ],
)
def test_tasks_of_a_node_of_slurms(surroundings, tasks, node, expected):
    surroundings(
        SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=8, SLURM_STEP_TASKS_PER_NODE=tasks, SLURM_NODEID=node
    )
    assert ranks(None, None)[2] == expected


def test_nonsense_is_named(surroundings):
    surroundings(OMPI_COMM_WORLD_RANK="one", OMPI_COMM_WORLD_SIZE=2)
    with pytest.raises(ValueError, match="OMPI_COMM_WORLD_RANK must be a whole number, not 'one'"):
        ranks(None, None)
