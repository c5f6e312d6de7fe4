"""Several jobs on one stream: each sample prepared once, joining, uneven speed, resuming."""

import signal
import threading

import pytest
import torch

import headrace
import headrace.transforms as T
from agents import Agent, Job, Reader, Truth, begin, indices, same, taken, wait_until
from conftest import COUNT
from headrace.torch import DataLoader

REPEAT = 10
LONG = REPEAT * COUNT


@pytest.fixture(scope="module")
def agent():
    with Agent() as running:
        yield running


@pytest.fixture(scope="module")
def long(folder):
    """The folder's samples ten times: 390 samples, quick to prepare."""
    samples = list(headrace.ImageFolder(folder).samples)
    return headrace.ImageList(samples * REPEAT, T.Compose([T.RandomResizedCrop(32), T.ToTensor()]))


@pytest.fixture
def stream(request):
    """A stream name for this test alone."""
    return request.node.name


def make(data, agent, stream, size=4, **options):
    options = {"shuffle": True, "return_index": True, **options}
    return DataLoader(data, size, agent=agent.socket, stream=stream, **options)


def waits(agent):
    return [w["waits_for"] for w in agent.look()["waiting"]]


def assert_prepared(agent, stream, samples):
    """Checks that the stream's one queue has prepared so many samples, besides what it began ahead.
    """
    (queue,) = agent.queues(stream)
    assert not queue["alone"]
    assert samples <= queue["prepared"] <= samples + queue["window_samples"]


def check_epochs(truth, reader, first=0):
    for epoch, batches in enumerate(reader.result()):
        assert len(indices(batches)) == len(truth.order(first + epoch))
        truth.check(batches, first + epoch)


