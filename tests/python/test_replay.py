"""headrace.replay: traces of real training on the CPU, what-ifs on them, and ``headrace replay
record``. The C tests compute replays on paper; this file tests the package, the profiler's own
traces, processes and messages."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import places
import pytest
from headrace.replay import KINDS, Replay, Scenario

torch = pytest.importorskip("torch")

STEPS = 3


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A few steps of a small network, with an annotation around a part of it."""
    path = tmp_path_factory.mktemp("replay") / "trace.json"
    torch.manual_seed(0)
    first, second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
    loader = torch.utils.data.DataLoader(torch.randn(64, 64), batch_size=8)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=STEPS, repeat=1)
    with torch.profiler.profile(
        schedule=schedule, record_shapes=True, on_trace_ready=lambda p: p.export_chrome_trace(str(path))
    ) as profiler:
        for batch in loader:
            with torch.profiler.record_function("part one"):
                hidden = first(batch).tanh()
            loss = second(hidden).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
    return path


def test_summary_and_report(trace):
    replay = Replay(trace)
    summary = replay.summary
    assert summary["iterations"] == STEPS and summary["ranks"] == 1
    assert summary["trusted"] and abs(summary["error"]) < 1e-3
    assert summary["checked"] == 0 and summary["usual_error"] == 0  # the CPU alone
    report = replay.report()
    assert report["kind"] == "headrace replay" and report["ranked"]
    assert report["trace"]["kernels"] == 0
    tried = {one["what"]: one for one in report["what_ifs"]}
    assert {"data-ready", "fused-optimizer", "python x2"} <= set(tried)
    assert "gpu x2" not in tried and "amp" not in tried  # nothing that they would change
    gains = [one["gain"] for one in report["what_ifs"]]
    assert gains == sorted(gains, reverse=True) and 0 < gains[0] < 1
    assert replay.text(columns=72).startswith("Replay without a change: ")
    assert "This proves nothing" in replay.text(columns=400)
    replay.write_page(trace.with_suffix(".html"), "python x2")
    page = trace.with_suffix(".html").read_text()
    assert report["what_ifs"][0]["bottleneck"]["name"] and "With python x2: " in page
    with pytest.raises(FileNotFoundError):
        replay.write_page(trace.parent / "none" / "page.html")
    in_a_row = replay.report("data-ready", "remove:part one")["what_ifs"]
    assert in_a_row[1]["iteration_s"] < in_a_row[0]["iteration_s"]


def test_primitives(trace):
    replay = Replay([trace])
    scenario = replay.scenario()
    recorded = scenario.predict()
    assert sum(recorded["critical_path"].values()) == pytest.approx(1)
    part = scenario.select(within="part one")
    assert part and all(scenario.task(task)["kind"] in KINDS for task in part)
    phases = {scenario.task(task)["phase"] for task in part}
    assert phases == {"other", "forward", "backward"}  # backward operators, by sequence number
    spent = sum(scenario.task(task)["length_ns"] for task in part) / STEPS / 1e9
    scenario.scale(part, 0.5)
    half = scenario.predict()["iteration_s"]
    assert half == pytest.approx(recorded["iteration_s"] - spent / 2, rel=1e-4)
    scenario.remove(part)
    gone = scenario.predict()["iteration_s"]
    assert gone == pytest.approx(recorded["iteration_s"] - spent, rel=1e-6)  # exact ns
    addmm = scenario.select(name="^aten::addmm$")
    task = scenario.insert(3_000_000, after=[addmm[-1]], channel="link", priority=1)
    assert scenario.task(task)["kind"] == "inserted"
    scenario.reschedule(scenario.task(task)["lane"], [task], [5])
    held = scenario.predict()["iteration_s"]
    assert held >= gone  # the channel's task is beside the thread
    scenario.insert(30_000_000, after=[addmm[0]])
    more = scenario.predict()["iteration_s"]
    assert more == pytest.approx(held + 0.03 / STEPS, rel=1e-6)
    assert replay.scenario().predict() == recorded  # each scenario is a copy


