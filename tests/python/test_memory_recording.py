"""Recording, event by event: blocks whose memory moves or is shared, parts of the model, lines of
code, phases, threads and processes; and that training gives the same results."""

import os
import signal
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")

from memory_record import (  # noqa: E402
    ALLOC,
    BACKWARD,
    FAILED,
    FORWARD,
    FREE,
    MARK,
    PRESENT,
    READ,
    WRITE,
    Record,
)

import headrace.memory as memory  # noqa: E402
from headrace.memory import _facts  # noqa: E402
from headrace.memory._tap import tap_path  # noqa: E402

FLOAT, LONG = 4, 8
GRADIENT, OPTIMIZER_STATE = 2, 3


def recorded(path, run, **options):
    """Records a function; returns the record."""
    with memory.record(path, **options) as recording:
        run(recording)
    return Record(path)


# ---- the memory below storages ----


def test_memory_that_moves(tmp_path):
    """A storage that gets other memory is another block from then on."""
    kept = []

    def run(recording):
        a = torch.empty(1000)
        a.resize_(3000)
        b = torch.empty(0)
        torch.add(torch.ones(500), 1, out=b)
        c = torch.ones(700)
        c.untyped_storage().resize_(0)
        c.untyped_storage().resize_(700 * FLOAT)
        c.fill_(1)
        kept.extend([a, b, c])

    record = recorded(tmp_path / "moves.hrm", run)
    assert record.sizes(ALLOC, device=0) == [4000, 12000, 2000, 2000, 2800, 2800]
    assert record.sizes(FREE, device=0) == [4000, 2000, 2800]  # the torch.ones(500) between
    last = record.blocks()[-1]
    assert last["bytes"] == 2800 and last["free"] is None
    assert [record.operator(e) for e in last["accesses"]] == ["aten.fill_.Scalar"]


def test_memory_that_is_shared(tmp_path):
    """Storages over the same memory are one block, until the last of them is freed."""
    numpy = pytest.importorskip("numpy")
    array = numpy.zeros(5000, dtype=numpy.float32)

    def run(recording):
        one, two = torch.from_numpy(array), torch.from_numpy(array)
        one.add_(1)
        two.add_(1)
        del one
        two.add_(1)
        recording.mark(recording.name("still"), 0)
        del two
        recording.mark(recording.name("gone"), 0)

    record = recorded(tmp_path / "shared.hrm", run)
    blocks = [b for b in record.blocks() if b["bytes"] == 20000]
    assert len(blocks) == 1
    operators = [record.operator(e) for e in blocks[0]["accesses"]]
    assert operators.count("aten.add_.Tensor") == 3
    still, gone = (next(e for e in record.of(MARK) if record.operator(e) == name)
                   for name in ("still", "gone"))
    assert still.time_ns < blocks[0]["free"].time_ns < gone.time_ns


