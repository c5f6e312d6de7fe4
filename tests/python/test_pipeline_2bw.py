"""Schedule2BW with gloo: four ranks train a small transformer (pipeline_ranks.py)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import forked

RANKS = 4


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The reports of the ranks, all from one run."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("pipeline")
    script = Path(__file__).with_name("pipeline_ranks.py")
    ranks = forked.run_ranks(
        RANKS,
        [sys.executable, str(script), str(folder)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert [rank.returncode for rank in ranks] == [0] * RANKS, [rank.stderr[-2000:] for rank in ranks]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(RANKS)]


def passes(stages, index, batches, microbatches=4):
    """The order of 2BW: forward passes up to the number in flight, then by turns; the rest."""
    ahead, total = stages - index, batches * microbatches
    order = [f"f{k % microbatches}" for k in range(ahead)]
    for k in range(total):
        order.append(f"b{k % microbatches}")
        if ahead + k < total:
            order.append(f"f{(ahead + k) % microbatches}")
    return order


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_weights_follow_the_update_rule(told, stages, optimizer):
    for rank in told[:stages]:
        assert rank[f"rule-{stages}-{optimizer}"]["error"] == 0
    last = told[stages - 1][f"rule-{stages}-{optimizer}"]
    assert last["losses"] == last["simulated"]


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_steps_overlap(told, stages):
    for index, rank in enumerate(told[:stages]):
        run = rank[f"rule-{stages}-sgd"]
        assert run["order"] == passes(stages, index, 6)
        # Without a flush the first stages end a batch in the step of the next.
        assert run["updates_before"] == (6 if index == stages - 1 else 5)
        assert run["updates"] == 6


def test_two_versions_of_weights_are_enough(told):
    assert [rank["rule-4-adamw"]["versions"] for rank in told] == [2] * RANKS


def test_resumes_from_its_state(told):
    assert [rank["resume"] for rank in told] == [0.0] * RANKS


def test_evaluates_the_newest_weights(told):
    assert max(rank["eval"] for rank in told) == 0


def test_replicas_average_their_gradients(told):
    # Sums of gradients in another order differ in their last bits.
    assert max(rank["replicas"] for rank in told) < 1e-6


def test_loss_is_beside_that_of_1f1b(told):
    ours, theirs = told[-1]["2bw"], told[-1]["1f1b"]
    assert ours[0] == theirs[0]
    assert ours[-1] < 0.5 * ours[0] and theirs[-1] < 0.5 * theirs[0]
    far = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    assert far < 0.15 * theirs[0]


def test_what_cannot_be_done_is_refused(told):
    first, last = told[0]["refused"], told[-1]["refused"]
    assert "3 microbatches are fewer than the 4 stages" in first["few"]
    assert "lacks" in first["optimizer"]
    assert "LBFGS" in first["lbfgs"]
    assert "is str; give one of torch.optim" in first["kind"]
    assert "loss_fn" in first["loss"]
    assert "DistributedDataParallel" in first["ddp"] and "replicas=" in first["ddp"]
    assert "3 microbatches are in flight" in first["state"]
    assert "call finish() on all ranks before eval()" in first["eval"]
    assert "no state of Schedule2BW" in first["other"]
    assert "another stage" in first["shapes"] and "or type" in first["state type"]
    assert "no state of Schedule2BW" in first["state text"]
    for name in ("count", "negative"):
        assert "must be a count" in first[f"state {name}"]
    assert "lacks older_weights" in first["state lacking"]
    assert "no batches" in first["state early"]
    assert "must be tensors by the names" in first["state list"]
    assert last["target"] == "the last stage needs target="
    assert "7 rows" in last["uneven"]
