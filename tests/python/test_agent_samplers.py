"""Samplers of the user, with batches that an agent prepares."""

import itertools
import os
import signal
import warnings

import pytest
from torch.utils.data import BatchSampler, SubsetRandomSampler

import agent_job
import headrace
from agent_job import weighted
from agents import Agent, Job, Reader, indices, same, taken, wait_until
from conftest import COUNT
from headrace.torch import DataLoader

DRAWN = 3 * COUNT + 1


@pytest.fixture(scope="module")
def serving():
    with Agent() as running:
        yield running


@pytest.fixture
def agent(serving):
    wait_until(lambda: not serving.look()["streams"], "the end of the jobs of the test before")
    return serving


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def data(folder):
    return agent_job.dataset(folder)


def loader(data, agent=None, size=4, *, sampler=None, **options):
    sampler = weighted(len(data), DRAWN) if sampler is None else sampler
    return DataLoader(data, size, sampler=sampler, return_index=True, agent=agent, **options)


def check_prepared_elsewhere(ours):
    stats = ours.stats()
    assert stats["samples"] > 0 and stats["bytes_read"] == 0


def test_weighted_with_replacement(data, agent):
    """The same pixels: repeats of a sample in an epoch have random parameters of their own."""
    with loader(data, agent.socket) as ours:
        plain = loader(data)
        for _ in range(3):
            epoch = taken(ours)
            assert len(indices(epoch)) == DRAWN > len(set(indices(epoch)))
            assert same(epoch, taken(plain))
        check_prepared_elsewhere(ours)
        (queue,) = wait_until(
            lambda: [q for q in agent.queues() if q["waits_for"] == "sampler"], "an idle queue"
        )
        assert queue["sampler"] and queue["prepared"] == 3 * DRAWN
        assert (queue["epoch"], queue["position"], queue["epoch_samples"]) == (2, DRAWN, None)
        assert sum(s["samples"] for s in agent.subscribers()) == 3 * DRAWN


def test_epochs_that_are_left_and_chosen(data, agent):
    with loader(data, agent.socket) as ours:
        plain = loader(data)
        for count in (3, None, 1):
            assert same(taken(ours, count), taken(plain, count))
        for each in (ours, plain):
            each.set_epoch(9)
            iter(each)
            each.set_epoch(7)
        assert same(taken(ours), taken(plain))


def test_batches_of_any_size(data, agent):
    """Also batches larger than the batch sampler's size, for which the agent makes another ring."""
    sizes = [3, 1, 9, 2, 2, 30, 1, 5] * 3
    order = itertools.cycle(range(COUNT))
    batches = [list(itertools.islice(order, size)) for size in sizes]
    plain = DataLoader(data, batch_sampler=batches, return_index=True)
    with DataLoader(data, batch_sampler=batches, return_index=True, agent=agent.socket) as ours:
        for _ in range(2):
            epoch = taken(ours)
            assert [len(batch[0]) for batch in epoch] == sizes
            assert same(epoch, taken(plain))
        check_prepared_elsewhere(ours)


def test_all_batches_are_kept(data, agent):
    """More batches than the ring holds; they do not change."""
    with loader(data, agent.socket, 2, prefetch_factor=8) as ours:
        kept = list(ours)
        assert same(kept, taken(loader(data, None, 2)))


def test_an_endless_sampler(data, agent):
    with loader(data, agent.socket, sampler=itertools.cycle(range(COUNT))) as ours:
        plain = loader(data, sampler=itertools.cycle(range(COUNT)))
        assert same(taken(ours, 3 * COUNT), taken(plain, 3 * COUNT))


def test_a_wrong_index_is_an_error_at_its_turn(data, agent):
    for socket in (None, agent.socket):
        with loader(data, socket, 1, sampler=[3, 1, COUNT]) as ours:
            epoch = iter(ours)
            assert [int(next(epoch)[2]) for _ in range(2)] == [3, 1]
            with pytest.raises(IndexError, match=f"no sample {COUNT}"):
                next(epoch)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_resume_within_an_epoch(data, agent, before, after):
    """A state is the same with an agent and without."""
    whole = taken(loader(data))
    with loader(data, agent.socket if before else None) as first:
        found = taken(first, 5)
        state = first.state_dict()
    with loader(data, agent.socket if after else None) as second:
        second.load_state_dict(state)
        found += taken(second)
    assert same(found, whole)


