"""Recording memory blocks and analysing the record, with models whose bytes can be computed by
hand."""

import gc
import os
import signal
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import forked  # noqa: E402
import headrace.memory as memory  # noqa: E402

FLOAT = 4
BATCH, INPUT, HIDDEN, CLASSES = 32, 100, 200, 10
WEIGHTS = (INPUT * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES) * FLOAT


class Mlp:
    """A training run in which every block is known."""

    def __init__(self, momentum=0.9, hidden=HIDDEN):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(INPUT, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, CLASSES))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=momentum)
        self.loss = torch.nn.CrossEntropyLoss()

    def step(self, batch=BATCH):
        x, y = torch.randn(batch, INPUT), torch.randint(0, CLASSES, (batch,))
        self.optimizer.zero_grad()
        loss = self.loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss


def record_mlp(path):
    """Prints the numbers of recorded and lost events."""
    mlp = Mlp()
    with memory.record(path, batch_size=BATCH) as recording:
        for _ in range(12):
            mlp.step()
        print(*recording.counts())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Records in a process of its own, because parameters that other tests have left alive would
    count as parameters."""
    path = tmp_path_factory.mktemp("memory") / "mlp.hrm"
    code = "import sys, test_memory_behaviour as t; t.record_mlp(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, path], cwd=os.path.dirname(__file__),
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = memory.analyse(path)
    events, lost = map(int, done.stdout.split())
    assert found["run"]["events"] == events
    assert lost == 0
    return found


def bytes_of_others(path):
    """Returns the live bytes of blocks that no test here has made."""
    gc.collect()
    with memory.record(path):
        torch.ones(1).add_(1)
    return memory.analyse(path)["devices"][0]["end_bytes"]


def blocks_of(found, category):
    return [b for b in found["lifetimes"]["blocks"] if b["category"] == category]


def test_bytes_by_hand(recorded):
    """Parameters, gradients and momentum each have exactly the bytes of the weights."""
    peak = recorded["devices"][0]["peak"]
    assert recorded["devices"][0]["device"] == "cpu"
    assert peak["parameter"] == WEIGHTS
    assert peak["optimizer state"] == WEIGHTS
    assert peak["gradient"] <= WEIGHTS
    live = {}
    for block in recorded["lifetimes"]["blocks"]:
        live.setdefault((block["category"], block["what"]), set()).add(block["bytes"])
    assert live["parameter", "[200, 100] float32"] == {80000}
    assert live["input", "[32, 100] float32"] == {12800}
    assert live["input", "[32] int64"] == {256}
    # The backward pass needs the output of ReLU and the logarithms of the softmax.
    assert live["activation", "[32, 200] float32"] == {25600}
    assert live["activation", "[32, 10] float32"] == {1280}
    gradients = {what: sizes for (category, what), sizes in live.items() if category == "gradient"}
    assert {80000} in gradients.values() and {8000} in gradients.values()
    assert sum(size for sizes in gradients.values() for size in sizes) == WEIGHTS


def test_pattern(recorded):
    """All iterations are alike except the first ones, which allocate the momentum."""
    pattern = recorded["pattern"]
    assert pattern["marked"] == 13
    assert pattern["behaviours"] > 50
    assert pattern["same"] >= 10
    assert not recorded["odd"]["frees"] and not recorded["odd"]["allocations"]


def test_accesses(recorded):
    """An activation is written in the forward pass and read in the backward pass."""
    lifetimes = recorded["lifetimes"]
    blocks = lifetimes["blocks"]
    relu = [i for i, b in enumerate(blocks)
            if b["category"] == "activation" and b["bytes"] == 25600]
    assert relu
    complete = 0
    for index in relu:
        ops = [(writes, op) for block, _, writes, op in lifetimes["accesses"] if block == index]
        if len(ops) < blocks[index]["reads"] + blocks[index]["writes"]:
            continue  # at the limit of the drawn points
        complete += 1
        assert ops[0] == (1, "aten.relu.default")
        assert [op for _, op in ops[1:]] == [
            "aten.addmm.default", "aten.mm.default", "aten.threshold_backward.default"]
        assert not any(writes for writes, _ in ops[1:])
    assert complete >= 3


def test_live_bytes_end(tmp_path):
    """After training, only parameters, gradients and momentum are live."""
    path = tmp_path / "end.hrm"
    before = bytes_of_others(path)
    mlp = Mlp()
    with memory.record(path):
        for _ in range(3):
            mlp.step()
    device = memory.analyse(path)["devices"][0]
    assert device["end_bytes"] - before == 3 * WEIGHTS
    series = device["timeline"]["bytes"]
    totals = [sum(values) for values in zip(*series.values())]
    assert min(totals) >= 0 and max(totals) == device["peak_bytes"]


def test_schemas(tmp_path):
    """Views and empty tensors are no accesses; in-place changes are writes."""
    path = tmp_path / "ops.hrm"
    a = torch.ones(1000)
    with memory.record(path):
        view = a.view(10, 100)[2:].t()
        view.add_(1)
        empty = torch.empty(5000)
        empty_like = torch.empty_like(a)
        out = torch.empty(1000)
        torch.add(a, a, out=out)
        b = torch.cat([a, out])
        del empty, empty_like
    blocks = {b["bytes"]: b for b in memory.analyse(path)["lifetimes"]["blocks"] if b["bytes"]}
    assert (blocks[20000]["reads"], blocks[20000]["writes"]) == (0, 0)
    assert (blocks[8000]["reads"], blocks[8000]["writes"]) == (0, 1)
    assert blocks[8000]["operator"] == "aten.cat.default"
    assert b.sum() == 5400
    found = memory.analyse(path)["lifetimes"]["blocks"]
    thousand = [b for b in found if b["bytes"] == 4000]
    # a: written by add_, read by add (twice) and cat; out: written by add, read by cat.
    assert sorted((b["reads"], b["writes"]) for b in thousand) == [(0, 0), (1, 1), (3, 1)]
    assert [b["free_ns"] is not None for b in found if b["bytes"] == 20000] == [True]


def test_interval_identity(tmp_path):
    """25 us at 6.4 and 6.3 GB/s are 79.37 KB, as in the published figures."""
    path = tmp_path / "run.hrm"
    with memory.record(path):
        torch.ones(10).add_(1).add_(1)
    found = memory.analyse(path, h2d_bytes_per_s=6.3e9, d2h_bytes_per_s=6.4e9)
    intervals = found["intervals"]
    rate = 1 / (1 / intervals["h2d_bytes_per_s"] + 1 / intervals["d2h_bytes_per_s"])
    assert abs(25e-6 * rate - 79370.08) < 0.01
    assert intervals["count"] == sum(part["count"] for part in intervals["of"].values()) > 0


def test_backward_of_checkpoints(tmp_path):
    """Activations recomputed in the backward pass are not activations of the forward pass, and
    phases are restored after an exception."""
    from torch.utils.checkpoint import checkpoint

    path = tmp_path / "checkpoint.hrm"
    layer = torch.nn.Linear(64, 64)
    with memory.record(path) as recording:
        x = torch.randn(8, 64, requires_grad=True)
        checkpoint(layer, x, use_reentrant=False).sum().backward()
        with pytest.raises(RuntimeError):
            torch.autograd.backward(torch.ones(3))
        assert recording.phase in (0, 1)
    assert memory.analyse(path)["run"]["accesses"] > 5


def test_out_of_memory(tmp_path):
    path = tmp_path / "oom.hrm"
    with pytest.raises(RuntimeError, match="memory"), memory.record(path):
        torch.ones(10).add_(1)
        torch.empty(1 << 60, dtype=torch.uint8)
    found = memory.analyse(path)
    assert found["odd"]["refused"] == 1
    assert found["odd"]["refused_bytes"] == 1 << 60
    assert found["run"]["ended"]


def test_other_files(tmp_path):
    letter = tmp_path / "letter"
    letter.write_text("dear reader")
    with pytest.raises(FileExistsError, match="not a memory record"), memory.record(letter):
        pass
    assert letter.read_text() == "dear reader"
    with pytest.raises(Exception, match="no memory record"):
        memory.analyse(letter)
    with pytest.raises(FileNotFoundError):
        memory.analyse(tmp_path / "none")
    path = tmp_path / "twice.hrm"
    for _ in range(2):
        with memory.record(path):
            torch.ones(3).add_(1)
    assert memory.analyse(path)["run"]["events"] > 0


def test_limit(tmp_path):
    """If the file may not grow, training continues, and the report says what is missing."""
    path = tmp_path / "limited.hrm"
    mlp = Mlp()
    with memory.record(path, limit_bytes=600_000) as recording:
        for _ in range(150):
            loss = mlp.step()
        assert recording.counts()[1] > 0
    assert torch.isfinite(loss)
    run = memory.analyse(path)["run"]
    assert run["lost"] > 0 and run["problem"]
    assert os.path.getsize(path) <= 600_000


def test_killed(tmp_path):
    """The events recorded by a killed process are in the file."""
    path = tmp_path / "killed.hrm"
    code = f"""