def test_without_memory(tmp_path):
    """Tensors without memory (meta, fake, empty) are no blocks; a note says that sparse ones are
    not recorded."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    def run(recording):
        torch.ones(1000, device="meta").add_(1)
        with FakeTensorMode():
            torch.ones(2000).mul(2)
        torch.empty(0).add_(1)
        torch.eye(3).to_sparse().coalesce()

    fake = FakeTensorMode()
    record = recorded(tmp_path / "none.hrm", run)
    assert not {4000, 8000, 0} & set(record.sizes(ALLOC))
    assert "without a storage" in record.facts["note storages"]
    with fake:
        again = recorded(tmp_path / "fake.hrm", lambda _: torch.ones(3000) + 1)
    assert 12000 not in again.sizes(ALLOC)


def test_what_was_there(tmp_path):
    """Tensors from before are recorded at the start, used or not, and their gradients with them."""
    layer = torch.nn.Linear(123, 7)
    layer(torch.ones(2, 123)).sum().backward()
    unused = torch.ones(4567)
    record = recorded(tmp_path / "present.hrm", lambda _: torch.ones(3))
    present = record.sizes(PRESENT)
    assert present.count(123 * 7 * FLOAT) == 2 and 4567 * FLOAT in present
    said = {b["category"] for b in record.blocks() if b["bytes"] == 123 * 7 * FLOAT}
    assert said == {1, GRADIENT}
    assert not any(b["accesses"] for b in record.blocks() if b["bytes"] == 4567 * FLOAT)
    del unused


def test_running_statistics(tmp_path):
    """Batch norm writes its running mean and variance in training, and otherwise reads them."""
    norm = torch.nn.BatchNorm2d(5).train()
    x = torch.randn(4, 5, 3, 3)

    def run(recording):
        norm(x)
        norm.eval()
        norm(x)

    record = recorded(tmp_path / "norm.hrm", run)
    address = norm.running_mean.untyped_storage().data_ptr()
    kinds = [e.kind for e in record.of(READ, WRITE, address=address)]
    assert kinds == [WRITE, READ]


# ---- parts of the model ----


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = torch.nn.Linear(width, width)

    def forward(self, x):
        if x.shape[1] != self.inner.in_features:
            raise ValueError("width")
        return torch.relu(self.inner(x)) + x


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(Block(31), Block(31))
        self.head = torch.nn.Linear(31, 3)

    def forward(self, x):
        return self.head(self.layers(x)) * 2


def test_parts(tmp_path):
    """Blocks belong to the module in whose forward they were made; parameters, their gradients and
    the optimizer's state to the module that has them."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def run(recording):
        for _ in range(2):
            x = torch.randn(8, 31)
            with pytest.raises(ValueError, match="width"):
                net.layers[0](x[:, :5])  # an exception leaves the names unchanged
            loss = net(x).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    record = recorded(tmp_path / "parts.hrm", run)
    made = {}
    for block in record.blocks():
        if block["alloc"].kind == ALLOC and block["alloc"].phase == FORWARD:
            made.setdefault(block["part"], []).append(block["bytes"])
    width, out = 8 * 31 * FLOAT, 8 * 3 * FLOAT
    # Relu and the sum within a block are its own, the linear layer's output is the layer's.
    for i in (0, 1):
        assert made[f"layers.{i}"] == [width] * 4
        assert made[f"layers.{i}.inner"] == [width] * 2
    assert made["head"] == [out] * 2 and made["Net"] == [out] * 2
    whose = {}
    for block in record.blocks():
        if block["part"] == "layers.1.inner" and block["category"]:
            whose.setdefault(block["category"], set()).add(block["bytes"])
    weights = {31 * 31 * FLOAT, 31 * FLOAT}
    assert whose == {1: weights, GRADIENT: weights, OPTIMIZER_STATE: weights}
    assert record.facts["batch size"] == "8"


def test_two_models(tmp_path):
    """The names of two models distinguish them; a loss is not a model."""
    one, two = Net(), Block(31)
    loss = torch.nn.MSELoss()

    def run(recording):
        for _ in range(2):
            loss(one(torch.ones(2, 31)), torch.ones(2, 3))
            two(torch.ones(2, 31))

    record = recorded(tmp_path / "two.hrm", run, batch_size=5)
    parts = {b["part"] for b in record.blocks()}
    assert {"Net.head", "Net.layers.1.inner", "Block.inner", "Block", "MSELoss"} <= parts
    assert record.facts["batch size"] == "5"