def test_jobs_beside_each_other(data, agent):
    """Three jobs with orders of their own, and a stream, at the same time."""

    def orders(socket):
        drawn = loader(data, socket)
        some = loader(data, socket, 7, sampler=SubsetRandomSampler(range(3, 30)))
        batches = BatchSampler(weighted(COUNT, DRAWN, seed=6), 5, True)
        cut = DataLoader(data, batch_sampler=batches, return_index=True, agent=socket)
        return [drawn, cut, some]

    own = orders(agent.socket)
    stream = DataLoader(data, 4, shuffle=True, return_index=True, agent=agent.socket, stream="s")
    readers = [Reader(each, 4) for each in (*own, stream)]
    results = [reader.result() for reader in readers]
    for ours, plain in zip(results[:2], orders(None)[:2], strict=True):
        for epoch in ours:
            assert same(epoch, taken(plain))
    for epoch in results[2]:
        assert sorted(indices(epoch)) == list(range(3, 30))
    plain = DataLoader(data, 4, shuffle=True, return_index=True)
    assert all(same(epoch, taken(plain)) for epoch in results[3])
    for each in (*own, stream):
        each.close()


def test_a_killed_job_leaves_nothing(folder, data, agent):
    options = {"agent": agent.socket, "batch_size": 4}
    with loader(data, agent.socket) as ours:
        plain = loader(data)
        epoch = iter(ours)
        found = [tuple(t.clone() for t in next(epoch))]
        with Job(folder, options, drawn=DRAWN, epochs=1000) as job:
            assert job.next()["ready"]
            told = job.batches(5)
            assert [b["index"] for b in told] == [b[2].tolist() for b in taken(loader(data), 5)]
            assert len(agent.queues()) == 2
            job.send(signal.SIGKILL)
            job.status()
        wait_until(lambda: len(agent.queues()) == 1, "the end of the killed job's queue")
        found += [tuple(t.clone() for t in batch) for batch in epoch]
        assert same(found, taken(plain))


def test_auto_goes_on_with_another_agent(data, default_socket):
    """The next agent prepares the batches that were not delivered: none is lost or repeated."""
    ours, plain = loader(data, "auto", 3), loader(data, None, 3)
    for _ in range(2):
        found = []
        for n, batch in enumerate(ours):
            found.append(tuple(t.clone() for t in batch))
            if n in (0, 11):
                os.kill(headrace.agent_status()["pid"], signal.SIGKILL)
        assert same(found, taken(plain))
    assert ours.stats()["reattached"] == 4
    ours.close()


def test_a_killed_agent_with_a_path_is_an_error(data):
    plain = taken(loader(data))
    with Agent() as lost:
        ours = loader(data, lost.socket)
        epoch = iter(ours)
        found = [tuple(t.clone() for t in next(epoch)) for _ in range(2)]
        lost.kill()
        with pytest.raises(ConnectionResetError):
            for batch in epoch:
                found.append(tuple(t.clone() for t in batch))
        with Agent(socket=lost.socket):
            found += taken(ours)  # continues at its position
            ours.close()
    assert same(found, plain)


@pytest.fixture
def spoiled(folder):
    """Two of its files do not exist."""
    paths = [str(p) for p, _ in headrace.ImageFolder(folder).samples]
    bad = str(folder / "no such file.jpg")
    samples = [(bad if i in (2, 11) else path, i) for i, path in enumerate(paths)]
    return headrace.ImageList(samples, agent_job.dataset(folder).transform)


def test_a_bad_sample_ends_the_epoch(spoiled, agent):
    told = []
    for socket in (None, agent.socket):
        order = [5, 6, 7, 8, 9, 2, 10]
        with loader(spoiled, socket, 2, sampler=order) as ours:
            for _ in range(2):
                epoch = iter(ours)
                found = [next(epoch)[2].tolist() for _ in range(2)]
                with pytest.raises(headrace.SampleError) as caught:
                    next(epoch)
                told.append((found, caught.value.index, str(caught.value)))
    assert told[0][:2] == ([[5, 6], [7, 8]], 2)
    assert told[:2] == told[2:]


def test_bad_samples_that_are_skipped(spoiled, agent):
    """The same samples replace them, and they are reported in the same way."""
    data, options = spoiled, {"on_error": "skip", "max_bad_share": 0.5}
    with loader(data, agent.socket, **options) as ours:
        plain = loader(data, **options)
        assert same(taken(ours), taken(plain))
        assert ours.skipped() == plain.skipped() and ours.skipped()