def test_exchange_of_gradients(trace):
    """The what-if, and the same by primitives: each gradient's size is in the trace."""
    replay = Replay(trace)
    scenario = replay.scenario()
    gradients = scenario.select(name="^torch::autograd::AccumulateGrad$")
    sizes = {scenario.task(task)["bytes"] for task in gradients}
    assert sizes == {64 * 64 * 4, 64 * 4, 64 * 8 * 4, 8 * 4}
    assert scenario.task(scenario.select(kinds=["untraced"])[0])["bytes"] == -1
    whole = (64 * 64 + 64 + 64 * 8 + 8) * 4
    # One bucket, 2 (2 - 1) / 2 of the bytes. It takes two seconds, more than the steps on a busy machine.
    scenario.apply("ddp ranks=2 link=0.01MB/s")
    ddp = scenario.predict()
    alone = replay.scenario().predict()["iteration_s"]
    assert ddp["iteration_s"] == pytest.approx(alone + whole / 1e4, rel=0.05)
    assert ddp["critical_path"]["collective"] > 0.5
    scenario.apply("compress ratio=0.5")
    half = scenario.predict()["iteration_s"]
    assert half == pytest.approx(ddp["iteration_s"] - whole / 2e4, rel=1e-6)
    scenario.apply("recompute")
    assert scenario.predict()["iteration_s"] > half
    by_hand = replay.scenario()
    each = len(gradients) // STEPS
    for last in gradients[each - 1 :: each]:
        following = [t for t in by_hand.select(phases=["optimizer"]) if t > last]
        by_hand.insert(int(whole * 1e5), after=[last], before=following[:1], channel="link")
    assert by_hand.predict()["iteration_s"] == pytest.approx(ddp["iteration_s"], rel=0.05)
    with pytest.raises(ValueError, match="share a CPU thread"):
        replay.scenario().apply("overlap-optimizer")
    tried = [one["what"] for one in replay.report()["what_ifs"]]
    assert "priority" not in tried and "overlap-optimizer" not in tried


def test_loss_tolerance(trace):
    """On the links of ddp: equal networks change nothing, loss costs time, tolerance gives it back."""
    replay = Replay(trace)
    ddp = "ddp ranks=4 link=1MB/s latency=10us"

    def seconds(*what_ifs):
        scenario = replay.scenario()
        for what_if in what_ifs:
            scenario.apply(what_if)
        return scenario.predict()["iteration_s"]

    exchanged = seconds(ddp)
    assert seconds(ddp, "loss-tolerance p=0") == pytest.approx(exchanged, rel=1e-6)
    lossy = seconds(ddp, "loss-tolerance p=0 loss=0.05 packet=128")
    assert lossy > exchanged
    assert lossy == seconds(ddp, "loss-tolerance p=0 loss=0.05 packet=128")  # seeded
    assert seconds(ddp, "loss-tolerance p=0.2 loss=0.05 packet=128") < lossy
    whole = (64 * 64 + 64 + 64 * 8 + 8) * 4
    half = seconds(ddp, "loss-tolerance p=0.5 packet=128")
    # a part of a packet more in each of the ring's 6 steps
    assert half == pytest.approx(exchanged - 1.5 * whole / 1e6 / 2, abs=6 * 128e-6)
    with pytest.raises(ValueError, match="the trace has no communication"):
        seconds("loss-tolerance p=0.1")
    with pytest.raises(ValueError, match="name loss-tolerance once"):
        seconds(ddp, "loss-tolerance p=0.1", "bucket=1MB")
    report = replay.report(ddp, "loss-tolerance p=0.5")
    assert "not the accuracy" in report["what_ifs"][1]["assumes"]