def test_parts_of_distributed_parameters(tmp_path):
    """The parts of a parameter (fully_shard's distributed tensors) belong to the parameter."""
    dist = pytest.importorskip("torch.distributed")
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not dist.is_gloo_available() or not hasattr(fsdp, "fully_shard"):
        pytest.skip("this PyTorch has no gloo, or no fully_shard")
    from torch.distributed.device_mesh import DeviceMesh

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        net = Block(29)
        fsdp.fully_shard(net, mesh=DeviceMesh("cpu", [0]))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def run(recording):
            for _ in range(2):
                net(torch.ones(3, 29)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()

        record = recorded(tmp_path / "sharded.hrm", run)
    finally:
        dist.destroy_process_group()
    said = {(b["part"], b["category"], b["bytes"]) for b in record.blocks() if b["category"]}
    weight = 29 * 29 * FLOAT
    assert {("inner", 1, weight), ("inner", OPTIMIZER_STATE, weight)} <= said
    # The gradients of weight and bias share a block.
    assert ("inner", GRADIENT, weight + 29 * FLOAT) in said


# ---- lines of code ----


def make_sum(x, layer):
    return layer(x).sum()


def test_stacks(tmp_path):
    """Each access, and each allocation, has the lines that called its operator; in a backward pass,
    those of the forward operator."""
    layer = torch.nn.Linear(41, 43)
    x = torch.randn(2, 41, requires_grad=True)

    def run(recording):
        total = make_sum(x, layer)
        total.backward()
        torch.ones(77)

    record = recorded(tmp_path / "stacks.hrm", run, stacks=True)
    here = make_sum.__code__

    def lines(event):
        return [(os.path.basename(file), function, line)
                for file, function, line in record.stack(event)]

    forward = [e for e in record.of(READ) if record.operator(e) == "aten.addmm.default"]
    assert forward and lines(forward[0])[0] == (
        "test_memory_recording.py", "make_sum", here.co_firstlineno + 1)
    assert lines(forward[0])[1][1].endswith("run")
    assert not any("torch" in file for file, _, _ in record.stack(forward[0]))
    backward = [e for e in record.of(READ, phase=BACKWARD)
                if record.operator(e) == "aten.mm.default"]
    assert backward and {lines(e)[0] for e in backward} == {lines(forward[0])[0]}
    made = [e for e in record.of(ALLOC) if e.bytes == 77 * FLOAT]
    assert lines(made[0])[0][1].endswith("run")
    # The gradient of the weights was allocated for the line that used them.
    gradient = [e for e in record.of(ALLOC, phase=BACKWARD) if e.bytes == 41 * 43 * FLOAT]
    assert lines(gradient[0])[0][1] == "make_sum"


def test_no_stacks(tmp_path):
    record = recorded(tmp_path / "plain.hrm", lambda _: torch.ones(3).add_(1))
    assert not any(e.bytes & 0xFFFFFFFF for e in record.of(READ, WRITE))


# ---- the recording ----


def test_probe(tmp_path):
    """The recording's time per operator is measured: microseconds, not zero."""
    record = recorded(tmp_path / "probe.hrm", lambda _: None)
    assert 200 < float(record.facts["probe ns per call"]) < 200_000
    assert int(record.facts["capacity bytes"]) > 1 << 28
    assert record.facts["allocations"] in ("storages", "allocator")
    assert "note compiled" not in record.facts and "note threads" not in record.facts


def test_probe_without_room(tmp_path, monkeypatch):
    """If the time cannot be measured, the recording runs nevertheless, and no other device is used.
    """
    def refuse(*_, **__):
        raise OSError(28, "no space left on device")

    with torch.device("meta"):
        record = recorded(tmp_path / "meta.hrm", lambda _: torch.ones(3, device="cpu").add_(1))
    assert float(record.facts["probe ns per call"]) > 200
    monkeypatch.setattr(_facts.tempfile, "mkdtemp", refuse)
    record = recorded(tmp_path / "full.hrm", lambda _: torch.ones(3).add_(1))
    assert "probe ns per call" not in record.facts and record.of(WRITE)


def test_one_at_a_time(tmp_path):
    with memory.record(tmp_path / "one.hrm"):
        with pytest.raises(RuntimeError, match="already recording memory"), \
                memory.record(tmp_path / "two.hrm"):
            pass
        torch.ones(3).add_(1)
    assert not (tmp_path / "two.hrm").exists()
    recorded(tmp_path / "two.hrm", lambda _: torch.ones(3))


def test_iterations(tmp_path):
    """A recording ends after so many steps; the mode is removed and training continues."""
    layer = torch.nn.Linear(9, 9)
    optimizer = torch.optim.Adam(layer.parameters())
    backward = torch.autograd.backward
    calls = []
    with memory.record(tmp_path / "few.hrm", iterations=3) as recording:
        for _ in range(6):
            layer(torch.ones(2, 9)).sum().backward()
            optimizer.step()
            calls.append(recording.calls)
        assert not recording.is_open
        assert torch.autograd.backward is backward
        assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    assert calls[1] < calls[2] == calls[5]
    assert [e.bytes for e in Record(tmp_path / "few.hrm").of(MARK)] == [0, 1, 2, 3]
    assert memory.analyse(tmp_path / "few.hrm")["run"]["ended"]
    layer(torch.ones(2, 9)).sum().backward()
    optimizer.step()


def test_nothing_stays_behind(tmp_path):
    """However a recording ended, it leaves PyTorch as it was."""
    from torch.nn.modules import module as modules
    from torch.optim import optimizer as optimizers

    def state():
        hooks = (modules._global_forward_pre_hooks, modules._global_forward_hooks,
                 optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks)
        return [len(h) for h in hooks] + [
            torch.autograd.backward, torch.autograd.grad, torch.compile,
            torch.UntypedStorage.__dict__.get("resize_"),
            torch.UntypedStorage.__dict__.get("share_memory_"),
            torch.utils._python_dispatch._get_current_dispatch_mode()]

    class Failing(torch.optim.SGD):
        def step(self, closure=None):
            raise ArithmeticError

    layer = torch.nn.Linear(3, 3)
    before = state()
    with pytest.raises(ArithmeticError), memory.record(tmp_path / "failing.hrm"):
        Failing(layer.parameters(), lr=0.1).step()
    assert state() == before
    recorded(tmp_path / "one.hrm", lambda _: torch.optim.SGD(layer.parameters(), lr=0.1).step(),
             iterations=1)
    assert state() == before


def test_out_of_memory_in_training(tmp_path):
    """The record of a run that needs too much memory is complete, and has the size of the failed
    allocation."""
    def run(recording):
        kept = [torch.ones(100_000)]
        with pytest.raises(RuntimeError, match="allocate memory"):
            kept.append(torch.ones(1 << 50, dtype=torch.uint8) + 1)
        kept.append(kept[0] + 1)

    record = recorded(tmp_path / "oom.hrm", run)
    assert record.sizes(FAILED) == [1 << 50]
    assert record.operator(record.of(READ)[-1]) == "aten.add.Tensor"


def test_bytes_asked():
    asked = _facts.bytes_asked
    assert asked("you tried to allocate 9007199254740993 bytes. Error code 12") == 9007199254740993
    assert asked("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has") == 20 << 30
    assert asked("Tried to allocate 1,024 bytes.") == 1024
    assert asked("nothing of the kind") == 0


def test_default_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with memory.record():
        torch.ones(3)
    assert (tmp_path / "headrace-memory.hrm").exists()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with memory.record():
        torch.ones(3)
    record = Record(tmp_path / "headrace-memory.rank1.hrm")
    assert record.facts["rank"] == "1"


def test_recorded_by_another(tmp_path):
    """A file into which a living process records is not replaced."""
    path = tmp_path / "busy.hrm"
    code = f"""
import sys, torch, headrace.memory as memory
with memory.record({str(path)!r}):
    print("ready", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"ready\n"
        with pytest.raises(FileExistsError, match=f"process {other.pid}"), memory.record(path):
            pass
        other.stdin.close()
        assert other.wait(600) == 0
    assert Record(path).facts["torch"]
    recorded(path, lambda _: torch.ones(3))  # no process uses it now


# ---- signals, threads, processes ----


@pytest.mark.parametrize("raised", [KeyboardInterrupt, TimeoutError])
def test_signals_reach_the_training(tmp_path, raised):
    """An exception of a signal handler that runs in our own Python code reaches the training."""
    def handler(*_):
        raise raised

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with memory.record(tmp_path / "signal.hrm") as recording:
            describe = recording._describe
            a = torch.ones(4)

            def interrupted(func):
                signal.raise_signal(signal.SIGUSR1)
                return describe(func)

            recording.__dict__["_describe"] = interrupted
            with pytest.raises(raised):
                for _ in range(3):
                    _hooked(recording, interrupted, a)
            a.mul_(2)
            assert a.sum() == 8
    finally:
        signal.signal(signal.SIGUSR1, before)


def _hooked(recording, interrupted, a):
    """Calls a new operator while a signal arrives as its schema is read."""
    from headrace.memory import _mode

    pack = _mode.pack

    def slow(func, name):
        signal.raise_signal(signal.SIGUSR1)
        return pack(func, name)

    _mode.pack = slow
    try:
        torch.erfinv(a)
    finally:
        _mode.pack = pack


def test_other_threads(tmp_path):
    """Operators of other threads are not recorded, and the record says that there were threads."""
    def work():
        for _ in range(100):
            torch.ones(3333).add_(1)

    def run(recording):
        worker = threading.Thread(target=work, name="augmenting")
        worker.start()
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(3))], lr=0.1)
        while worker.is_alive():
            optimizer.step()
        worker.join()

    def run_until_seen(recording):
        halt = threading.Event()
        worker = threading.Thread(target=lambda: (work(), halt.wait(600)), name="augmenting")
        worker.start()
        torch.optim.SGD([torch.nn.Parameter(torch.ones(3))], lr=0.1).step()
        halt.set()
        worker.join()

    run_once = recorded(tmp_path / "threads.hrm", run)
    assert 13332 not in run_once.sizes(ALLOC)
    record = recorded(tmp_path / "seen.hrm", run_until_seen)
    assert "augmenting" in record.facts["note threads"]


def test_in_a_thread(tmp_path):
    """The recorded thread need not be the main one."""
    path = tmp_path / "inside.hrm"
    worker = threading.Thread(
        target=recorded, args=(path, lambda _: torch.ones(555).add_(1)), name="training")
    worker.start()
    while worker.is_alive():
        torch.ones(444).add_(1)
    worker.join()
    record = Record(path)
    assert 555 * FLOAT in record.sizes(ALLOC) and 444 * FLOAT not in record.sizes(ALLOC)
    assert "training" not in record.facts.get("note threads", "")


def test_forked_children(tmp_path):
    """Children record nothing, do not change the file, and run without the mode."""
    path = tmp_path / "fork.hrm"
    with memory.record(path) as recording:
        torch.ones(10).add_(1)
        child = os.fork()
        if not child:
            code = 1
            try:
                free = torch.utils._python_dispatch._get_current_dispatch_mode() is None
                torch.ones(7777).add_(1)
                code = 0 if free and not recording.is_open else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        torch.ones(20).add_(1)
    record = Record(path)
    assert 7777 * FLOAT not in record.sizes(ALLOC) and 20 * FLOAT in record.sizes(ALLOC)
    assert "1 processes were forked" in record.facts["note processes"]
    run = memory.analyse(path)["run"]
    assert run["ended"] and run["damage"] is None and run["lost"] == 0


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        return torch.full((50,), float(i)).add_(1), i % 3


def train(folder, monitored, steps):
    """Returns the losses of a training run, and its parameters."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(50, 20), torch.nn.Dropout(), torch.nn.Tanh(),
                                torch.nn.Linear(20, 3))
    losses = []

    def run(recording=None):
        steps(model, losses)

    if monitored:
        recorded(folder / "train.hrm", run)
    else:
        run()
    return losses + [p.detach().clone() for p in model.parameters()]


