"""Datasets of one's own that jobs share through an agent: each sample is made once, whoever dies."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Subset

import forked
import headrace
import shared_job
from agents import Agent, Job, Process, begin, is_alive, wait_until
from headrace.torch import DataLoader
from headrace.torch._layout import Layout

COUNT = 48


class SharedJob(Job):
    """Runs shared_job.py."""

    def __init__(self, folder, agent, environment=None, *, workers=1, stream="s", options=None, **spec):
        # The window holds an epoch, so that all jobs begin with the first.
        own = {"agent": agent, "batch_size": 4, "num_workers": workers, "shuffle": True, "window": 16}
        if stream:
            own["stream"] = stream
        spec = {"folder": str(folder), "count": COUNT, "options": own | (options or {}), **spec}
        script = Path(shared_job.__file__)
        Process.__init__(
            self, [sys.executable, str(script), json.dumps(spec)], forked.Popen, **(environment or {})
        )

    def ready(self):
        told = self.next()
        assert told == {"ready": True}, (told, self.said())
        return self


@pytest.fixture(scope="module")
def agent():
    with Agent() as agent:
        yield agent


@pytest.fixture
def stream(request):
    return request.node.name[:100]


def made(folder) -> list[tuple[int, int]]:
    """Returns (process, sample) of each sample that was made."""
    lines = (Path(folder) / "made").read_text().split("\n")
    return [tuple(map(int, line.split())) for line in lines if line]


def workers_of(pid: int) -> set[int]:
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def named(agent, stream) -> dict:
    """Returns the stream's status; nothing as long as the agent opens its dataset."""
    return next((s for s in agent.look()["streams"] if s["name"] == stream), {})


def indices(batches) -> list[int]:
    return [index for batch in batches for index in batch["index"]]


def values(batches) -> list[tuple]:
    return [(b["index"], b["labels"], b["sums"]) for b in batches]


def spec(folder, **more) -> dict:
    return {"folder": str(folder), "count": COUNT, **more}


def numbers(folder, **more):
    return shared_job.Numbers(spec(folder, **more))


def shared(folder, agent, stream, *, workers=1, options=None, **more):
    """Makes a loader of one's own of the stream, in this process."""
    return DataLoader(
        numbers(folder, **more), 4, shuffle=True, return_index=True, num_workers=workers,
        agent=agent.socket, stream=stream, **(options or {}),
    )


def told(batch) -> tuple:
    images, labels, index = batch
    return index.tolist(), labels.tolist(), images.sum((1, 2, 3)).tolist()


def alone(folder, epoch=0, **options):
    """Returns what a loader without an agent gives."""
    loader = DataLoader(numbers(folder), 4, shuffle=True, return_index=True, **options)
    loader.set_epoch(epoch)
    return [told(batch) for batch in loader]


