"""libheadrace-tap.so preloaded into a real PyTorch: reports its CPU allocator's calls exactly.

The reference is PyTorch's own profiler with ``profile_memory=True``: its [memory] events and the
record must be the same sequence of addresses and bytes. HEADRACE_TAP_LEAST is larger than every
size here, so a record has only libc10's allocations.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import textwrap
from itertools import islice

import pytest
from headrace.memory import cuda_allocator, tap_path

pytest.importorskip("torch")

ALLOC, FREE, FAILED = 1, 2, 8
HEADER, EXTENT, EXTENT_HEADER = 4096, 262144, 64


def run(script, tmp_path, *, record=True, **environment):
    """Runs a script with the tap preloaded; returns what it printed as JSON and its record."""
    file = tmp_path / "run.hrm"
    environment = {"LD_PRELOAD": tap_path(), "HEADRACE_TAP_LEAST": str(1 << 62), **environment}
    if record:
        environment["HEADRACE_TAP_RECORD"] = str(file)
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env={**os.environ, **environment},
        cwd=tmp_path, stdout=subprocess.PIPE, text=True, timeout=300, check=True,
    ).stdout
    return json.loads(out), events(file.read_bytes()) if record else None


def events(data):
    """Returns (kind, address, bytes) of a record, in the order of their times:
    docs/memory-format.md."""
    found = []
    for at in range(HEADER, len(data), EXTENT):
        magic, kind, _, _, used = struct.unpack_from("<8sIIQQ", data, at)
        if magic != b"HREXTENT" or kind != 1:
            continue
        body = data[at + EXTENT_HEADER : at + EXTENT_HEADER + used]
        for time, address, size, _, kind, _, device, _ in struct.iter_unpack("<QQQIBBBB", body):
            assert device == 0
            found.append((time, kind, address, size))
    return [event[1:] for event in sorted(found, key=lambda event: event[0])]


def live(story):
    """Returns {address: bytes} at the end; asserts that no two blocks at an address overlap in
    time."""
    blocks = {}
    for kind, address, size in story:
        if kind == ALLOC:
            assert address not in blocks
            blocks[address] = size
        elif kind == FREE:
            assert blocks.pop(address) == size
    return blocks


PROFILED = """
    import json, torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile

    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                          nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 16 * 16, 10))
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        x, y = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        for _ in range(3):
            step()
    profiler.export_chrome_trace("trace.json")
    with open("trace.json") as file:
        trace = json.load(file)["traceEvents"]
    memory = [(e["ts"], e["args"]["Addr"], e["args"]["Bytes"]) for e in trace
              if e.get("name") == "[memory]"]
    memory.sort(key=lambda e: e[0])
    print(json.dumps([e[1:] for e in memory]))
"""


def since(told, start):
    """Returns the events that a profiler sees from here on: without the ends of earlier blocks."""
    known = set()
    for address, size in told[start:]:
        if size > 0:
            known.add(address)
        elif address not in known:
            continue
        else:
            known.remove(address)
        yield address, size


def test_same_as_the_profiler(tmp_path):
    profiled, story = run(PROFILED, tmp_path)
    told = [(address, size if kind == ALLOC else -size) for kind, address, size in story]
    profiled = [tuple(event) for event in profiled]
    assert len(profiled) > 200 and any(size < 0 for _, size in profiled)
    # The profiler's whole sequence, without gaps.
    starts = [i for i, event in enumerate(told) if event == profiled[0]]
    assert any(list(islice(since(told, i), len(profiled))) == profiled for i in starts)
    live(story)


STORAGES = """
    import ctypes, json, torch
    from torch import nn

    tap = ctypes.CDLL(None)
    tap.hr_tap_bytes.restype = ctypes.c_uint64
    tap.hr_tap_bytes.argtypes = [ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint8)]
    device = ctypes.c_uint8(99)

    def known(tensor):
        storage = tensor.untyped_storage()
        size = tap.hr_tap_bytes(storage.data_ptr(), device)
        return storage.data_ptr(), storage.nbytes(), size, device.value

    x = torch.randn(4, 3, 64, 64, requires_grad=True)
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(7))
    model(x).sum().backward()
    resized = torch.empty(3)
    resized.resize_(5000)
    tensors = [x, x.grad, x[1:], torch.ones(()), torch.arange(7), torch.tensor([1.0, 2.0]), resized,
               torch.empty(1000, 1000, dtype=torch.uint8), *model.parameters(),
               *(p.grad for p in model.parameters())]
    print(json.dumps({"sees": tap.hr_tap_sees_host(), "known": [known(t) for t in tensors]}),
          flush=True)
    import os
    os._exit(0)  # with all of them alive
