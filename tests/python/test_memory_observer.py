"""The observer below Python and Python's dispatch mode record the same: blocks, and the accesses of
each operator, in order. Without the observer the mode records, and a line says why."""

import os
import stat
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from memory_record import ALLOC, DESCRIBE, FREE, PRESENT, READ, WRITE, Record  # noqa: E402

import headrace.memory as memory  # noqa: E402
from headrace.memory import _observer  # noqa: E402

OBSERVER, MODE = "observer", "Python mode"


@pytest.fixture(scope="module")
def observer():
    path, why = _observer.compiled()
    if path is None:
        pytest.skip(f"no observer here: {why}")
    return path


def events_of(path):
    """Returns events without values that differ from run to run. Blocks are numbered in the order
    of their allocation, or of their first use if they existed before; blocks that end together are
    in no order."""
    record = Record(path)
    numbers, said, living, events, ended = 0, {}, {}, [], []
    for event in record.events:
        key = event.address, event.device
        what = record.operator(event)
        if event.kind == DESCRIBE:
            what = (what, event.bytes & 0xFFFFFFFF, record.names.get(event.bytes >> 32))
        if event.kind == PRESENT:
            living[key] = 0
        elif event.kind == DESCRIBE and living.get(key) == 0:
            said[key] = what
        elif event.kind == FREE:
            number = living.pop(key)
            if number:
                ended.append(number)
        else:
            is_first = event.kind in (READ, WRITE) and living[key] == 0
            if is_first or event.kind == ALLOC:
                living[key] = numbers = numbers + 1
            size = event.bytes if event.kind == ALLOC else None
            if ended:
                events.append(("ended", sorted(ended)))
                ended = []
            events.append((event.kind, event.phase, event.device, living.get(key), size, what,
                           said.get(key) if is_first else None))
    return events, record


def both(tmp_path, monkeypatch, make, **options):
    """Returns the records of make()'s result, run once in each way."""
    found = {}
    for name in (OBSERVER, MODE):
        if name == MODE:
            monkeypatch.setenv(_observer.SETTING, "no")
        torch.manual_seed(0)
        run = make()
        run()  # allocations that are made once and kept
        path = tmp_path / f"{name}.hrm"
        with memory.record(path, **options):
            run()
        found[name] = events_of(path)
        assert found[name][1].facts["operators"] == name
    return found


# ---- the same record ----


def convolutions():
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 7 * 7, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))

    def run():
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    return run


def transformer():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=32)
    model = transformers.BertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    ids, labels = torch.randint(0, 100, (4, 16)), torch.randint(0, 2, (4,))

    def run():
        for _ in range(2):
            model(input_ids=ids, labels=labels).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return run


def recurrent():
    model = torch.nn.LSTM(8, 16, num_layers=2)
    x = torch.randn(5, 4, 8)

    def run():
        output, _ = model(x)
        output.sum().backward()
        model.zero_grad()

    return run


def recomputed():
    from torch.utils.checkpoint import checkpoint

    block = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16))
    x = torch.randn(8, 16, requires_grad=True)

    def run():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            checkpoint(block, x, use_reentrant=False).float().sum().backward()

    return run


def inference():
    model = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)

    def run():
        with torch.inference_mode():
            model(x).reshape(-1).contiguous()
        with torch.no_grad():
            model(x)

    return run


def functional():
    """vmap, grad, jvp: with functorch's modes above."""
    from torch.func import grad, jvp, vmap

    w, x = torch.randn(6, 6), torch.randn(4, 6)

    def run():
        vmap(grad(lambda w, x: (w @ x).tanh().sum()), in_dims=(None, 0))(w, x)
        jvp(torch.sin, (x,), (x,))

    return run


