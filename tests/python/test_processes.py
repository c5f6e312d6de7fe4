"""Signals, exits and forks, in real processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from conftest import COUNT, encode, run_python, synthetic
from headrace.torch import DataLoader

SETUP = """
import os, signal, sys, threading, time
import headrace, headrace.transforms as T
from headrace.torch import DataLoader
transform = T.Compose([T.RandomResizedCrop(32), T.ToTensor()])
def folder():
    return headrace.ImageFolder(sys.argv[1], transform)
"""

# One batch of this takes many seconds.
SLOW = """
slow = headrace.ImageList([(sys.argv[1], 0)] * 4000, T.Resize((8, 8)))
loader = DataLoader(slow, 2000, num_workers=1)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "large.jpg"
    path.write_bytes(encode(synthetic(2400, 1800, 1)))
    return str(path)


def interrupted(code: str, argument: str) -> tuple[str, int, float]:
    """Runs `code`, sends SIGINT half a second after its first line; what it printed
    after that, its exit status and the seconds from the signal to its end."""
    child = subprocess.Popen(
        [sys.executable, "-c", code, argument],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        time.sleep(0.5)
        start = time.monotonic()
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=30)
        return out, child.returncode, time.monotonic() - start
    finally:
        child.kill()
        child.wait()


def test_ctrl_c_ends_a_wait_and_the_loader_can_go_on(large):
    code = (
        SETUP
        + SLOW
        + """
epoch = iter(loader)
print("ready", flush=True)
try:
    next(epoch)
except KeyboardInterrupt:
    print("interrupted")
small = DataLoader(headrace.ImageList([(sys.argv[1], 0)] * 3, T.Resize((8, 8))), 2)
print(len(list(small)), loader.stats()["batches"])
"""
    )
    out, status, seconds = interrupted(code, large)
    assert (out, status) == ("interrupted\n2 0\n", 0)
    assert seconds < 10


def test_ctrl_c_with_the_default_handler_ends_the_script(large):
    code = SETUP + SLOW + 'print("ready", flush=True)\nfor batch in loader: pass\n'
    out, status, seconds = interrupted(code, large)
    assert out == "" and status in (-signal.SIGINT, 130, 1)
    assert seconds < 10


def test_ctrl_c_reaches_the_main_thread_while_another_one_reads(large):
    code = (
        SETUP
        + SLOW
        + """
reader = threading.Thread(target=lambda: next(iter(loader)), daemon=True)
reader.start()
print("ready", flush=True)
try:
    reader.join()
except KeyboardInterrupt:
    print("interrupted")
"""
    )
    out, status, seconds = interrupted(code, large)
    assert (out, status) == ("interrupted\n", 0)
    assert seconds < 10


def test_ctrl_c_ends_a_verification(large):
    code = (
        SETUP
        + SLOW
        + """
print("ready", flush=True)
try:
    slow.verify(threads=2)
except KeyboardInterrupt:
    print("interrupted")
print(slow.verify.__self__ is slow, headrace.ImageList([(sys.argv[1], 0)]).verify())
"""
    )
    out, status, seconds = interrupted(code, large)
    assert (out, status) == ("interrupted\nTrue []\n", 0)
    assert seconds < 10


@pytest.mark.parametrize(
    "ending",
    [
        "sys.exit(0)",
        "kept = list(iter(loader))",
        "loader.self = headrace.kept = loader",  # a cycle that nobody collects
        "import atexit; atexit.register(lambda: next(live))",
    ],
)
def test_exit_with_a_live_loader(folder, ending):
    code = (
        SETUP
        + """
loader = DataLoader(folder(), 4, num_workers=2)
live = iter(loader)
first = next(live)
print("done", flush=True)
"""
        + ending
    )
    done = run_python(code, str(folder), timeout=30)
    assert done.stdout == "done\n"
    assert done.returncode == 0, done.stderr
    if ending.startswith("kept"):
        assert done.stderr.startswith("more batches are held")
    elif "atexit" not in ending:
        assert done.stderr == ""