"""


def test_every_storage_is_a_block(tmp_path):
    found, story = run(STORAGES, tmp_path)
    assert found["sees"] == 1
    blocks = live(story)
    assert len(found["known"]) == 16
    for address, size, told, device in found["known"]:
        assert size > 0 and told == size and device == 0
        assert blocks[address] == size


REFUSED = """
    import json, torch
    try:
        torch.empty(1 << 60, dtype=torch.float32)
        raised = ""
    except RuntimeError as error:
        raised = str(error)
    print(json.dumps(raised))
"""


def test_refused(tmp_path):
    raised, story = run(REFUSED, tmp_path)
    assert "you tried to allocate 4611686018427387904 bytes" in raised
    assert [size for kind, _, size in story if kind == FAILED] == [1 << 62]


WORKERS = """
    import ctypes, json, torch
    from torch.utils.data import DataLoader, Dataset

    class Numbers(Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, i):
            return torch.full((100, 100), float(i))

    loader = DataLoader(Numbers(), 8, num_workers=2)
    print(json.dumps([float(batch.sum()) for batch in loader]))
"""


def test_forked_workers(tmp_path):
    sums, story = run(WORKERS, tmp_path)
    assert sum(sums) == sum(range(64)) * 10000
    # Workers' allocations are not reported: of 10,000 floats there would be 64.
    assert sum(size == 40000 for kind, _, size in story if kind == ALLOC) == 0


DLOPENED = """
    import ctypes, json, os
    tap = ctypes.CDLL(os.environ["TAP"])
    print(json.dumps(tap.hr_tap_sees_host()))
"""


def test_only_loaded(tmp_path):
    sees, _ = run(DLOPENED, tmp_path, record=False, LD_PRELOAD="", TAP=tap_path())
    assert sees == 0


def test_path(monkeypatch, tmp_path):
    # The package contains it.
    assert os.path.basename(tap_path()) == "libheadrace-tap.so"
    other = tmp_path / "other.so"
    monkeypatch.setenv("HEADRACE_TAP_LIBRARY", str(other))
    assert tap_path() is None
    other.touch()
    assert tap_path() == str(other)


ALLOCATOR = """
    import ctypes, json, torch
    import headrace.memory

    class Allocator:
        def __init__(self, *arguments):
            self.arguments = arguments

    torch.cuda.memory.CUDAPluggableAllocator = Allocator  # of PyTorch for CPUs it cannot be made
    path, *names = headrace.memory.cuda_allocator().arguments
    functions = [ctypes.CDLL(path)[name] for name in names]
    ctypes.CDLL(None).hr_tap_begin  # recordings find it
    print(json.dumps([path, names]))
"""


def test_cuda_allocator(tmp_path, monkeypatch):
    (path, names), _ = run(ALLOCATOR, tmp_path, record=False, LD_PRELOAD="")
    assert path == tap_path()
    assert names == ["hr_tap_cuda_malloc", "hr_tap_cuda_free"]
    monkeypatch.setenv("HEADRACE_TAP_LIBRARY", str(tmp_path / "missing.so"))
    with pytest.raises(FileNotFoundError, match="HEADRACE_TAP_LIBRARY"):
        cuda_allocator()