def with_loader(model, losses):
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2,
                                         multiprocessing_context="fork")
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())


def batches():
    for i in range(4):
        yield torch.randn(6, 50), torch.randint(0, 3, (6,))


def with_accumulation(model, losses):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for i, (x, y) in enumerate(batches()):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        (loss / 2).backward()
        if i % 2:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())


def with_autocast(model, losses):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())


def with_closures(model, losses):
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    model.eval()
    for x, y in batches():
        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        losses.append(optimizer.step(closure).detach())


def with_checkpoints(model, losses):
    from torch.utils.checkpoint import checkpoint

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, (x, y) in enumerate(batches()):
        x.requires_grad_()
        out = checkpoint(model, x, use_reentrant=bool(i % 2))
        loss = torch.nn.functional.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())


def with_functorch(model, losses):
    from torch.func import functional_call, grad, vmap

    model.eval()
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss_of(parameters, x, y):
        return torch.nn.functional.cross_entropy(functional_call(model, parameters, x), y)

    for x, y in batches():
        each = vmap(grad(loss_of), in_dims=(None, 0, 0))(parameters, x, y)
        losses.extend(each[name].clone() for name in sorted(each))


def with_second_order(model, losses):
    model.eval()
    for x, y in batches():
        x.requires_grad_()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        first, = torch.autograd.grad(loss, x, create_graph=True)
        first.pow(2).sum().backward()
        losses.append(first.detach())