def test_jobs_get_the_same_samples_made_once(agent, stream, tmp_path):
    truth = [alone(tmp_path, epoch) for epoch in range(2)]
    (tmp_path / "made").unlink()
    both = {"stream": stream, "epochs": 2, "led": True, "options": {"lag": "wait"}}
    with (
        SharedJob(tmp_path, agent.socket, workers=2, **both) as a,
        SharedJob(tmp_path, agent.socket, **both) as b,
    ):
        jobs = [a.ready(), b.ready()]
        for job in jobs:
            job.tell()
        wait_until(lambda: agent.look()["jobs"] == 2, "two jobs")
        wait_until(lambda: named(agent, stream).get("producers") == 3, "their processes")
        assert named(agent, stream)["dataset"] == "__main__.Numbers"
        for epoch in range(2):
            for _ in range(COUNT // 4 + (epoch == 0)):
                for job in jobs:
                    job.tell()
            for job in jobs:
                assert values(job.batches()) == truth[epoch]
        count = Counter(index for _, index in made(tmp_path))
        # Each job's first process made sample 0 once to learn its layout.
        assert count == {i: 2 + 2 * (i == 0) for i in range(COUNT)}
        # As many processes work as the job with the most of them has.
        assert len({pid for pid, _ in made(tmp_path)}) <= 3


def test_a_killed_worker_costs_no_sample(agent, stream, tmp_path, caplog):
    truth = alone(tmp_path)
    with shared(tmp_path, agent, stream, workers=2, made_s=0.01) as loader:
        each = iter(loader)
        seen = [told(next(each)) for _ in range(2)]
        os.kill(made(tmp_path)[-1][0], signal.SIGKILL)
        seen += map(told, each)
        assert seen == truth
        makers = set()
        for epoch in range(1, 100):
            assert [told(batch) for batch in loader] == alone(tmp_path, epoch)
            makers = workers_of(os.getpid()) & {pid for pid, _ in made(tmp_path)}
            if len(makers) == 2:  # the new one has started
                break
        assert len(makers) == 2
    assert "was killed by signal 9: another one takes its place" in caplog.text


def test_another_jobs_workers_take_over(agent, stream, tmp_path):
    truth = alone(tmp_path)
    (tmp_path / "made").unlink()
    with (
        SharedJob(tmp_path, agent.socket, stream=stream, led=True, made_s=0.01, workers=2) as first,
        SharedJob(tmp_path, agent.socket, stream=stream, led=True, made_s=0.01) as second,
    ):
        first.ready()
        first.tell()
        first.batches(1)
        mine = workers_of(first.pid)
        second.ready()
        second.tell()
        first.tell()
        seen = second.batches(1)
        first.send(signal.SIGKILL)
        first.status()
        for _ in range(COUNT):
            second.tell()
        seen += second.batches()
        assert values(seen) == truth
        wait_until(lambda: not any(map(is_alive, mine)), "the end of the killed job's workers")
        # Those of the first job's workers that were being made are made again, all others once.
        count = Counter(index for _, index in made(tmp_path))
        assert sum(count.values()) <= COUNT + 2 + 2 * 2
        assert {pid for pid, _ in made(tmp_path)} - mine, "nobody took over"


def test_all_goes_on_with_another_agent(tmp_path):
    with tempfile.TemporaryDirectory(prefix="headrace-auto-") as place:
        environment = {"HEADRACE_AGENT": os.path.join(place, "agent.sock")}
        truth = alone(tmp_path)
        gate = tmp_path / "gate"
        both = {"made_s": 0.01, "led": True, "gate": str(gate), "options": {"window": 4}}

        def places():
            try:
                status = headrace.agent_status(environment["HEADRACE_AGENT"])
            except OSError:  # not yet
                return 0
            queues = [q for stream in status["streams"] for q in stream["queues"]]
            return sum(len(q["subscribers"]) for q in queues)

        with (
            SharedJob(tmp_path, "auto", environment, **both) as a,
            SharedJob(tmp_path, "auto", environment, **both) as b,
        ):
            for job in (a, b):
                job.ready().tell()
            wait_until(lambda: places() == 2, "a place for each job")
            gate.touch()
            seen = [job.batches(1) for job in (a, b)]
            status = headrace.agent_status(environment["HEADRACE_AGENT"])
            os.kill(status["pid"], signal.SIGKILL)
            for job in (a, b):
                for _ in range(COUNT // 4):
                    job.tell()
            for job, batches in zip((a, b), seen):
                batches += job.batches()
                assert values(batches) == truth
                assert job.next()["stats"]["reattached"] == 1
        wait_until(lambda: not os.path.exists(environment["HEADRACE_AGENT"]), "the agent's end")


def test_a_stopped_worker_is_not_waited_for(agent, stream, tmp_path):
    truth = alone(tmp_path)
    with shared(tmp_path, agent, stream, workers=2, made_s=0.01) as loader:
        each = iter(loader)
        seen = [told(next(each))]
        victim = made(tmp_path)[-1][0]
        os.kill(victim, signal.SIGSTOP)
        try:
            seen += map(told, each)
            assert seen == truth
        finally:
            os.kill(victim, signal.SIGCONT)


def test_a_sample_that_kills_is_bad(agent, stream, tmp_path):
    options = {"on_error": "skip", "max_bad_share": 1.0}
    with shared(tmp_path, agent, stream, fatal=5, options=options) as loader:
        found = [index for _, _, indices in loader for index in indices.tolist()]
        assert len(found) == COUNT and 5 not in found
        assert sum(index == 5 for _, index in made(tmp_path)) == 3
        assert "the processes that made it ended" in loader.skipped()[0].reason


def test_a_first_sample_that_kills_is_an_error(agent, stream, tmp_path):
    with pytest.raises(RuntimeError, match="was killed by signal 9 while it made the first sample"):
        iter(shared(tmp_path, agent, stream, fatal=0))


def test_an_empty_dataset_is_refused(agent, stream):
    with pytest.raises(ValueError, match="the dataset is empty"):
        iter(DataLoader(Subset(Samples(_pair), []), 2, agent=agent.socket, stream=stream))


def test_a_bad_sample_is_named(agent, stream, tmp_path):
    with shared(tmp_path, agent, stream, bad=7) as loader:
        with pytest.raises(headrace.SampleError, match=r"sample 7 \(Numbers\[7\]\): ValueError: bad 7"):
            list(loader)


def test_workers_that_all_end_are_an_error(agent, stream, tmp_path):
    dead = []

    def begin(worker):
        if dead:
            os.kill(os.getpid(), signal.SIGKILL)

    with shared(tmp_path, agent, stream, options={"worker_init_fn": begin}) as loader:
        each = iter(loader)
        next(each)
        dead.append(True)  # what is forked from now on ends at once
        os.kill(made(tmp_path)[-1][0], signal.SIGKILL)
        with pytest.raises(RuntimeError, match="was killed by signal 9, and so did those before it"):
            list(each)


def test_bad_samples_are_replaced_as_without_an_agent(agent, stream, tmp_path):
    options = {"on_error": "skip", "max_bad_share": 1.0, "shuffle": True, "return_index": True}
    own = DataLoader(numbers(tmp_path, bad=7), 4, **options)
    with DataLoader(
        numbers(tmp_path, bad=7), 4, agent=agent.socket, stream=stream, num_workers=1, **options
    ) as loader:
        for (x, _, i), (y, _, j) in zip(own, loader, strict=True):
            assert torch.equal(i, j) and torch.equal(x, y)
        assert [(s.index, s.path) for s in loader.skipped()] == [(7, "Numbers[7]")]


@pytest.mark.parametrize(
    "other, what",
    [
        ({"kind": "others"}, "another class of dataset"),
        ({"count": COUNT + 1}, "another number of samples"),
        ({"side": 9}, "another shape or element type of samples"),
        ({"transform": "crop"}, "transforms' texts"),
    ],
)
def test_other_datasets_are_refused(agent, stream, tmp_path, other, what):
    options = {"agent": agent.socket, "stream": stream[:90], "num_workers": 1}
    with DataLoader(numbers(tmp_path), 4, **options) as loader:
        next(iter(loader))
        kind = shared_job.Others if other.get("kind") else shared_job.Numbers
        with pytest.raises(ValueError, match=what):
            next(iter(DataLoader(kind(spec(tmp_path) | other), 4, **options)))


def test_equal_share_keys_are_equal_datasets(agent, stream, tmp_path):
    options = {"agent": agent.socket, "stream": stream, "num_workers": 1, "share_key": "numbers 1"}
    with DataLoader(numbers(tmp_path), 4, **options) as loader:
        next(iter(loader))
        next(iter(DataLoader(numbers(tmp_path, transform="crop"), 4, join="now", **options)))
        with pytest.raises(ValueError, match="share_key"):
            next(iter(DataLoader(numbers(tmp_path), 4, **(options | {"share_key": "numbers 2"}))))


def test_a_state_goes_on_with_and_without_an_agent(agent, stream, tmp_path):
    truth = alone(tmp_path)
    with DataLoader(numbers(tmp_path), 4, shuffle=True, return_index=True, num_workers=1,
                    agent=agent.socket, stream=stream) as loader:
        each = iter(loader)
        for _ in range(3):
            next(each)
        state = loader.state_dict()
        rest = [i.tolist() for _, _, i in each]
    own = DataLoader(numbers(tmp_path), 4, shuffle=True, return_index=True)
    own.load_state_dict(state)
    assert [i.tolist() for _, _, i in own] == rest == [i for i, _, _ in truth[3:]]


def test_ranks_share_workers(agent, stream, tmp_path):
    truth = alone(tmp_path)
    loaders = [
        DataLoader(numbers(tmp_path), 2, shuffle=True, return_index=True, num_workers=1, rank=rank,
                   world_size=2, agent=agent.socket, stream=stream)
        for rank in range(2)
    ]
    found = [[], []]
    for batches in zip(*loaders, strict=True):
        for rank, (_, _, index) in enumerate(batches):
            found[rank] += index.tolist()
    order = [i for index, _, _ in truth for i in index]
    assert found == [order[0::2], order[1::2]]
    for loader in loaders:
        loader.close()


class Samples(Dataset):
    """Whatever samples a test wants."""

    def __init__(self, make, count=6):
        self.make, self.count = make, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.make(index)


def _dict(index):
    return {
        "image": torch.full((2, 3), index, dtype=torch.float16),
        "more": [np.arange(3, dtype=np.int16) + index, (float(index), index % 2 == 0)],
        "number": np.float32(index),
        "empty": torch.empty(0, 4),
        "id": index,
    }


def _pair(index):
    return torch.full((3, 8, 8), index, dtype=torch.uint8), index


def _vector(index):
    return torch.arange(5, dtype=torch.bfloat16) * index


@pytest.mark.parametrize("make", [_dict, _pair, _vector])
@pytest.mark.parametrize("collate", [None, list])
def test_batches_are_those_of_torch(agent, stream, make, collate):
    own = torch.utils.data.DataLoader(Samples(make), 4, collate_fn=collate)
    with DataLoader(Samples(make), 4, collate_fn=collate, agent=agent.socket, num_workers=1) as loader:
        for a, b in zip(own, loader, strict=True):
            assert_same(a, b)
    if make is _pair and collate is None:
        assert b[0].is_contiguous()


def assert_same(a, b):
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and torch.equal(a, b)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and np.array_equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for one, other in zip(a, b):
            assert_same(one, other)
    else:
        assert a == b


class Several(Samples):
    """The same, with a ``__getitems__``. Notes what each call asked for."""

    def __init__(self, make, count, folder, fails=lambda indices: None):
        super().__init__(make, count)
        self.notes, self.fails = folder / "calls", fails

    def __getitem__(self, index):
        self.note([index])
        return self.make(index)

    def __getitems__(self, indices):
        self.note([-1, *indices])
        return self.fails(indices) or [self.make(index) for index in indices]

    def note(self, numbers):
        with open(self.notes, "a") as notes:
            notes.write(json.dumps(numbers) + "\n")

    def calls(self):
        return list(map(json.loads, self.notes.read_text().splitlines()))


def drawn_from(first):
    """Makes samples that draw random numbers, from this sample on."""

    def make(index):
        number = torch.rand(()) + np.random.rand() + random.random() if index >= first else 0
        return torch.full((3, 4), float(index)) + number, index

    return make


@pytest.mark.parametrize("first", [0, 100, 200])
def test_small_samples_are_the_same_whether_they_draw(agent, stream, tmp_path, first):
    make = drawn_from(first)
    several = Several(make, 200, tmp_path)
    own = DataLoader(Samples(make, 200), 8, shuffle=True)
    for dataset in (Samples(make, 200), several):
        with DataLoader(dataset, 8, shuffle=True, agent=agent.socket, stream=f"{stream} {type(dataset)}",
                        num_workers=1) as loader:
            for _ in range(2):
                for a, b in zip(own, loader, strict=True):
                    assert_same(a, b)
            own.set_epoch(0)
    if first == 200:
        # The first one, for the layout, and those that came first, to look whether they draw.
        assert sum(call[0] >= 0 for call in several.calls()) <= 1 + 16
        assert sorted({i for call in several.calls() for i in call if i >= 0}) == list(range(200))


def test_a_getitems_that_fails_is_replaced_by_single_calls(agent, stream, tmp_path):
    def make(index):
        return torch.full((3,), 1.0 / (index - 7)) if index == 7 else torch.full((3,), index), index

    def fails(indices):
        assert 7 not in indices
        return [make(indices[0])] * (len(indices) + 1) if 9 in indices else None

    options = {"on_error": "skip", "max_bad_share": 1.0, "shuffle": True, "return_index": True}
    own = DataLoader(Samples(make, 40), 4, **options)
    with DataLoader(Several(make, 40, tmp_path, fails), 4, agent=agent.socket, stream=stream,
                    num_workers=1, **options) as loader:
        for a, b in zip(own, loader, strict=True):
            assert_same(a, b)
        assert [(s.index, "ZeroDivisionError" in s.reason) for s in loader.skipped()] == [(7, True)]


def test_a_batch_may_be_kept_and_changed(agent, stream):
    options = {"agent": agent.socket, "stream": stream, "num_workers": 1, "join": "now"}
    with DataLoader(Samples(_pair, 16), 4, **options) as a, DataLoader(Samples(_pair, 16), 4, **options) as b:
        first, second = begin(agent, stream, [a, b])
        kept = []
        for _ in range(4):
            (x, i), (y, j) = next(first), next(second)
            x += 100
            kept.append((x, i))
            assert torch.equal(y[:, 0, 0, 0], j.to(torch.uint8))
        assert all(torch.equal(x[:, 0, 0, 0], i.to(torch.uint8) + 100) for x, i in kept)


def test_a_sample_of_another_size_is_refused(agent, stream):
    def make(index):
        return torch.zeros(2 + (index == 3)), index

    with DataLoader(Samples(make), 2, agent=agent.socket, num_workers=1) as loader:
        with pytest.raises(headrace.SampleError, match=r"sample 3 .*\[0\] is Tensor of shape \(3,\)"):
            list(loader)


@pytest.mark.parametrize(
    "make, what",
    [
        (lambda i: (torch.zeros(2), "cat"), r"the sample\[1\] is builtins.str"),
        (lambda i: {"a": None}, r"the sample\['a'\] is builtins.NoneType"),
        (lambda i: np.array(["a"]), "the sample: "),
        (lambda i: (), "no tensor, array or number"),
    ],
)
def test_what_has_no_fixed_size_is_refused(agent, make, what):
    with pytest.raises(TypeError, match=what):
        DataLoader(Samples(make), 2, agent=agent.socket, num_workers=1)


class Endless(IterableDataset):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    "options, what",
    [
        ({"num_workers": 0}, "num_workers=0"),
        ({"timeout": 5}, "timeout"),
        ({"sampler": [1, 2]}, "sampler"),
        ({"cache": "1MiB"}, "cache"),
        ({"share_key": "x", "agent": None}, "share_key"),
    ],
)
def test_what_does_not_go_with_sharing_is_refused(agent, options, what):
    with pytest.raises(ValueError, match=what):
        DataLoader(Samples(_pair), 2, **({"agent": agent.socket} | options))


def test_iterable_datasets_are_refused(agent):
    with pytest.raises(ValueError, match="agent"):
        DataLoader(Endless(), 2, agent=agent.socket)


def test_subsets_with_other_indices_are_other_datasets(agent, stream):
    dataset = Samples(_pair, 8)
    options = {"agent": agent.socket, "stream": stream, "num_workers": 1}
    with DataLoader(Subset(dataset, [0, 1, 2, 3]), 2, **options) as loader:
        assert torch.cat([labels for _, labels in loader]).tolist() == [0, 1, 2, 3]
        with pytest.raises(ValueError, match="first sample"):
            next(iter(DataLoader(Subset(dataset, [0, 1, 2, 4]), 2, **options)))


def test_the_tail_of_a_compose_is_shared(agent, stream, folder):
    from torchvision import datasets, transforms

    def darker(image):
        return image / 2

    transform = transforms.Compose([transforms.RandomResizedCrop(16), transforms.ToTensor(), darker])
    data = datasets.ImageFolder(folder, transform)
    own = DataLoader(data, 4, shuffle=True)
    with DataLoader(data, 4, shuffle=True, agent=agent.socket, stream=stream, num_workers=1) as loader:
        for (x, i), (y, j) in zip(own, loader, strict=True):
            assert torch.equal(x, y) and torch.equal(i, j)


def test_spawned_workers(agent, stream, tmp_path):
    truth = alone(tmp_path)
    with DataLoader(numbers(tmp_path), 4, shuffle=True, return_index=True, num_workers=1,
                    multiprocessing_context="spawn", agent=agent.socket, stream=stream) as loader:
        assert [i.tolist() for _, _, i in loader] == [i for i, _, _ in truth]


def test_without_processes_it_ends_with_an_error(agent, stream, tmp_path):
    def begin(worker):
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        DataLoader(numbers(tmp_path), 4, num_workers=1, worker_init_fn=begin, agent=agent.socket)


def test_a_layout_keeps_labels_beside_the_bytes():
    layout = Layout.of((torch.zeros(3, 5), 7))
    assert layout.size == 60
    slot = layout.slot(torch.zeros(64, dtype=torch.uint8))
    assert slot.write((torch.ones(3, 5), -5)) == -5
    mixed = Layout.of({"a": torch.zeros(3), "b": torch.zeros(4, dtype=torch.float64), "c": 1})
    assert mixed.size == 64 and mixed.digest() != layout.digest()