def assorted():
    """Scalars, lists, optional tensors, out=, resized memory, complex views, refusals."""
    x, mask = torch.randn(6, 6), torch.rand(6, 6) > 0.5

    def run():
        torch.stack(list(x.unbind())).split(2)
        x[mask].sum().item()
        x[:, torch.tensor([1, 2])] = 0.5
        torch.linalg.svd(x)
        torch.max(x, 0, out=(torch.empty(0), torch.empty(0, dtype=torch.long)))
        torch.empty(10).resize_(50).fill_(1)
        torch.view_as_complex(torch.randn(4, 2)).conj().mul(2).imag.sum()
        torch._foreach_add_([x, torch.ones(3)], 1.0)
        torch.where(mask, x, 0.0)
        torch.zeros(3, dtype=torch.float8_e4m3fn).to(torch.float32)
        with pytest.raises(RuntimeError):
            torch.mm(x, torch.ones(5))

    return run


def in_modes():
    """Beside other modes: the operators that they pass on are recorded."""
    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
    from torch.utils.flop_counter import FlopCounterMode

    layer, x = torch.nn.Linear(8, 8), torch.randn(4, 8, requires_grad=True)
    saved = [torch.ops.aten.addmm.default]

    def run():
        with FlopCounterMode(display=False):
            layer(x).relu().sum().backward()
        checkpoint(lambda x: layer(x).tanh(), x, use_reentrant=False,
                   context_fn=lambda: create_selective_checkpoint_contexts(saved)).sum().backward()

    return run


def subclasses():
    """Tensors made of others, and tensors without memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.testing._internal.two_tensor import TwoTensor

    x = TwoTensor(torch.randn(7, 7), torch.randn(7, 7))

    def run():
        (x @ x).relu().sum()
        with FakeTensorMode():
            torch.ones(2000).mul(2)
        torch.ones(1000, device="meta").add_(1)
        torch.eye(3).to_sparse().coalesce()

    return run


@pytest.mark.parametrize("make", [
    convolutions, transformer, recurrent, recomputed, inference, functional, assorted, in_modes,
    subclasses,
])  # fmt: skip
def test_both_record_the_same(tmp_path, monkeypatch, observer, make):
    found = both(tmp_path, monkeypatch, make)
    (events, record), (others, other) = found[OBSERVER], found[MODE]
    assert len(events) > 20
    for at, pair in enumerate(zip(events, others)):
        assert pair[0] == pair[1], f"event {at}"
    assert len(events) == len(others)
    assert record.facts.get("note storages") == other.facts.get("note storages")


def test_operators_of_higher_order(tmp_path, observer):
    """Operators that call others, which are recorded; also operators that are made later."""
    from torch._ops import HigherOrderOperator

    class Later(HigherOrderOperator):
        def __call__(self, x):
            return super().__call__(x)

    with memory.record(tmp_path / "higher.hrm"):
        later = Later("headrace_test_later")
        for key in ("AutogradCPU", "CompositeExplicitAutograd"):
            later.py_impl(getattr(torch._C.DispatchKey, key))(lambda x: x.mul(3))
        assert later(torch.ones(2)).tolist() == [3, 3]
        x = torch.cond(torch.tensor(True), lambda x: x + 1, lambda x: x - 1, (torch.ones(3),))
        assert x.tolist() == [2, 2, 2]
    record = Record(tmp_path / "higher.hrm")
    assert record.facts["operators"] == OBSERVER
    assert {"aten.mul.Tensor", "aten.add.Tensor"} <= set(map(record.operator, record.of(WRITE)))


def test_training_is_left_as_it_was(tmp_path, observer):
    """However a recording ends, operators run as before."""
    def is_observed():
        return torch._C._dispatch_tls_is_dispatch_key_included("Fake")

    with memory.record(tmp_path / "ends.hrm"):
        assert is_observed()
        torch.ones(3) + 1
    assert not is_observed()
    with pytest.raises(KeyError), memory.record(tmp_path / "raises.hrm"):
        raise KeyError
    assert not is_observed()
    with torch.inference_mode():  # restores the earlier setting
        recording = memory.Recording(tmp_path / "within.hrm")
        recording.__enter__()
    recording.close()
    torch.ones(3) + 1
    assert not is_observed()
    with memory.record(tmp_path / "forks.hrm"):
        pid = os.fork()
        if not pid:
            torch.ones(3) + 1
            os._exit(is_observed())
        assert os.waitpid(pid, 0)[1] == 0


def test_parameters_that_a_backward_pass_updates(tmp_path, observer):
    """Operators in a backward pass's own threads, and in hooks, are recorded."""
    layer = torch.nn.Linear(4, 4)

    def update(parameter):
        parameter.data.add_(parameter.grad, alpha=-0.1)

    for parameter in layer.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    with memory.record(tmp_path / "hooks.hrm"):
        layer(torch.ones(2, 4)).sum().backward()
    record = Record(tmp_path / "hooks.hrm")
    assert record.facts["operators"] == OBSERVER
    written = [record.operator(e) for e in record.of(WRITE, address=layer.weight.data_ptr())]
    assert written == ["aten.add_.Tensor"]