@pytest.mark.parametrize("sizes", [(4, 7), (1, 16), (5, 5, 5), (64, 3), (8, 13, 32, 2)])
def test_each_sample_is_prepared_once_for_all(long, agent, stream, sizes):
    truth = Truth(long, shuffle=True)
    jobs = [make(long, agent, stream, size, lag="wait") for size in sizes]
    readers = [Reader(epoch) for epoch in begin(agent, stream, jobs)]
    for reader in readers:
        (found,) = reader.result()
        truth.check(found, 0)
        assert len(indices(found)) == LONG
    assert_prepared(agent, stream, LONG)
    readers = [Reader(job, 2) for job in jobs]
    for reader in readers:
        check_epochs(truth, reader, 1)
    assert_prepared(agent, stream, 3 * LONG)
    for job, size in zip(jobs, sizes):
        stats = job.stats()
        assert (stats["alone"], stats["missed"], stats["reattached"]) == (0, 0, 0)
        assert stats["batches"] == 3 * -(-LONG // size)
        job.close()


def test_drop_last_is_each_jobs_own(long, agent, stream):
    truth = Truth(long, shuffle=True)
    jobs = [make(long, agent, stream, size, drop_last=size != 7, lag="wait") for size in (16, 7, 100)]
    readers = [Reader(epoch) for epoch in begin(agent, stream, jobs)]
    for reader in readers:
        truth.check(reader.result()[0], 0)
    assert [len(r.batches) for r in readers] == [LONG // 16, -(-LONG // 7), LONG // 100]
    readers = [Reader(job, 2) for job in jobs]
    for reader in readers:
        for epoch, batches in enumerate(reader.result()):
            truth.check(batches, 1 + epoch)
    assert len(agent.queues(stream)) == 1
    for job in jobs:
        job.close()


def test_ranks_of_two_jobs(long, agent, stream):
    """Two jobs of two ranks each: two queues, each sample once."""
    options = {"world_size": 2, "lag": "wait"}
    jobs = [make(long, agent, stream, 5 + 3 * (i // 2), rank=i % 2, **options) for i in range(4)]
    readers = [Reader(epoch) for epoch in begin(agent, stream, jobs)]
    found = [reader.result()[0] for reader in readers]
    for i, batches in enumerate(found):
        plain = DataLoader(
            long, 5 + 3 * (i // 2), shuffle=True, return_index=True, rank=i % 2, world_size=2
        )
        assert same(batches, taken(plain))
    for queue in agent.queues(stream):
        assert 0 <= queue["prepared"] - LONG // 2 <= queue["window_samples"]
    assert sorted(queue["rank"] for queue in agent.queues(stream)) == [0, 1]
    for job in jobs:
        job.close()


# Joining


def test_joining_at_the_next_epoch(long, agent, stream):
    truth = Truth(long, shuffle=True)
    first = make(long, agent, stream, lag="wait")
    list(first)
    epoch = iter(first)
    early = [tuple(t.clone() for t in next(epoch)) for _ in range(5)]
    truth.check(early, 1)

    second = make(long, agent, stream, 6, lag="wait")
    reader = Reader(second, 2)
    wait_until(lambda: waits(agent) == ["epoch"], "the second job's request")
    assert not reader.batches and reader.is_alive()
    others = Reader(epoch)
    others.result()
    assert not reader.batches  # no job has begun the next epoch
    others = Reader(first, 2)
    check_epochs(truth, reader, 2)
    check_epochs(truth, others, 2)
    assert second.stats()["missed"] == 0
    assert (second.state_dict()["epoch"], second.state_dict()["stream_ahead"]) == (4, 2)
    assert_prepared(agent, stream, 4 * LONG)

    # Its third epoch is the stream's fifth, also if the script numbers the epochs.
    second.set_epoch(2)
    jobs = Reader(first), Reader(second)
    for job in jobs:
        check_epochs(truth, job, 4)
    assert_prepared(agent, stream, 5 * LONG)
    first.close()
    second.close()


def test_a_state_of_one_who_joined_is_exact(long, agent, stream):
    first = make(long, agent, stream)
    list(first)
    list(first)
    epoch = iter(first)
    for _ in range(20):
        next(epoch)
    second = make(long, agent, stream, 6)
    reader = Reader(second, 1)
    wait_until(lambda: waits(agent) == ["epoch"], "the second job's request")
    Reader(epoch).result()
    follower = Reader(first)
    reader.result()
    follower.result()
    follower = Reader(first)
    begun = iter(second)
    for _ in range(7):
        next(begun)
    state = second.state_dict()
    assert (state["epoch"], state["position"]) == (4, 42)
    expected = [tuple(t.clone() for t in batch) for batch in begun]
    for more in ({}, {"agent": agent.socket}, {"agent": agent.socket, "stream": stream + "2"}):
        again = DataLoader(long, 6, shuffle=True, return_index=True, **more)
        again.load_state_dict(state)
        assert same(taken(again), expected)
        again.set_epoch(2)  # the loader continues its own count, as in a script that numbers epochs
        assert again.state_dict()["epoch"] == 5
        Truth(long, shuffle=True).check(taken(again, 3), 5)
        again.close()
    follower.result()
    first.close()
    second.close()


def test_a_wait_for_others_is_explained(long, agent, stream, caplog):
    """The others are busy between two epochs: a job that joins reports what it waits for."""
    first = make(long, agent, stream)
    list(first)
    second = Reader(make(long, agent, stream))
    wait_until(lambda: any("waiting to join" in m for m in caplog.messages), "a message")
    assert waits(agent) == ["epoch"]
    follower = Reader(first)
    check_epochs(Truth(long, shuffle=True), second, 1)
    follower.result()
    assert len([m for m in caplog.messages if "waiting to join" in m]) == 1
    first.close()


def test_joining_now(long, agent, stream):
    truth = Truth(long, shuffle=True)
    first = make(long, agent, stream, lag="wait")
    list(first)
    epoch = iter(first)
    early = [tuple(t.clone() for t in next(epoch)) for _ in range(20)]
    second = make(long, agent, stream, 6, join="now", lag="wait")
    start = iter(second)
    head = next(start)
    state = second.state_dict()
    missed = second.stats()["missed"]
    assert state["epoch"] == 1 and state["position"] == missed + 6
    assert 0 < missed <= 80
    truth.check([head], 1, missed)
    jobs = Reader(epoch), Reader(start)
    truth.check(early + jobs[0].result()[0], 1)
    truth.check([head, *jobs[1].result()[0]], 1, missed)
    assert len(indices(jobs[1].result()[0])) == LONG - missed - 6
    jobs = Reader(first, 2), Reader(second, 2)
    for job in jobs:
        check_epochs(truth, job, 2)
    assert second.stats()["missed"] == missed
    assert_prepared(agent, stream, 4 * LONG)
    first.close()
    second.close()


def test_joining_an_idle_stream_is_beginning_it(long, agent, stream):
    truth = Truth(long, shuffle=True)
    first = make(long, agent, stream)
    first.set_epoch(3)
    truth.check(taken(first), 3)
    first.close()
    second = make(long, agent, stream)
    check_epochs(truth, Reader(second, 2), 0)
    second.close()


def test_resuming_together(long, agent, stream):
    """Two stopped jobs continue from their states: one preparation, at the exact sample."""
    truth = Truth(long, shuffle=True)
    jobs = [make(long, agent, stream, size) for size in (4, 6)]
    starts = begin(agent, stream, jobs)
    for _ in range(6):
        next(starts[0])
    for _ in range(4):
        next(starts[1])
    states = [job.state_dict() for job in jobs]
    assert [s["position"] for s in states] == [24, 24]
    for job in jobs:
        job.close()
    wait_until(lambda: not agent.queues(stream), "the stream's end")
    jobs = [make(long, agent, stream, size, lag="wait") for size in (4, 6)]
    for job, state in zip(jobs, states):
        job.load_state_dict(state)
    readers = [Reader(epoch) for epoch in begin(agent, stream, jobs)]
    for reader in readers:
        truth.check(reader.result()[0], 0, 24)
    assert_prepared(agent, stream, LONG - 24)
    for job in jobs:
        job.close()


# Uneven speed


def test_one_who_lags_goes_on_alone(long, agent, stream):
    truth = Truth(long, shuffle=True)
    fast, slow = make(long, agent, stream), make(long, agent, stream)
    rests = begin(agent, stream, [fast, slow])
    ahead = Reader(rests[0])

    def lag(mine, batch):  # were the fast one held up, neither could go on
        wait_until(lambda: len(ahead.batches) >= 4 * len(mine.batches) or not ahead.is_alive(),
                   "four times as many batches")  # fmt: skip

    behind = Reader(rests[1], each=lag)
    truth.check(ahead.result()[0], 0)
    truth.check(behind.result()[0], 0)
    assert slow.stats()["alone"] > 0 and fast.stats()["alone"] == 0
    fast.close()
    slow.close()


def test_one_who_lagged_comes_back(long, agent, stream):
    """A pause until the other is far ahead, and as fast as that once it has caught up: it is in the
    common queue again."""
    truth = Truth(long, shuffle=True)
    steady, jumpy = make(long, agent, stream), make(long, agent, stream)
    epochs = begin(agent, stream, [steady, jumpy])
    readers = {}

    def wait_for(name, batches):
        def has_come():
            reader = readers.get(name)
            return reader and (not reader.is_alive() or len(reader.batches) >= batches)

        wait_until(has_come, f"{batches} batches of the {name} one")

    def after_lead(mine, batch):
        if len(mine.batches) > 30:
            wait_for("jumpy", len(mine.batches) - 2)

    def stay_beside(mine, batch):
        wait_for("steady", len(mine.batches) - 2)

    others = readers["steady"] = Reader(epochs[0], each=after_lead)
    wait_until(lambda: len(others.batches) > 30, "a lead of thirty batches")
    mine = readers["jumpy"] = Reader(epochs[1], each=stay_beside)
    truth.check(mine.result()[0], 0)
    truth.check(others.result()[0], 0)
    assert 0 < jumpy.stats()["alone"] < LONG / 4 - 20
    assert steady.stats()["alone"] == 0
    for job in (Reader(steady), Reader(jumpy)):
        check_epochs(truth, job, 1)
    steady.close()
    jumpy.close()


def test_the_others_wait_where_that_is_wanted(long, agent, stream):
    truth = Truth(long, shuffle=True)
    fast, slow = make(long, agent, stream), make(long, agent, stream, lag="wait")
    rests = begin(agent, stream, [fast, slow])
    ahead = Reader(rests[0])
    gap = []

    def compare(behind, batch):
        gap.append(len(ahead.batches) - len(behind.batches))

    behind = Reader(rests[1], pace_s=0.01, each=compare)
    truth.check(behind.result()[0], 0)
    truth.check(ahead.result()[0], 0)
    assert max(gap) <= 8 + 2
    assert fast.stats()["alone"] == slow.stats()["alone"] == 0
    assert_prepared(agent, stream, LONG)
    fast.close()
    slow.close()


def test_one_who_reads_nothing_holds_up_nobody(long, agent, stream):
    truth = Truth(long, shuffle=True)
    idle, busy = make(long, agent, stream), make(long, agent, stream)
    rests = begin(agent, stream, [idle, busy])
    truth.check(Reader(rests[1]).result()[0], 0)
    check_epochs(truth, Reader(busy, 2), 1)
    truth.check(Reader(rests[0]).result()[0], 0)
    check_epochs(truth, Reader(idle), 1)
    idle.close()
    busy.close()


def test_the_window_bounds_memory(long, agent, stream):
    loader = make(long, agent, stream, 16, window=4)
    epoch = iter(loader)
    batch = next(epoch)
    (queue,) = wait_until(
        lambda: [x for x in agent.queues(stream) if x["waits_for"] == "room"], "a full window"
    )
    size = batch[0].nbytes
    assert queue["window_samples"] <= 5 * 16
    assert queue["memory_bytes"] <= 6 * size
    del batch
    loader.close()


# Other processes


def digests(batches):
    return [(b["epoch"], tuple(b["index"]), b["digest"]) for b in batches]


def test_processes_share_a_stream(folder, agent, stream):
    """Real processes with different batch sizes; an embedded loader gives the expected batches."""
    options = {"shuffle": True, "batch_size": 6}
    more = {"repeat": 3, "epochs": 2}
    shared = {"agent": agent.socket, "stream": stream, "lag": "wait", **options}
    with (
        Job(folder, options, **more) as plain,
        Job(folder, shared, led=True, **more) as one,
        Job(folder, {**shared, "batch_size": 9}, led=True, **more) as two,
    ):
        for job in (plain, one, two):
            assert job.next() == {"ready": True}
        lines = 3 * COUNT
        for job in (one, two):
            job.tell()
            job.next()
        for job in (one, two):
            threading.Thread(target=lambda j=job: [j.tell() for _ in range(lines)]).start()
        expected = [plain.batches(), plain.batches()]
        first = [one.batches(), one.batches()]
        assert digests(first[0]) == digests(expected[0])[1:]
        assert digests(first[1]) == digests(expected[1])
        second = [two.batches(), two.batches()]
        flat = [i for b in expected[1] for i in b["index"]]
        assert [i for b in second[1] for i in b["index"]] == flat
        for queue in agent.queues(stream):
            assert queue["prepared"] <= 2 * 3 * COUNT + queue["window_samples"]


def test_a_killed_job_frees_what_it_held(folder, agent, stream):
    """The others wait for it, as it has requested; when it dies they continue."""
    options = {"agent": agent.socket, "stream": stream, "lag": "wait", "batch_size": 4}
    with (
        Job(folder, options, repeat=REPEAT, led=True) as victim,
        Job(folder, options, repeat=REPEAT) as other,
    ):
        assert victim.next() and victim.tell() is None
        victim.batches(1)
        assert other.next()
        found = other.batches(2)
        wait_until(
            lambda: [x for x in agent.queues(stream) if x["waits_for"] == "room"], "a full window"
        )
        victim.send(signal.SIGKILL)
        found += other.batches()
        assert [i for b in found for i in b["index"]] == list(range(LONG))
    wait_until(lambda: not agent.queues(stream), "the stream's end")


def test_a_stopped_job_holds_up_nobody(folder, agent, stream):
    options = {"agent": agent.socket, "stream": stream, "batch_size": 4}
    with (
        Job(folder, options, repeat=REPEAT, led=True) as stopped,
        Job(folder, options, repeat=REPEAT, epochs=9, pace_s=0.02) as other,
    ):
        assert stopped.next() and stopped.tell() is None
        head = stopped.batches(1)
        assert other.next()
        found = other.batches(2)
        stopped.send(signal.SIGSTOP)
        while len(found) < LONG // 2:  # more than a window holds
            told = other.next()
            if told and "index" in told:
                found.append(told)
        stopped.send(signal.SIGCONT)
        for _ in range(LONG // 4 + 2):
            stopped.tell()
        rest = stopped.batches()
        assert [i for b in head + rest for i in b["index"]] == list(range(LONG))
        stats = stopped.next()["stats"]
        assert stats["alone"] > 0
