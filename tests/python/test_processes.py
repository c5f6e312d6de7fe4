"""Signals, exits and forks, in real processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import pytest
import torch

import forked
from conftest import COUNT, encode, in_child, run_forked, synthetic
from headrace.torch import DataLoader

SETUP = """
import os, signal, sys, threading, time
import headrace, headrace.transforms as T
from headrace.torch import DataLoader
transform = T.Compose([T.RandomResizedCrop(32), T.ToTensor()])
def folder():
    return headrace.ImageFolder(sys.argv[1], transform)
"""

# One batch of this takes minutes on any machine. The first line says when its samples are
# being prepared: a thread tells, because the main one waits for the batch by then.
SLOW = """
slow = headrace.ImageList([(sys.argv[1], 0)] * 60000, T.Resize((8, 8)))
loader = DataLoader(slow, 30000, num_workers=1)
def await_work():
    while not loader.stats()["samples"]:
        time.sleep(0.001)
def tell():
    await_work()
    print("ready", flush=True)
teller = threading.Thread(target=tell, daemon=True)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "large.jpg"
    path.write_bytes(encode(synthetic(2400, 1800, 1)))
    return str(path)


def interrupted(code: str, argument: str) -> tuple[str, int]:
    """Runs `code`, sends SIGINT after its first line; returns its later output and its exit status.
    The time limit only ends a hang."""
    child = forked.Popen(
        [sys.executable, "-c", code, argument], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=600)
        return out, child.returncode
    finally:
        child.kill()
        child.wait()


def test_ctrl_c_ends_a_wait_and_the_loader_can_go_on(large):
    code = (
        SETUP
        + SLOW
        + """
try:
    epoch = iter(loader)
    teller.start()
    next(epoch)
except KeyboardInterrupt:
    print("interrupted")
small = DataLoader(headrace.ImageList([(sys.argv[1], 0)] * 3, T.Resize((8, 8))), 2)
print(len(list(small)), loader.stats()["batches"])
"""
    )
    assert interrupted(code, large) == ("interrupted\n2 0\n", 0)


def test_ctrl_c_with_the_default_handler_ends_the_script(large):
    code = (
        SETUP
        + SLOW
        + """
try:
    teller.start()
    for batch in loader: pass
finally:
    print(loader.stats()["batches"])
"""
    )
    out, status = interrupted(code, large)
    assert out == "0\n" and status in (-signal.SIGINT, 130, 1)


def test_ctrl_c_reaches_the_main_thread_while_another_one_reads(large):
    code = (
        SETUP
        + SLOW
        + """
reader = threading.Thread(target=lambda: next(iter(loader)), daemon=True)
try:
    reader.start()
    teller.start()
    reader.join()
except KeyboardInterrupt:
    print("interrupted", loader.stats()["batches"])
"""
    )
    assert interrupted(code, large) == ("interrupted 0\n", 0)


def test_ctrl_c_while_a_line_is_logged_is_not_lost(folder):
    """The signal arrives inside the log's handler: training still ends."""
    code = (
        SETUP
        + """
import logging
class Struck(logging.Handler):
    def handle(self, record):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
logging.getLogger("headrace").addHandler(Struck())
try:
    held = list(DataLoader(folder(), 1))  # more than planned for, which is logged
    time.sleep(0)
except KeyboardInterrupt:
    print("interrupted")
"""
    )
    done = run_forked(code, str(folder))
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


def test_ctrl_c_ends_a_verification(large):
    code = (
        SETUP
        + SLOW
        + """
try:
    print("ready", flush=True)
    bad = slow.verify(threads=2)
except KeyboardInterrupt:
    print("interrupted")
print("bad" in globals(), headrace.ImageList([(sys.argv[1], 0)]).verify())
"""
    )
    assert interrupted(code, large) == ("interrupted\nFalse []\n", 0)


