"""Profiles of pipelines and plans for them: measured here, made of PipeDream's, and against vTrain's
measured times."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import headrace.pipeline as pipeline

ROOT = Path(__file__).resolve().parents[2]


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(48, 64), nn.Sequential(nn.Linear(64, 64), nn.ReLU()), nn.Linear(64, 10)
    )


def test_a_network_is_measured():
    model, batch = network(), torch.randn(8, 3, 4, 4)
    before = [p.clone() for p in model.parameters()]
    torch.set_num_threads(1)
    found = pipeline.profile(model, batch, microbatches=[8, 4], optimizer=torch.optim.AdamW, repeats=2)
    assert found["microbatches"] == [4, 8]
    assert found["input_bytes"] == [4 * 48 * 4, 8 * 48 * 4]
    # Flatten has no backward pass of its own.
    assert [layer["name"] for layer in found["layers"]] == ["0 Flatten + 1 Linear", "2 Sequential", "3 Linear"]
    first, middle, last = found["layers"]
    assert [layer["weight_bytes"] for layer in found["layers"]] == [4 * 49 * 64, 4 * 65 * 64, 4 * 65 * 10]
    assert first["output_bytes"] == middle["output_bytes"] == [4 * 64 * 4, 8 * 64 * 4]
    assert last["output_bytes"] == [4 * 10 * 4, 8 * 10 * 4]
    # ReLU's output is what its backward pass and that of the last layer read.
    assert middle["held_bytes"] == [4 * 64 * 4, 8 * 64 * 4]
    for layer in found["layers"]:
        assert min(layer["forward_s"] + layer["backward_s"]) > 0
        assert layer["update_s"] > 0
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(p.grad is None for p in model.parameters())
    assert len(pipeline.plan(found, gpus=2, batch=16)["plans"]) > 1


def test_what_cannot_be_measured_is_refused():
    batch = torch.randn(4, 3, 4, 4)
    with pytest.raises(TypeError, match="give a torch.nn.Sequential"):
        pipeline.profile(nn.Linear(2, 2), batch)
    with pytest.raises(ValueError, match="from 1 to 4"):
        pipeline.profile(network(), batch, microbatches=[8])
    with pytest.raises(TypeError, match="the batch is list"):
        pipeline.profile(network(), [1])
    for repeats in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="repeats is .* from 1 on"):
            pipeline.profile(network(), batch, repeats=repeats)

    class Two(nn.Module):
        def forward(self, x):
            return x, x

    with pytest.raises(TypeError, match="layer 1 gives tuple"):
        pipeline.profile(nn.Sequential(nn.Flatten(), Two()), batch)


# ---- PipeDream's profiles: a network with a branch, written by hand ----

GRAPH = """\
node4 -- Add -- forward_compute_time=2.000, backward_compute_time=3.000, activation_size=64.000, parameter_size=0.000
node1 -- Input -- forward_compute_time=9.000, backward_compute_time=0.000, activation_size=16.000, parameter_size=0.000
node2 -- Conv2d(3, 8, kernel_size=(1, 1)) -- forward_compute_time=10.000, backward_compute_time=20.000, activation_size=64.000, parameter_size=96.000
node3 -- ReLU(inplace) -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=[32.0; 8.0], parameter_size=0.000
node5 -- Dropout(p=0.5) -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=64.000, parameter_size=0.000 -- stage_id=1
node6 -- Linear(in_features=8) -- forward_compute_time=4.000, backward_compute_time=8.000, activation_size=4.000, parameter_size=128.000
\tnode1 -- node2
\tnode2 -- node3
\tnode2 -- node4
\tnode3 -- node4
\tnode4 -- node5
\tnode5 -- node6
"""


def test_profiles_of_pipedream(tmp_path):
    path = tmp_path / "graph.txt"
    path.write_text(GRAPH)
    found = pipeline.from_pipedream(path, 32, name="branched")
    assert found["microbatches"] == [32] and found["input_bytes"] == [16]
    names = [layer["name"] for layer in found["layers"]]
    assert names == ["node2 Conv2d", "node3 ReLU", "node4 Add", "node6 Linear"]
    assert [layer["forward_s"][0] for layer in found["layers"]] == pytest.approx([0.01, 0.001, 0.002, 0.004])
    assert [layer["backward_s"][0] for layer in found["layers"]] == pytest.approx([0.02, 0.002, 0.003, 0.008])
    # Behind node3 its own output is needed, and node2's by node4.
    assert [layer["output_bytes"][0] for layer in found["layers"]] == [64, 104, 64, 0]
    assert [layer["held_bytes"][0] for layer in found["layers"]] == [64, 40, 128, 4]
    assert [layer["weight_bytes"] for layer in found["layers"]] == [96, 0, 0, 128]
    plan = pipeline.plan(found, gpus=2, batch=256, stages=2, schedule="2bw", recompute=False)["plans"][0]
    assert plan["cuts"] == [0, 1, 4] and plan["step_s"] == pytest.approx(8 * 0.03)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no nodes"),
        ("nonsense\n", "line 1 is no node"),
        (GRAPH + "\tnode6 -- node9\n", "no such nodes"),
        (GRAPH + "\tnode6 -- node2\n", "has a circle"),
        (GRAPH.replace("9.000", "9,x"), "line 2"),
        (GRAPH.replace("9.000", "-9.0"), "line 2: -9.0 is no time or size"),
        (GRAPH.replace("9.000", "nan"), "line 2: nan is no time or size"),
    ],
)
def test_damaged_profiles_of_pipedream(tmp_path, text, message):
    path = tmp_path / "graph.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        pipeline.from_pipedream(path, 32)


# ---- plans ----


def test_plans_are_written(tmp_path):
    layer = {"name": "x", "repeat": 4, "forward_s": [1], "backward_s": [2], "weight_bytes": 1,
             "held_bytes": [1], "output_bytes": [1]}  # fmt: skip
    profile = {"headrace_pipeline_profile": 1, "microbatches": [1], "layers": [layer]}
    path = tmp_path / "p.json"
    path.write_text(json.dumps(profile))
    given = {"gpus": 4, "batch": 4, "stages": 4, "schedule": "1f1b", "recompute": False}
    found = pipeline.plan(path, **given, page=tmp_path / "p.html", trace=tmp_path / "t.json")
    assert found == pipeline.plan(profile, **given)
    assert found["plans"][0]["step_s"] == 3 * (4 + 3)
    assert "<!DOCTYPE html>" in (tmp_path / "p.html").read_text()
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    with pytest.raises(ValueError, match="schedule is 'zigzag'"):
        pipeline.plan(profile, gpus=1, batch=1, schedule="zigzag")
    with pytest.raises(ValueError, match=r"layers\[0\] \(x\).forward_s is 0"):
        pipeline.plan({**profile, "layers": [{**layer, "forward_s": [0]}]}, gpus=1, batch=1)
    with pytest.raises(FileNotFoundError):
        pipeline.plan(tmp_path / "none.json", gpus=1, batch=1)


def test_the_order_of_2bw_is_that_of_the_schedule():
    """What the plan shows is what Schedule2BW does (test_pipeline_2bw.py has the same order)."""
    layer = {"name": "x", "repeat": 4, "forward_s": [1], "backward_s": [2], "weight_bytes": 1,
             "held_bytes": [1], "output_bytes": [1]}  # fmt: skip
    profile = {"headrace_pipeline_profile": 1, "microbatches": [1], "layers": [layer]}
    found = pipeline.plan(profile, gpus=4, batch=4, stages=4, schedule="2bw", recompute=False)
    for gpu in range(4):
        tasks = [task for task in found["first"]["tasks"] if task[0] == gpu and task[1] != "update"]
        ahead = 4 - gpu
        assert [task[1][0] for task in tasks[: ahead + 2]] == ["f"] * ahead + ["b", "f"]
        assert [task[3] for task in tasks[: ahead + 2]] == [*range(ahead), 0, ahead]


def test_times_measured_by_vtrain():
    sys.path.insert(0, str(ROOT / "bench"))
    import pipelines

    if not (pipelines.SHARED / "vtrain").is_dir():
        pytest.skip("vTrain's measured times are not in $HEADRACE_SHARED_DATA/vtrain")
    assert pipelines.vtrain() <= 0.05