# ---- where there is none ----


@pytest.fixture
def unknown(monkeypatch, tmp_path):
    """Makes this process forget its observer, and keep none."""
    monkeypatch.setattr(_observer, "_known", None)
    monkeypatch.setenv(_observer.SETTING, str(tmp_path / "observer"))
    return tmp_path / "observer"


def records_in_python(tmp_path, capfd):
    """Records with the mode; returns its line on stderr, and its note."""
    with memory.record(tmp_path / "python.hrm"):
        torch.ones(3) + 1
    record = Record(tmp_path / "python.hrm")
    assert record.facts["operators"] == MODE
    assert "aten.add.Tensor" in map(record.operator, record.of(WRITE))
    assert "dispatch mode in Python" in record.facts["note operators"]
    return capfd.readouterr().err, record.facts["note operators"]


def test_without_a_compiler(tmp_path, monkeypatch, unknown, capfd):
    monkeypatch.setenv("CXX", "no-such-compiler")
    said, note = records_in_python(tmp_path, capfd)
    assert said.count("\n") == 1 and "no-such-compiler" in said and "no-such-compiler" in note
    said, _ = records_in_python(tmp_path, capfd)
    assert not said  # once in a process


def test_a_compiler_that_fails(tmp_path, monkeypatch, unknown, capfd):
    """Its output is kept, and the compilation is not repeated."""
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\necho tried >> "$0.log"; echo "no such header"; exit 1\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    said, note = records_in_python(tmp_path, capfd)
    kept, = unknown.glob("*.failed")
    assert str(kept) in note and "no such header" in kept.read_text()
    monkeypatch.setattr(_observer, "_known", None)
    said, note = records_in_python(tmp_path, capfd)
    assert said.count("\n") == 1 and str(kept) in note
    assert (tmp_path / "c++.log").read_text() == "tried\n"
    assert not list(unknown.glob("*.so"))


def test_only_ones_own_is_loaded(tmp_path, monkeypatch, unknown, capfd):
    """A folder that others may write to is not used; a new one is accessible to its owner only."""
    monkeypatch.setenv("CXX", "true")  # a compiler is looked for first
    unknown.mkdir()
    unknown.chmod(0o777)
    _, note = records_in_python(tmp_path, capfd)
    assert "mode 777" in note
    unknown.rmdir()
    _observer._folder()
    assert stat.S_IMODE(unknown.stat().st_mode) == 0o700


def test_a_library_that_is_none(tmp_path, monkeypatch, unknown, capfd):
    """A file that cannot be loaded, or belongs to another torch, is not an observer."""
    other = tmp_path / "other.so"
    other.write_bytes(b"nothing")
    monkeypatch.setattr(_observer, "_known", (str(other), None))
    _, note = records_in_python(tmp_path, capfd)
    assert "other.so" in note


def test_it_is_compiled_once(tmp_path, observer):
    """Processes that start at the same time share one compilation."""
    program = (
        "import headrace.memory._observer as o, sys\n"
        "o._compile = lambda command, path, failed: (open(path, 'wb').close(), path.chmod(0o700), "
        "print('compiled', flush=True))\n"
        "print(o.compiled()[0])\n")
    environment = {**os.environ, _observer.SETTING: str(tmp_path / "shared")}
    running = [subprocess.Popen([sys.executable, "-c", program], env=environment, text=True,
                                stdout=subprocess.PIPE) for _ in range(2)]
    lines = [line for process in running for line in process.communicate()[0].splitlines()]
    assert lines.count("compiled") == 1
    assert len({line for line in lines if line != "compiled"}) == 1