import os, signal, torch, headrace.memory as memory
with memory.record({str(path)!r}):
    a = torch.ones(1000)
    for _ in range(100):
        a.add_(1)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = forked.run([sys.executable, "-c", code])
    assert done.returncode == -signal.SIGKILL
    run = memory.analyse(path)["run"]
    assert not run["ended"] and run["accesses"] == 101 and run["damage"] is None


def test_training_is_the_same(tmp_path):
    """Recording changes no result."""
    plain, seen = Mlp(), Mlp()
    torch.manual_seed(5)
    for _ in range(4):
        plain.step()
    torch.manual_seed(5)
    with memory.record(tmp_path / "same.hrm"):
        for _ in range(4):
            seen.step()
    for a, b in zip(plain.model.parameters(), seen.model.parameters()):
        assert torch.equal(a, b)


def test_what_comes_from_outside(tmp_path):
    """Batches that no operator allocated are inputs from their first use on, and do not accumulate.
    """
    path = tmp_path / "outside.hrm"
    layer = torch.nn.Linear(1000, 10)
    before = bytes_of_others(path)
    with memory.record(path):
        for _ in range(8):
            x = torch.tensor([[0.5] * 1000] * 16)
            layer(x).sum().backward()
    found = memory.analyse(path)
    inputs = [b for b in found["lifetimes"]["blocks"] if b["bytes"] == 64000]
    assert {b["category"] for b in inputs} == {"input"}
    assert all(b["alloc_ns"] > 0 for b in inputs)
    assert found["devices"][0]["peak_bytes"] - before < 4 * 64000


def test_strange_optimizers(tmp_path):
    """Optimizer state that belongs to no parameter does not stop training."""

    class Counting(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure=None):
            self.state["steps"] = torch.ones(1)
            return super().step(closure)

    layer = torch.nn.Linear(4, 4)
    optimizer = Counting(layer.parameters(), lr=0.1)
    with memory.record(tmp_path / "strange.hrm"):
        layer(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def test_ended_within(tmp_path):
    """A recording may be closed while training continues."""
    mlp = Mlp()
    with memory.record(tmp_path / "early.hrm") as recording:
        mlp.step()
        recording.close()
        mlp.step()
    assert memory.analyse(tmp_path / "early.hrm")["run"]["ended"]