@pytest.mark.parametrize("steps", [
    with_loader, with_accumulation, with_autocast, with_closures, with_checkpoints,
    with_functorch, with_second_order,
], ids=lambda steps: steps.__name__)
def test_training_is_the_same(tmp_path, steps):
    """Bit for bit, without exceptions."""
    plain, seen = train(tmp_path, False, steps), train(tmp_path, True, steps)
    assert len(plain) == len(seen) > 4
    for a, b in zip(plain, seen):
        assert torch.equal(a, b)
    found = memory.analyse(tmp_path / "train.hrm")
    assert not found["odd"]["frees"] and not found["odd"]["allocations"]
    assert found["run"]["accesses"] > 50


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_compiled(tmp_path):
    """A compiled model runs eagerly with the same results, and the record says so. Afterwards
    compiled code is used again, also for models compiled meanwhile."""
    runs = []

    def backend(graph, inputs):
        def run(*args):
            runs.append(graph)
            return graph.forward(*args)

        return run

    torch.manual_seed(0)
    net = Net()
    compile_before = torch.compile
    compiled, late = torch.compile(net, backend=backend), []
    x = torch.randn(4, 31)
    expected = compiled(x)
    count = len(runs)
    assert count
    results = []

    def run(recording):
        results.append(compiled(x))
        late.append(torch.compile(net.layers, backend=backend))
        results.append(late[0](x))

    record = recorded(tmp_path / "compiled.hrm", run)
    assert len(runs) == count
    assert torch.equal(results[0], expected)
    assert "torch.compile" in record.facts["note compiled"]
    assert {"aten.addmm.default", "aten.relu.default"} <= {
        record.operator(e) for e in record.of(WRITE)}
    assert {"head", "layers.1.inner"} <= {b["part"] for b in record.blocks()}
    assert torch.compile is compile_before
    assert torch.equal(compiled(x), expected) and len(runs) == 2 * count
    assert torch.equal(late[0](x), results[1]) and len(runs) > 2 * count


