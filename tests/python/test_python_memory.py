"""The slots that carry batches of worker processes: how long tensors stay, and what is left over."""

from __future__ import annotations

import itertools
import os
import re

import torch
import torch.utils.data as torch_data

from headrace.torch import DataLoader
from python_samples import Numbers


def test_tensors_stay_valid_and_slots_come_back():
    loader = DataLoader(Numbers(200, 9000), 4, num_workers=2)
    kept = list(loader)  # more than there are slots: the rest goes torch's way
    assert [int(x[0, 0]) for x, _ in kept] == list(range(0, 200, 4))
    assert all(torch.equal(x[:, 1].long(), numbers) for x, numbers in kept)
    views = [x[2, 5:9] for x, _ in kept]
    kept[3][0].add_(1)
    del kept
    for number, view in enumerate(views):
        assert set(view.tolist()) == {number * 4 + 2 + (number == 3)}
    del views
    for x, numbers in loader:
        assert torch.equal(x[:, 1].long(), numbers)
        x.mul_(-1)  # it is the consumer's


def test_a_batch_of_an_abandoned_task_takes_no_slot():
    """As when torch's thread that pins takes a message while an epoch is left."""
    from headrace.torch._ring import Ring, Window

    ring = Ring(2)
    window = Window(ring)
    window.open(None)
    assert ring.unpack(0, window.pack(torch.zeros(9000)), window.need) is not None
    window.open(ring.take(1))
    data = window.pack(torch.ones(9000))
    slots = ring.abandon()
    assert len(slots) == 1 and ring.unpack(1, data, window.need) is None
    ring.give_back(slots)
    window.open(ring.take(2))
    assert torch.equal(ring.unpack(2, window.pack(torch.ones(9000)), window.need), torch.ones(9000))
    assert ring.abandon() == [] and ring.stats()["slots"] == 1


def test_a_forked_child_keeps_its_batches():
    loader = DataLoader(Numbers(200, 9000), 4, num_workers=1)
    iterator = iter(loader)
    held = [next(iterator) for _ in range(4)]
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.read(ready, 1)  # until the parent has used its slots again
        right = all(torch.equal(x[:, 7].long(), numbers) for x, numbers in held)
        os._exit(0 if right else 1)
    os.close(ready)
    held[3][0].add_(1)  # not the child's
    assert all(torch.equal(x[:, 7].long(), numbers) for x, numbers in held[:3])
    last = held[3][0][2, 5:9]
    del held
    rest = [int(x[0, 0]) for x, _ in iterator]
    os.close(go)
    assert os.waitpid(pid, 0)[1] == 0
    assert rest == list(range(16, 200, 4)) and set(last.tolist()) == {15.0}
    assert loader.stats()["slots"] <= 8


def test_labels_keep_no_images():
    """Small tensors have memory of their own."""
    loader = DataLoader(Numbers(400, 9000), 4, num_workers=1)
    labels = [numbers for _, numbers in loader]
    assert torch.cat(labels).tolist() == list(range(400))
    assert loader.stats()["slots"] <= 4


def test_batches_that_grow():
    sizes = [[0] * n for n in (1, 1, 1, 40, 2, 80, 80, 80, 80, 1, 80)]
    loader = DataLoader(Numbers(1, 9000), batch_sampler=sizes, num_workers=1)
    for _ in range(3):
        assert [len(x) for x, _ in loader] == list(map(len, sizes))


def test_no_file_is_left_and_descriptors_stay_few():
    pids = {os.getpid()}

    class Noted(Numbers):
        def __getitem__(self, index):
            return os.getpid(), super().__getitem__(index)

    loader = DataLoader(Noted(400, 9000), 4, num_workers=2, persistent_workers=True)
    list(itertools.islice(loader, 20))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        for numbers, _ in loader:
            pids |= set(numbers.tolist())
    assert len(os.listdir("/proc/self/fd")) <= before + 8
    loader.close()
    assert len(pids) == 3
    mine = re.compile(f"torch_({'|'.join(map(str, pids))})_")
    assert not list(filter(mine.match, os.listdir("/dev/shm")))


def test_pinned_memory_is_copied_once(monkeypatch):
    """Where there is an accelerator, torch's thread pins; here a stand-in for it."""
    from headrace.torch import _worker

    monkeypatch.setattr(
        torch_data._utils.pin_memory, "pin_memory", lambda data, device=None: ("pinned", data)
    )
    message = _worker.Message(data=[torch.ones(2)])
    assert message.pin_memory() is message and message.data[0] == "pinned"