@pytest.mark.parametrize(
    "ending",
    [
        "sys.exit(0)",
        "kept = list(iter(loader))",
        "loader.self = headrace.kept = loader",  # a cycle that is not collected
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
    done = run_forked(code, str(folder))
    assert done.stdout == "done\n"
    assert done.returncode == 0, done.stderr
    if ending.startswith("kept"):
        assert done.stderr.startswith("more batches are held")
    elif "atexit" not in ending:
        assert done.stderr == ""


def test_exit_by_an_exception_in_the_loop(folder):
    code = SETUP + "for batch in DataLoader(folder(), 4): raise SystemError('mine')\n"
    done = run_forked(code, str(folder))
    assert done.returncode == 1 and done.stderr.rstrip().endswith("SystemError: mine")


def test_exit_while_a_daemon_thread_reads(large):
    code = (
        SETUP
        + SLOW
        + """
threading.Thread(target=lambda: next(iter(loader)), daemon=True).start()
await_work()
print("done", loader.stats()["batches"], flush=True)
"""
    )
    done = run_forked(code, large)
    assert (done.stdout, done.returncode) == ("done 0\n", 0), done.stderr


def test_two_threads_cannot_read_one_loader(large):
    code = (
        SETUP
        + SLOW
        + """
epoch = iter(loader)
begun = []
def read():
    begun.append(True)
    next(epoch)
sys.setswitchinterval(3600)  # who has begun goes on until it waits for the batch
threading.Thread(target=read, daemon=True).start()
while not begun:
    time.sleep(0.001)
for use in (lambda: next(epoch), loader.close):
    try:
        use()
    except RuntimeError as error:
        print("another thread" in str(error))
print(loader.stats()["batches"])
"""
    )
    done = run_forked(code, large)
    assert (done.stdout, done.returncode) == ("True\nTrue\n0\n", 0), done.stderr


class Waiting:
    """A native loader whose next() waits until the test releases it."""

    def __init__(self, core):
        self.core, self.entered, self.go = core, threading.Event(), threading.Event()

    def next(self):
        self.entered.set()
        assert self.go.wait(600)
        return self.core.next()

    def __getattr__(self, name):
        return getattr(self.core, name)


def test_whoever_comes_between_does_not_end_the_epoch(dataset):
    """While one thread waits for a batch, every other call is refused, with no other effect."""
    expected = [x.tolist() for *_, x in DataLoader(dataset, 4, return_index=True)]
    with DataLoader(dataset, 4, return_index=True) as loader:
        state = loader.state_dict()
        loader._core = waiting = Waiting(loader._core)
        epoch, seen = iter(loader), []
        reader = threading.Thread(target=lambda: seen.extend(x.tolist() for *_, x in epoch))
        reader.start()
        assert waiting.entered.wait(600)
        for use in (
            lambda: next(epoch),
            lambda: iter(loader),
            lambda: loader.load_state_dict(state),
        ):
            with pytest.raises(RuntimeError, match="read by another thread"):
                use()
        waiting.go.set()
        reader.join()
        assert seen == expected
        assert loader.state_dict()["epoch"] == 1


def test_two_threads_that_read_one_epoch_get_each_batch_once(dataset):
    """This is an error of the threads, which is refused when they meet; no batch is lost."""
    loader = DataLoader(dataset, 1, return_index=True)
    epoch, seen, refused = iter(loader), [], []

    def read():
        while True:
            try:
                seen.append(int(next(epoch)[2]))
            except RuntimeError:
                refused.append(True)
            except StopIteration:
                return

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(COUNT))


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


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.full((100,), i)


def test_a_forked_child_that_closes_leaves_the_parents_workers():
    loader = DataLoader(Numbers(), 4, num_workers=2)
    epoch = iter(loader)
    next(epoch)
    assert in_child(loader.close) == "None"
    assert len(list(epoch)) == 15


def child_epoch(loader, queue):
    queue.put(sum(len(labels) for _, labels in loader))


def test_a_multiprocessing_child(dataset):
    loader = DataLoader(dataset, 4)
    next(iter(loader))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=child_epoch, args=(loader, queue))
    child.start()
    assert queue.get(timeout=600) == COUNT
    child.join(600)
    assert child.exitcode == 0
