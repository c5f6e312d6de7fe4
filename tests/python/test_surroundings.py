"""The rank of a process, from torch.distributed and from the environments of torchrun, Open MPI,
MPICH and Slurm: no variable takes samples away without a log line."""

import logging

import pytest

from agents import Agent
from conftest import COUNT, run_forked
from headrace.torch import DataLoader, _surroundings
from headrace.torch._arguments import part

NAMES = {name for launcher in _surroundings.LAUNCHERS for name in launcher[1:] if name}
NAMES |= {"LOCAL_RANK", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID", "SLURM_NTASKS"}

TORCHRUN = {"RANK": 5, "WORLD_SIZE": 8, "LOCAL_WORLD_SIZE": 4}
OTHERS = {
    "openmpi": {
        "OMPI_COMM_WORLD_RANK": 5,
        "OMPI_COMM_WORLD_SIZE": 8,
        "OMPI_COMM_WORLD_LOCAL_SIZE": 4,
    },
    "mpich": {"PMI_RANK": 5, "PMI_SIZE": 8, "MPI_LOCALNRANKS": 4},
    "slurm": {
        "SLURM_PROCID": 5,
        "SLURM_STEP_NUM_TASKS": 8,
        "SLURM_STEP_TASKS_PER_NODE": "1,3,4",
        "SLURM_NODEID": 2,
    },
}


@pytest.fixture
def surroundings(monkeypatch):
    """Sets exactly these variables of all launchers."""

    def set_all(**variables):
        for name in NAMES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))

    monkeypatch.setattr(_surroundings, "_said", False)
    set_all()
    return set_all


def settled(caplog, *arguments):
    """Returns (rank, ranks) with which an epoch begins, and the log."""
    caplog.clear()
    mine = part(*arguments)
    with caplog.at_level(logging.WARNING, "headrace"):
        mine.settle()
    return mine.now(), [record.message for record in caplog.records]


def test_nobody_says_anything(surroundings, caplog):
    assert settled(caplog, None, None, None) == ((0, 1), [])


def test_torchruns_variables_count_and_are_logged(surroundings, caplog):
    surroundings(**TORCHRUN)
    assert part(None, None, None).now() == (5, 8)
    ranks, (line,) = settled(caplog, None, None, None)
    assert ranks == (5, 8) and _surroundings.local_ranks() == 4
    assert "part 5 of 8" in line and "RANK and WORLD_SIZE" in line
    assert settled(caplog, None, None, None) == ((5, 8), [])  # once
    assert settled(caplog, 0, 1, None) == ((0, 1), [])  # the caller's arguments count


@pytest.mark.parametrize("launcher", OTHERS)
def test_other_launchers_take_no_samples_away(surroundings, caplog, launcher):
    """Their processes may be separate runs; one line says that all samples are read."""
    surroundings(**OTHERS[launcher])
    ranks, (line,) = settled(caplog, None, None, None)
    assert ranks == (0, 1) and "rank 5 of 8" in line and "reads all samples" in line
    assert settled(caplog, None, None, None) == ((0, 1), [])
    assert settled(caplog, 0, 1, None) == ((0, 1), [])
    assert _surroundings.local_ranks() == 4  # they share the cores in any case


@pytest.mark.parametrize("launcher", OTHERS)
def test_other_launchers_count_where_ranks_gather(surroundings, caplog, launcher):
    surroundings(**OTHERS[launcher])
    ranks, (line,) = settled(caplog, None, None, lambda record: [record])
    assert ranks == (5, 8) and "part 5 of 8" in line


def test_torchrun_counts_before_who_started_it(surroundings):
    surroundings(
        RANK=1, WORLD_SIZE=2, LOCAL_WORLD_SIZE=2, SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=1,
        SLURM_STEP_TASKS_PER_NODE="1",
    )  # fmt: skip
    assert part(None, None, None).now() == (1, 2) and _surroundings.local_ranks() == 2


def test_a_batch_script_is_one_process(surroundings, caplog):
    """sbatch sets the job's tasks and rank 0 for a script that runs alone."""
    surroundings(SLURM_PROCID=0, SLURM_NTASKS=16)
    assert settled(caplog, None, None, None) == ((0, 1), [])
    assert _surroundings.local_ranks() == 1


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
    assert _surroundings.local_ranks() == expected


# Ranks of one machine


def suggestions(caplog, dataset, **options):
    """Returns the log lines about the machine's ranks at the beginning of an epoch."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "headrace"), DataLoader(dataset, 4, **options) as loader:
        iter(loader)
    return [r.message for r in caplog.records if "prepare for themselves" in r.message]


TWO_LOADERS = """
import sys, headrace, headrace.transforms as T
from headrace.torch import DataLoader
for _ in range(2):
    with DataLoader(headrace.ImageFolder(sys.argv[1], T.CenterCrop(8)), 4) as loader:
        iter(loader)