def test_exit_by_an_exception_in_the_loop(folder):
    code = SETUP + "for batch in DataLoader(folder(), 4): raise SystemError('mine')\n"
    done = run_python(code, str(folder), timeout=30)
    assert done.returncode == 1 and done.stderr.rstrip().endswith("SystemError: mine")


def test_exit_while_a_daemon_thread_reads(large):
    code = (
        SETUP
        + SLOW
        + """
threading.Thread(target=lambda: next(iter(loader)), daemon=True).start()
time.sleep(0.3)
print("done", flush=True)
"""
    )
    done = run_python(code, large, timeout=40)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_two_threads_cannot_read_one_loader(large):
    code = (
        SETUP
        + SLOW
        + """
epoch = iter(loader)
threading.Thread(target=lambda: next(epoch), daemon=True).start()
time.sleep(0.5)
for use in (lambda: next(epoch), loader.close):
    try:
        use()
    except RuntimeError as error:
        print("another thread" in str(error))
print(loader.stats()["batches"])
"""
    )
    done = run_python(code, large, timeout=40)
    assert (done.stdout, done.returncode) == ("True\nTrue\n0\n", 0), done.stderr


def in_child(function) -> str:
    """What `function` returns in a forked child, as text; the parent waits for it."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(function())
        except BaseException as error:  # noqa: B902 - told to the parent
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    assert os.waitpid(pid, 0)[1] == 0
    return text


def test_a_forked_child_begins_anew_and_the_parent_goes_on(dataset):
    loader = DataLoader(dataset, 4, num_workers=2, return_index=True)
    expected = [i for *_, x in DataLoader(dataset, 4, return_index=True) for i in x.tolist()]
    epoch = iter(loader)
    held = next(epoch)[0]
    copy = held.clone()

    said = in_child(lambda: next(epoch))
    assert said.startswith("RuntimeError") and "fork" in said

    def whole_epoch():
        out = [i for *_, x in loader for i in x.tolist()]
        loader.close()
        return out

    def watched():
        return loader.stats()["batches"], loader.skipped(), len(loader)

    assert in_child(watched) == "(0, [], 10)"
    assert "fork" in in_child(lambda: [watched(), next(epoch)])
    assert in_child(whole_epoch) == str(expected)
    assert in_child(lambda: torch.equal(held, copy)) == "True"
    assert in_child(loader.close) == "None"
    assert len(list(epoch)) == 9 and torch.equal(held, copy)


def test_a_fork_in_every_state(dataset):
    loader = DataLoader(dataset, 4)
    assert in_child(lambda: len(list(loader))) == "10"  # never started
    list(loader)
    assert in_child(lambda: len(list(loader))) == "10"  # between epochs
    loader.close()
    assert "closed" in in_child(lambda: iter(loader))
    assert in_child(lambda: dataset[0][0].shape) == "(3, 32, 32)"
    assert in_child(lambda: len(list(DataLoader(dataset, 4)))) == "10"


def child_epoch(loader, queue):
    queue.put(sum(len(labels) for _, labels in loader))


def test_a_multiprocessing_child(dataset):
    loader = DataLoader(dataset, 4)
    next(iter(loader))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=child_epoch, args=(loader, queue))
    child.start()
    assert queue.get(timeout=30) == COUNT
    child.join(30)
    assert child.exitcode == 0


def test_torchrun_ranks_cover_an_epoch(folder, tmp_path):
    """Two real processes with torch.distributed; each finds its own part."""
    code = (
        SETUP
        + """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
loader = DataLoader(folder(), 4, shuffle=True, return_index=True)
mine = [i for *_, x in loader for i in x.tolist()]
everyone = [None] * 2
dist.all_gather_object(everyone, mine)
if dist.get_rank() == 0:
    print(len(everyone[0]) == len(everyone[1]), len(set(everyone[0] + everyone[1])))
dist.destroy_process_group()
"""
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        + [str(script), str(folder)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"True {COUNT}"