# ---- the allocator itself ----


TAPPED = """
import json, os, sys, torch
from torch.profiler import ProfilerActivity, profile
import headrace.memory as memory

def train():
    torch.manual_seed(0)
    conv, line = torch.nn.Conv2d(3, 16, 5), torch.nn.Linear(16 * 28 * 28, 10)
    optimizer = torch.optim.Adam([*conv.parameters(), *line.parameters()])
    for _ in range(3):
        x, y = torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
        loss = torch.nn.functional.cross_entropy(line(torch.relu(conv(x)).flatten(1)), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

train()  # what is made once is there
with memory.record(sys.argv[1], stacks=True):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        train()
    try:
        torch.empty(1 << 55, dtype=torch.uint8)
    except RuntimeError:
        pass
profiler.export_chrome_trace(sys.argv[1] + ".json")
"""


def test_peak_is_the_profilers(tmp_path):
    """With the tap preloaded, the peak equals that of the profiler's [memory] events to the byte;
    memory that belongs to no operator is included, with the lines that requested it."""
    import json

    tap = tap_path()
    assert tap, "libheadrace-tap.so lies beside the extension"
    path = tmp_path / "tapped.hrm"
    subprocess.run([sys.executable, "-c", TAPPED, str(path)], check=True, timeout=600,
                   env={**os.environ, "LD_PRELOAD": tap})
    with open(f"{path}.json", encoding="utf-8") as file:
        events = [e["args"] for e in json.load(file)["traceEvents"] if e["name"] == "[memory]"]
    record = Record(path)
    assert record.facts["allocations"] == "allocator"
    live = peak = base = 0
    sizes = {}
    for event in record.events:
        if event.device or event.kind not in (ALLOC, FREE, PRESENT):
            continue
        if event.kind == FREE:
            live -= sizes.pop(event.address)
        else:
            assert event.address not in sizes
            sizes[event.address] = event.bytes
            live += event.bytes
            base += event.bytes if event.kind == PRESENT else 0
        peak = max(peak, live)
    theirs = [e["Bytes"] for e in events]
    assert peak - base == max(e["Total Allocated"] for e in events) > 100_000
    assert sorted(record.sizes(ALLOC, device=0)) == sorted(b for b in theirs if b > 0)
    device = next(d for d in memory.analyse(path)["devices"] if d["device"] == "cpu")
    assert device["peak_bytes"] == peak
    hidden = [b for b in record.blocks() if b["alloc"].kind == ALLOC and not b["accesses"]
              and b["bytes"] > 1000 and not b["alloc"].device]
    assert hidden and any(record.stack(b["alloc"]) for b in hidden)
    assert record.sizes(FAILED) == [1 << 55]
    found = memory.analyse(path)
    assert not found["odd"]["frees"] and not found["odd"]["allocations"]