"""


def test_the_first_rank_of_a_machine_suggests_an_agent(folder):
    torchrun = {**TORCHRUN, "RANK": 4, "LOCAL_RANK": 0}
    done = run_forked(TWO_LOADERS, str(folder), **{k: str(v) for k, v in torchrun.items()})
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "prepare for themselves" in line]
    assert "4 ranks of this machine" in line and 'agent="auto"' in line


@pytest.mark.parametrize("local", [{"LOCAL_RANK": 1}, {}])
def test_other_ranks_of_a_machine_suggest_nothing(dataset, surroundings, caplog, local):
    surroundings(**TORCHRUN, **local)
    assert suggestions(caplog, dataset) == []


def test_a_rank_that_is_alone_suggests_no_agent(dataset, surroundings, caplog):
    surroundings(RANK=1, WORLD_SIZE=2, LOCAL_RANK=0, LOCAL_WORLD_SIZE=1)
    assert suggestions(caplog, dataset) == []
    surroundings(RANK=0, WORLD_SIZE=2, LOCAL_RANK=0, LOCAL_WORLD_SIZE=2)
    assert suggestions(caplog, dataset, rank=0, world_size=1) == []  # a separate run
    with Agent() as agent:
        assert suggestions(caplog, dataset, agent=agent.socket) == []


def test_nonsense_is_named(surroundings):
    surroundings(OMPI_COMM_WORLD_RANK="one", OMPI_COMM_WORLD_SIZE=2)
    with pytest.raises(ValueError, match="OMPI_COMM_WORLD_RANK must be a whole number, not 'one'"):
        part(None, None, None).now()
    surroundings(RANK=3, WORLD_SIZE=2)
    with pytest.raises(ValueError, match="RANK=3 must be from 0 to WORLD_SIZE=2 less one"):
        part(None, None, None).now()
    with pytest.raises(ValueError, match="rank 2 must be less than world_size 2"):
        part(2, 2, None)
    with pytest.raises(ValueError, match="both, or neither"):
        part(1, None, None)


INDEPENDENT = """
import sys, headrace, headrace.transforms as T
from headrace.torch import DataLoader
data = headrace.ImageFolder(sys.argv[1], T.CenterCrop(8))
loader = DataLoader(data, 4, shuffle=True, return_index=True)
print(len(loader), sorted(i for *_, index in loader for i in index.tolist()))
"""


def test_an_independent_run_in_a_step_reads_everything(folder):
    done = run_forked(INDEPENDENT, str(folder), **{k: str(v) for k, v in OTHERS["slurm"].items()})
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{-(-COUNT // 4)} {list(range(COUNT))}"
    assert done.stderr.count("SLURM_PROCID and SLURM_STEP_NUM_TASKS say") == 1


# The moment when the rank is read


def test_the_rank_is_that_of_the_first_epoch(dataset, monkeypatch, surroundings):
    """Not the rank when the loader was made: frameworks start ranks in between."""
    loader = DataLoader(dataset, 4, return_index=True)
    assert (loader.rank, loader.world_size, len(loader)) == (0, 1, 10)
    monkeypatch.setattr(_surroundings, "_of_distributed", lambda: (1, 3))
    assert (loader.rank, loader.world_size, len(loader)) == (1, 3, 4)
    assert [i for *_, index in loader for i in index.tolist()][:3] == [1, 4, 7]
    assert loader.stats()["batches"] == 4


def test_another_rank_later_is_an_error(dataset, monkeypatch, surroundings):
    loader = DataLoader(dataset, 4)
    given = DataLoader(dataset, 4, rank=0, world_size=1)
    next(iter(loader)), next(iter(given))
    monkeypatch.setattr(_surroundings, "_of_distributed", lambda: (0, 2))
    with pytest.raises(RuntimeError, match=r"began .* rank 0 of 1, .* says rank 0 of 2"):
        iter(loader)
    assert len(list(given)) == 10


def test_an_order_that_is_too_short_for_the_ranks_is_named_at_the_first_epoch(
    dataset, monkeypatch, surroundings
):
    loader = DataLoader(dataset, 20, drop_last=True)
    monkeypatch.setattr(_surroundings, "_of_distributed", lambda: (0, 2))
    assert len(loader) == 0
    with pytest.raises(ValueError, match="less than one batch of 20 for each of 2 ranks"):
        iter(loader)


def test_a_private_cache_and_counters_outlast_the_change(dataset, monkeypatch, surroundings):
    loader = DataLoader(dataset, 4, cache="4MiB", num_workers=0)
    monkeypatch.setattr(_surroundings, "_of_distributed", lambda: (0, 2))
    assert len(list(loader)) == len(list(loader)) == 5
    assert loader.stats()["cache_hits"] >= 16
    assert len(loader.sampler) == 20