def test_predicted_trace(trace, tmp_path):
    scenario = Replay(trace).scenario()
    scenario.apply("data-ready")
    scenario.write_trace(tmp_path / "after.json")
    events = json.loads((tmp_path / "after.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    end = max(event["ts"] + event["dur"] for event in slices)
    assert end <= scenario.predict()["iteration_s"] * STEPS * 1e6 + 1
    assert any(event["name"] == "aten::addmm" for event in slices)


def test_refused(trace, tmp_path):
    with pytest.raises(FileNotFoundError):
        Replay(tmp_path / "none.json")
    (tmp_path / "empty.json").touch()
    with pytest.raises(ValueError, match="empty.json is empty: .* record again"):
        Replay(tmp_path / "empty.json")
    (tmp_path / "letter.json").write_text("dear reader")
    with pytest.raises(ValueError, match="letter.json: at byte 0"):
        Replay(tmp_path / "letter.json")
    packed = gzip.compress(trace.read_bytes())
    (tmp_path / "cut.json.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(ValueError, match="the gzipped file is cut off"):
        Replay(tmp_path / "cut.json.gz")
    with pytest.raises(ValueError, match="does not say its rank"):
        Replay([trace, trace])
    with pytest.raises(ValueError, match="annotations contain 'nothing'"):
        Replay(trace, window="nothing")
    scenario = Replay(trace).scenario()
    with pytest.raises(ValueError, match="is no what-if; there are: data-ready"):
        scenario.apply("warp x2")
    with pytest.raises(ValueError, match="no kernels of a device"):
        scenario.apply("gpu x2")
    with pytest.raises(ValueError, match="kind 'kernels': there are operator"):
        scenario.select(kinds=["kernels"])
    with pytest.raises(ValueError, match="there is no task"):
        scenario.scale([10**6], 2)
    with pytest.raises(IndexError):
        scenario.task(10**6)
    assert isinstance(scenario, Scenario)


def test_window(trace):
    whole, part = Replay(trace), Replay(trace, window="part one", instance=1)
    assert part.summary["iterations"] == 1
    assert part.summary["recorded_s"] < whole.summary["recorded_s"]


ONE_STEP = """
import json, sys
from headrace.replay import Replay
replay = Replay(sys.argv[1], window="ProfilerStep#7", instance=0)
report = replay.report()
peak = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
print(json.dumps([1024 * int(peak), report["trace"], report["identity"]]))
"""


@pytest.mark.long
def test_a_large_trace_in_a_share_of_its_bytes(tmp_path):
    """The file is read as a stream: one step of hundreds, with all advice, takes less memory than half of the file."""
    path = tmp_path / "large.json"
    tool = Path(__file__).parents[2] / "tools" / "make_trace.py"
    subprocess.run([sys.executable, tool, path, "--size", "300MB"], check=True, timeout=600)
    done = subprocess.run(
        [sys.executable, "-c", ONE_STEP, path], check=True, capture_output=True, text=True, timeout=600
    )
    peak, trace, identity = json.loads(done.stdout)
    assert path.stat().st_size >= 300_000_000 and peak < path.stat().st_size / 2
    assert trace["iterations"] == 1 and trace["kernels"] == 401 and trace["events"] > 1_000_000
    assert identity["trusted"] and identity["checked"] > 0


# Recording a script


class Place(places.Place):
    common = """
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step():
    loss = model(torch.randn(8, 20)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
"""

    def run(self, *words, before=()):
        """before: what comes between Python and the script."""
        command = [sys.executable, "-P", "-m", "headrace.replay", "--no-progress", *words]
        done = subprocess.run(
            [*command, "--", sys.executable, *before, "train.py"],
            cwd=self.work, env=self.environment, capture_output=True, text=True, timeout=600,
        )
        assert list(self.temporary.glob("headrace-*")) == []
        return done


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_record(place):
    """The script's output is that without recording; iterations are the optimizer's steps."""
    place.script("print([step() for _ in range(12)])")
    plain = subprocess.run(
        [sys.executable, "train.py"], cwd=place.work, env=place.environment, capture_output=True,
        text=True, timeout=600,
    )
    done = place.run("--iterations", "4", "--skip", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(plain.stdout) and plain.stdout
    assert done.stdout.endswith("headrace-trace.json.gz: recorded\n")
    replay = Replay(place.work / "headrace-trace.json.gz")
    assert replay.summary["iterations"] == 4 and replay.summary["trusted"]
    scenario = replay.scenario()
    assert scenario.select(within="^module: 0$", phases=["backward"])
    assert scenario.select(within="^module: 2$", phases=["forward"])


def test_record_as_json(place):
    place.script("print([step() for _ in range(9)])")
    words = ["--iterations", "2", "--skip", "3", "--json", "--shapes", "--out", "other.json"]
    done = place.run(*words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trace"]["iterations"] == 2
    assert "other.json: recorded" in done.stderr
    scenario = Replay(place.work / "other.json").scenario()
    gradients = scenario.select(name="AccumulateGrad$", phases=["backward"])
    assert {scenario.task(task)["bytes"] for task in gradients} >= {20 * 30 * 4, 30 * 4}


@pytest.mark.long
def test_record_ranks(place):
    """Under torchrun: a trace of each rank, joined by their collectives of gloo."""
    place.script(
        """
        import torch.distributed as dist
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
        for _ in range(8):
            step()
        dist.destroy_process_group()
        """
    )
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = place.run("--iterations", "2", "--skip", "3", before=torchrun)
    assert done.returncode == 0, done.stderr
    names = [f"headrace-trace.rank{rank}.json.gz" for rank in range(2)]
    assert all(f"{name}: recorded" in done.stdout for name in names)
    # on a busy machine waits for collectives end late, which the graph does not explain
    replay = Replay([place.work / name for name in names], limit=1)
    assert replay.summary["ranks"] == 2 and replay.summary["iterations"] == 2
    scenario = replay.scenario()
    for rank in range(2):
        assert scenario.select(name="gloo:all_reduce", rank=rank)
    scenario.apply("link x2")
    assert scenario.predict()["iteration_s"] <= replay.summary["replayed_s"]


def test_nothing_recorded(place):
    place.script("step(); step()")
    done = place.run()
    assert done.returncode == 1
    assert "the script made 2 steps of its optimizer, and 10 come before" in done.stderr
    place.script("print(torch.ones(2).sum())")
    assert "no optimizer of torch.optim made a step" in place.run().stderr
    assert place.run("--out", "trace.txt").returncode == 3