# ---- trainings without an optimizer of torch.optim ----


def test_updates_of_its_own(tmp_path):
    """Parameters that the training updates itself show the iterations, and their limit works."""
    model = torch.nn.Linear(40, 30)
    done = []

    def run(recording):
        for number in range(12):
            for _ in range(3):  # accumulated
                model(torch.ones(5, 40)).sum().backward()
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-0.1)
            model.zero_grad()
            done.append(recording.is_open)

    record = recorded(tmp_path / "own.hrm", run, iterations=4)
    assert done == [True] * 4 + [False] * 8
    assert len(record.of(MARK)) == 5
    steps = [e for e in record.of(WRITE) if record.operator(e) == "aten.add_.Tensor"
             and e.address == model.weight.data_ptr()]
    assert len(steps) == 4 and {e.phase for e in steps} == {3}
    found = memory.analyse(tmp_path / "own.hrm")
    assert found["pattern"]["by_marks"] and found["pattern"]["iterations"] == 4
    assert "own updates" in found["run"]["facts"]["marks"]
    gradients = [b for b in record.blocks() if b["bytes"] == 40 * 30 * FLOAT and b["free"]]
    assert gradients


@pytest.mark.parametrize("backward", [True, False])
def test_without_iterations(tmp_path, monkeypatch, backward):
    """A recording of some iterations ends even if none is detected, and says so."""
    from headrace.memory import _mode

    monkeypatch.setattr(_mode, "OPERATORS_MOST", 20)
    model = torch.nn.Linear(4, 4)
    passes = []

    def run(recording):
        for number in range(100):
            result = model(torch.ones(2, 4)).sum()
            if backward:
                result.backward()
            passes.append(recording.is_open)

    record = recorded(tmp_path / "none.hrm", run, iterations=2)
    assert passes[0] and not passes[-1]
    assert passes.count(True) <= 2 * _mode.BACKWARDS_MOST
    assert "no optimizer of torch.optim stepped" in record.facts["note end of recording"]


# ---- the batch size ----


def batch_of(path, run, **options):
    facts = recorded(path, run, **options).facts
    return facts.get("batch size"), facts.get("batch size from", "")


def test_batch_size(tmp_path):
    """Taken from modules for sequences and from loaders, otherwise assumed."""
    lstm = torch.nn.LSTM(8, 16)
    first = torch.nn.LSTM(8, 16, batch_first=True)
    linear = torch.nn.Linear(8, 2)
    x = torch.randn(35, 20, 8)

    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.TransformerEncoderLayer(8, 2, 16)

        def forward(self, x):
            return self.inner(x)

    path = tmp_path / "batch.hrm"
    assert batch_of(path, lambda _: lstm(x))[0] == "20"
    assert batch_of(path, lambda _: first(x))[0] == "35"
    assert batch_of(path, lambda _: Tagger().train()(x))[0] == "20"
    size, how = batch_of(path, lambda _: linear(x))
    assert size == "35" and "assumed" in how
    loader = torch.utils.data.DataLoader(range(100), batch_size=20)
    assert batch_of(path, lambda _: linear(x)) == ("20", "of the loader")
    del loader
    packed = torch.nn.utils.rnn.pack_sequence([x[:3, 0], x[:2, 0]])
    assert batch_of(path, lambda _: lstm(packed))[0] == "2"
    assert batch_of(path, lambda _: linear(x), batch_size=7) == ("7", "")
