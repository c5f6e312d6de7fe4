"""A cache's file is truncated while it is in use: the process continues, and samples stay right."""

import textwrap

import pytest
from conftest import run_forked

# Truncates the only segment repeatedly, and leaves it short or extends it again.
TRUNCATE = """
import faulthandler, logging, os, random, sys, tempfile, threading, time
from pathlib import Path

folder = sys.argv[1]
place = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="headrace-test-")
os.environ["HEADRACE_SHM"] = place.name
lines = []
handler = logging.Handler()
handler.emit = lambda record: lines.append(record.getMessage())
logging.getLogger("headrace").addHandler(handler)

def segment():
    (path,) = [p for p in Path(place.name).rglob("test.*") if p.is_file()]
    return path

def truncate(path, round):
    size = path.stat().st_size
    length = [0, 5000, size // 3, size // 2][round % 4]
    os.truncate(path, length)
    if round // 4 % 2:
        os.truncate(path, size)

def later(seconds, round):
    thread = threading.Timer(seconds, truncate, (segment(), round))
    thread.start()
    return thread

def cut_lines():
    count = sum("was cut short" in line for line in lines)
    lines.clear()
    return count

def truncate_while_reading(open_reader, check, pause_s):
    # `check` reads all there is, again and again; meanwhile the file is truncated.
    for round in range(8):
        with open_reader(round) as reader:
            check(reader)
            lines.clear()
            timer = later(pause_s * (round % 5), round)
            while timer.is_alive():
                check(reader)
            timer.join()
            check(reader)
        assert cut_lines() == 1, round
        segment().unlink()
    print("right")
"""

LOADER = """
import torch
import headrace
from headrace import transforms as T
from headrace.torch import DataLoader

data = headrace.ImageFolder(folder, T.Compose([T.Resize(96), T.CenterCrop(96)]))
expected = [batch.clone() for batch, _ in DataLoader(data, 8, num_workers=2)]

def open_loader(round):
    form = ["encoded", "coefficients", "planes", "indexed"][round % 4]
    return DataLoader(data, 8, num_workers=2, cache=f"shm:test?size=64MiB&form={form}")

def check(loader):
    for (batch, _), right in zip(loader, expected, strict=True):
        assert torch.equal(batch, right)

truncate_while_reading(open_loader, check, 0.003)
"""

VALUES = """
import torch
from headrace import CachedDataset

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, i):
        return torch.full((50000,), i + 1, dtype=torch.int32), i

def open_cached(round):
    return CachedDataset(Numbers(), "shm:test?size=64MiB", identity="numbers")

def check(cached):
    for i in range(40):
        tensor, number = cached[i]
        assert number == i and (tensor == i + 1).all()

truncate_while_reading(open_cached, check, 0.002)
"""

# Its bytes are in use when the file is truncated.
IN_HAND = """
from headrace import _core

for round in range(8):
    cache = _core.Cache("shm:test?size=64MiB", "numbers", items=10)
    assert cache.get(b"key") is None and cache.put(b"key", [b"x" * 1000000])
    value = cache.get(b"key")
    assert value.is_whole() and bytes(value) == b"x" * 1000000
    truncate(segment(), round)
    assert set(bytes(value)) <= set(b"x\\0") and not value.is_whole()
    assert cut_lines() == 1
    del value
    cache.close()
    segment().unlink()
print("right")
"""

# The same in a worker, where torch has installed a handler of its own.
WORKER = """
import torch
from headrace import _core

class Truncated(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, i):
        cache = _core.Cache("shm:test?size=64MiB", "numbers", items=10)
        cache.get(b"key") or cache.put(b"key", [b"x" * 1000000])
        value = cache.get(b"key")
        assert value.is_whole()
        truncate(segment(), 4 * i)
        assert set(bytes(value)) == {0} and not value.is_whole()
        del value
        cache.close()
        segment().unlink()
        return i

cache = _core.Cache("shm:test?size=64MiB", "numbers", items=10)
cache.close()
loader = torch.utils.data.DataLoader(Truncated(), num_workers=1, multiprocessing_context="fork")
assert torch.cat(list(loader)).tolist() == [0, 1]
print("right")
"""

# The program's own mapping of a file that is truncated.
ELSEWHERE = """
import mmap
from headrace import _core

cache = _core.Cache("shm:test?size=64MiB", "numbers", items=10)
file = tempfile.TemporaryFile()
file.write(b"x" * 8192)
file.flush()
memory = mmap.mmap(file.fileno(), 8192)
os.truncate(file.fileno(), 0)
place.cleanup()
print(memory[0])
"""


def run(code, folder, before=""):
    return run_forked(textwrap.dedent(before) + TRUNCATE + code, str(folder))


@pytest.mark.parametrize(
    "code",
    [LOADER, VALUES, IN_HAND, WORKER],
    ids=["loader", "values", "in-hand", "worker"],
)
def test_it_goes_on(folder, code):
    result = run(code, folder)
    assert (result.returncode, result.stdout) == (0, "right\n"), result.stderr


def test_with_a_handler_that_was_there_before(folder):
    result = run(IN_HAND, folder, "import faulthandler; faulthandler.enable()")
    assert (result.returncode, result.stdout) == (0, "right\n"), result.stderr


@pytest.mark.parametrize("before", ["", "import faulthandler; faulthandler.enable()"])
def test_a_fault_elsewhere_ends_the_process(folder, before):
    before += "\nimport resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
    result = run(ELSEWHERE, folder, before)
    assert result.returncode == -7, result.stderr
    assert ("Fatal Python error: Bus error" in result.stderr) == ("faulthandler" in before)
