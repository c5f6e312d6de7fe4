"""Caches that keep what is used next: samplers are drawn ahead without a trace, reads are near
Belady's, several loaders share one budget, and what cannot be is refused by name."""

import copy
import heapq
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import headrace
from conftest import in_child
from counted import segments
from headrace import transforms as T
from headrace.torch import DataLoader
from headrace.torch._ahead import Ahead, inner, is_known, repeats
from headrace.torch._feed import feed_of
from test_cache import epoch, same

PHOTOGRAPHS = 160
WEIGHTS = torch.linspace(0.2, 5, PHOTOGRAPHS)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Real photographs, each a file of its own."""
    found = sorted((Path(__file__).parents[2] / "data" / "sample").glob("*/*.jpg"))
    if len(found) < PHOTOGRAPHS:
        pytest.skip("too few photographs: make demo or tools/make_samples.py makes some")
    root = tmp_path_factory.mktemp("photographs") / "all"
    root.mkdir()
    for i, path in enumerate(found[:: len(found) // PHOTOGRAPHS][:PHOTOGRAPHS]):
        os.symlink(path, root / f"{i:03}.jpg")
    transform = T.Compose([T.RandomResizedCrop(32), T.ToDtype("float32", scale=True)])
    dataset = headrace.ImageFolder(root.parent, transform)
    dataset.sizes = [os.path.getsize(path) for path, _ in dataset.samples]
    dataset.total = sum(dataset.sizes)
    return dataset


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def weighted(seed=5, count=PHOTOGRAPHS):
    return WeightedRandomSampler(WEIGHTS, count, generator=generator(seed))


def belady(sizes, orders, budget, skipped):
    """Returns the bytes that the orders read after the first `skipped` of them, if what is used
    last is evicted, and nothing is kept that is used later than what it would replace."""
    uses = [i for order in orders for i in order]
    begins = sum(map(len, orders[:skipped]))
    following, last = [0] * len(uses), {}
    for at in reversed(range(len(uses))):
        following[at] = last.get(uses[at], len(uses))
        last[uses[at]] = at
    next_of, heap, free, read = {}, [], budget, 0
    for at, sample in enumerate(uses):
        there = sample in next_of
        if not there:
            read += sizes[sample] if at >= begins else 0
            victims = []
            while free < sizes[sample] and heap and -heap[0][0] > following[at]:
                when, victim = heapq.heappop(heap)
                if next_of.get(victim) == -when:
                    victims.append(victim)
                    free += sizes[victim]
                    del next_of[victim]
            there = free >= sizes[sample]
            free -= sizes[sample] if there else 0
        if there:
            next_of[sample] = following[at]
            heapq.heappush(heap, (-following[at], sample))
    return read


# Drawing ahead

SAMPLERS = {
    "weighted": (lambda: weighted(), True, True),
    "weighted, torch's generator": (lambda: WeightedRandomSampler(WEIGHTS, 50), True, True),
    "each once, by weight": (
        lambda: WeightedRandomSampler(WEIGHTS, PHOTOGRAPHS, False, generator()),
        True,
        False,
    ),
    "replacement": (lambda: RandomSampler(range(70), True, 100, generator()), True, True),
    "replacement, torch's generator": (lambda: RandomSampler(range(70), True), True, True),
    "a part": (lambda: RandomSampler(range(70), False, 30, generator()), True, True),
    "shuffled": (lambda: RandomSampler(range(70)), True, False),
    "subset": (lambda: SubsetRandomSampler(range(9, 60), generator()), True, False),
    "in order": (lambda: SequentialSampler(range(70)), True, False),
    "batches": (lambda: BatchSampler(weighted(count=90), 8, True), True, True),
    "batches, the last smaller": (lambda: BatchSampler(weighted(count=90), 8, False), True, True),
    "unknown": (lambda: DistributedSampler(range(70), 2, 0), False, False),
}


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("name", SAMPLERS)
def test_what_is_drawn_ahead_comes(name, drop_last):
    make, known, repeating = SAMPLERS[name]
    source, stock = make(), make()
    assert is_known(source) == known and repeats(source) == repeating
    if not known:
        return
    batched = isinstance(source, BatchSampler)
    feed = feed_of(
        None if batched else source,
        source if batched else None,
        batch_size=8,
        drop_last=drop_last and not batched,
    )
    cuts = source.drop_last if batched else drop_last
    ahead = Ahead(PHOTOGRAPHS, 8 if cuts else 1)
    orders = []
    for number in range(4):
        torch.manual_seed(number)
        theirs = [i for batch in stock for i in batch] if batched else list(stock)
        after = torch.get_rng_state()
        torch.manual_seed(number)
        feed.begin()
        orders.append(ahead.draw(source, *feed.start_of(inner(source)), number=number))
        taken = [i for batch in iter(feed.take, None) for i in batch[0]]
        if drop_last and not batched:
            del theirs[len(theirs) - len(theirs) % 8 :]
        assert taken == theirs == list(orders[-1][0])
        assert torch.equal(torch.get_rng_state(), after)
    if getattr(inner(source), "generator", None) is None and name != "in order":
        # Each epoch began in a state of its own, so nothing was said of the next one.
        assert all(len(drawn) == 1 for drawn in orders)
    else:
        assert all(len(drawn) > 1 for drawn in orders)
        for this, following in zip(orders, orders[1:]):
            assert this[1] == following[0]


def test_the_global_generator_is_believed_once_it_was_alone():
    sampler = WeightedRandomSampler(WEIGHTS, PHOTOGRAPHS)
    feed, ahead = feed_of(sampler, None, batch_size=8, drop_last=False), Ahead(PHOTOGRAPHS, 1)

    def draw(number):
        feed.begin()
        return ahead.draw(sampler, *feed.start_of(sampler), number=number)

    torch.manual_seed(1)
    first, second = draw(0), draw(1)
    assert len(first) == 1 and len(second) == 3
    assert draw(2)[0] == second[1]
    torch.rand(1)  # as dropout does
    assert len(draw(3)) == 1


def test_the_end_of_the_run_is_known():
    sampler, ahead = weighted(), Ahead(PHOTOGRAPHS, 1)
    feed = feed_of(sampler, None, batch_size=8, drop_last=False)
    feed.begin()
    for left, epochs in ((1, 1), (2, 2), (None, 3), (9, 3)):
        drawn = ahead.draw(sampler, *feed.start_of(sampler), number=0, left=left)
        assert len(drawn) == epochs
    few = weighted(count=3)
    state = few.generator.get_state()
    assert len(Ahead(PHOTOGRAPHS, 1).draw(few, state, None, number=0)) == 8


def test_repeated_augmentation_is_drawn_by_epoch():
    timm_data = pytest.importorskip("timm.data.distributed_sampler")
    sampler = timm_data.RepeatAugSampler(range(600), 1, 0, selected_round=0, selected_ratio=3)
    assert is_known(sampler) and repeats(sampler)
    feed, ahead = feed_of(sampler, None, batch_size=8, drop_last=False), Ahead(600, 1)

    def draw(number):
        feed.begin()
        return ahead.draw(sampler, *feed.start_of(sampler), number=number)

    drawn = []
    for number in range(3):
        sampler.set_epoch(number)
        draw(number)  # frameworks begin an epoch twice
        drawn.append(draw(number))
        assert list(sampler) == list(drawn[-1][0]) and sampler.epoch == number
    assert drawn[0][1] == drawn[1][0] and drawn[1][2] == drawn[2][1]
    again = draw(3)  # nobody called set_epoch, so the order stays
    assert again[0] == again[1] == drawn[2][0]


# One loader


@pytest.mark.parametrize("form", ["encoded", "coefficients", "auto"])
def test_batches_are_as_without_a_cache(data, form):
    loader = DataLoader(data, 8, sampler=weighted(), cache=data.total // 2, cache_form=form)
    plain = DataLoader(data, 8, sampler=weighted())
    for _ in range(3):
        assert same(epoch(loader)[0], epoch(plain)[0])
    assert torch.equal(loader.sampler.generator.get_state(), plain.sampler.generator.get_state())
    assert loader.stats()["cache_bytes"] <= data.total // 2
    assert "used next" in loader.explain() and "used next" not in plain.explain()
    loader.close(), plain.close()


def test_reads_are_near_belady(data):
    epochs, skipped, budget = 9, 2, data.total // 2
    stock = weighted()
    orders = [list(stock) for _ in range(epochs)]
    loader = DataLoader(
        data, 8, sampler=weighted(), cache=budget, cache_form="encoded", epochs=epochs
    )
    reads = [epoch(loader)[1] for _ in range(epochs)]
    best = belady(data.sizes, orders, budget, skipped)
    first_come = DataLoader(  # a class that is not known
        data, 8, sampler=Mine(weighted()), cache=budget, cache_form="encoded"
    )
    never = [epoch(first_come)[1] for _ in range(epochs)]
    assert "came first" in first_come.explain() and "Mine" in first_come.explain()
    assert best <= sum(reads[skipped:]) <= 1.5 * best
    assert sum(reads[skipped:]) < 0.8 * sum(never[skipped:])
    loader.close(), first_come.close()


class Mine:
    """A sampler of which nothing is known."""

    def __init__(self, sampler):
        self.inside = sampler

    def __iter__(self):
        return iter(self.inside)

    def __len__(self):
        return len(self.inside)


def test_an_epoch_that_was_left_is_resumed(data):
    def make():
        return DataLoader(data, 8, sampler=weighted(), cache=data.total // 2)

    with make() as loader, make() as other, DataLoader(data, 8, sampler=weighted()) as plain:
        expected = [epoch(plain)[0] for _ in range(3)]
        assert same(epoch(loader)[0], expected[0])
        batches = iter(loader)
        taken = [[x.clone() for x in next(batches)] for _ in range(5)]
        assert same(taken, expected[1][:5])
        other.load_state_dict(copy.deepcopy(loader.state_dict()))
        assert same(epoch(other)[0], expected[1][5:])
        assert same(epoch(other)[0], expected[2])


def test_batches_that_grow(data):
    batches = BatchSampler(weighted(), 24, False)
    with DataLoader(data, batch_sampler=batches, cache=data.total // 2) as loader:
        for _ in range(2):
            assert sum(len(labels) for _, labels in loader) == PHOTOGRAPHS


def test_ranks_with_samplers_share_the_host_s_memory(data):
    """Each file is read once by all of them, as without a sampler."""
    others = segments()
    ranks = [
        DataLoader(
            data,
            8,
            sampler=SubsetRandomSampler(range(PHOTOGRAPHS), generator(rank)),
            cache="64MiB",
            rank=rank,
            world_size=2,
        )
        for rank in range(2)
    ]
    plain = DataLoader(data, 8, sampler=SubsetRandomSampler(range(PHOTOGRAPHS), generator(0)))
    assert len(segments()) == len(others) + 1
    batches, read = epoch(ranks[0])
    assert read == data.total and same(batches, epoch(plain)[0])
    assert epoch(ranks[1])[1] == 0
    for loader in ranks:
        loader.close()
    assert sorted(segments()) == sorted(others)


def test_ranks_that_repeat_samples_share_one_segment(data):
    """What a rank uses next is not what the host does: each tells its own."""
    others = segments()
    with DataLoader(
        data, 8, sampler=weighted(), cache="64MiB", rank=0, world_size=2
    ) as loader:
        assert "all who use it use next" in loader.explain()
        epoch(loader)
        assert len(segments()) == len(others) + 1


# Several loaders


def parts(data, budget, **options):
    """Training on most of the photographs, and validation on the others in the same budget."""
    train, val = Subset(data, range(120)), Subset(data, range(120, PHOTOGRAPHS))
    options = {"cache_form": "encoded", **options}
    training = DataLoader(train, 8, shuffle=True, seed=3, cache=budget, **options)
    return training, DataLoader(val, 8, cache=training, **options)


def held(*loaders):
    return sum(loader.stats()["cache_bytes"] for loader in loaders)


def test_two_loaders_share_one_budget(data):
    budget = data.total // 2
    training, validation = parts(data, budget)
    plain = parts(data, "1GiB")
    orders, reads = [], 0
    for number in range(8):
        order = [int(i) for batch in training.batch_sampler for i in batch]
        orders.append(order)
        batches, read = epoch(training)
        assert same(batches, epoch(plain[0])[0])
        reads += read if number >= 2 else 0
        if number % 2:
            orders.append(list(range(120, PHOTOGRAPHS)))
            batches, read = epoch(validation)
            assert same(batches, epoch(plain[1])[0])
            reads += read if number >= 2 else 0
        assert 0 < held(training, validation) <= budget
    best = belady(data.sizes, orders, budget, skipped=3)
    assert best <= reads <= 1.5 * best
    assert "of all its loaders" in training.explain()
    for loader in (training, validation, *plain):
        loader.close()


def test_the_loaders_of_a_budget_come_and_go(data):
    budget = data.total // 2
    training, validation = parts(data, budget)
    epoch(training), epoch(validation)
    training.close()
    assert validation.stats()["cache_hits"] == 0
    for _ in range(2):
        _, read = epoch(validation)
    assert read == 0 and held(validation) <= budget
    third = DataLoader(Subset(data, range(50)), 8, cache=validation, cache_form="encoded")
    epoch(third)
    assert held(validation, third) <= budget
    with pytest.raises(RuntimeError, match="closed"):
        DataLoader(data, 8, cache=training)
    validation.close(), third.close()


def test_a_sampler_of_ones_own_in_a_shared_budget(data):
    training = DataLoader(data, 8, sampler=Mine(weighted()), cache=data.total // 2)
    validation = DataLoader(Subset(data, range(40)), 8, cache=training)
    assert "Mine" in training.explain()
    with DataLoader(data, 8, sampler=Mine(weighted())) as plain:
        for _ in range(2):
            assert same(epoch(training)[0], epoch(plain)[0])
            epoch(validation)
    assert held(training, validation) <= data.total // 2
    training.close(), validation.close()


def test_a_forked_child_has_a_budget_of_its_own(data):
    budget = data.total // 2
    training, validation = parts(data, budget)
    first = epoch(training)[0], epoch(validation)[0]

    def run():
        training.set_epoch(0), validation.set_epoch(0)
        right = same(epoch(training)[0], first[0]) and same(epoch(validation)[0], first[1])
        return right and 0 < held(training, validation) <= budget

    assert in_child(run) == "True"
    assert 0 < held(training, validation) <= budget
    training.set_epoch(0)
    assert same(epoch(training)[0], first[0])
    training.close(), validation.close()


def test_a_child_that_is_killed_leaves_nothing(data):
    training, validation = parts(data, data.total // 2)
    epoch(training), epoch(validation)
    before = segments()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        for number, _ in enumerate(training):
            if number == 3:
                os.write(writer, b"x")
        for _ in validation:
            pass
        signal.pause()
    assert os.read(reader, 1) == b"x"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader), os.close(writer)
    assert segments() == before
    batches, _ = epoch(validation)
    assert len(batches) == 5
    training.close(), validation.close()


def test_what_cannot_share_is_refused(data, monkeypatch):
    half = data.total // 2
    with DataLoader(data, 8) as bare, pytest.raises(ValueError, match="has no cache"):
        DataLoader(data, 8, cache=bare)
    with DataLoader(data, 8, cache="shm:mine?size=64MiB") as kept:
        with pytest.raises(ValueError, match="share=0.9"):
            DataLoader(data, 8, cache=kept)
    with DataLoader(data, 8, cache=half, shuffle=True) as training:
        batches = iter(training)
        next(batches)
        with pytest.raises(RuntimeError, match="middle of an epoch"):
            DataLoader(data, 8, cache=training)
        for _ in batches:
            pass
        with pytest.raises(ValueError, match="one of 2 ranks"):
            DataLoader(data, 8, cache=training, rank=0, world_size=2)
        with pytest.raises(ValueError, match="leave agent or cache out"):
            DataLoader(data, 8, cache=training, agent="auto")
    with pytest.raises(TypeError, match="whole number"):
        DataLoader(data, 8, cache=data)


def test_accelerate_keeps_one_budget(data):
    accelerate = pytest.importorskip("accelerate")
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()
    budget = data.total // 2
    training, validation = parts(data, budget)
    ours = accelerate.Accelerator(cpu=True).prepare(training, validation)
    for _ in range(2):
        assert [len(list(loader)) for loader in ours] == [15, 5]
    inside = [loader.base_dataloader for loader in ours]
    assert 0 < held(*inside) <= budget
    third = DataLoader(Subset(data, range(50)), 8, cache=ours[0], cache_form="encoded")
    assert len(list(third)) == 7
    assert held(*inside, third) <= budget
    for loader in (*inside, third):
        loader.close()


# Jobs with orders of their own on one name


def about(name):
    """Returns what `headrace cache info` says of the only segment of a name."""
    command = [Path(sys.executable).with_name("headrace"), "cache", "info", name, "--json"]
    (cache,) = json.loads(subprocess.check_output(command))["caches"]
    return cache


def test_jobs_with_orders_of_their_own_evict_by_next_use(data):
    name = f"orders{os.getpid()}"
    kept = f"shm:{name}?size={data.total // 2}&form=encoded"
    seeds, number = (1, 2), 0
    plain = [DataLoader(data, 8, shuffle=True, seed=seed) for seed in seeds]
    jobs = [DataLoader(data, 8, shuffle=True, seed=seed, cache=kept) for seed in seeds]
    assert all("those that all of them use next" in job.explain() for job in jobs)

    def run():
        """Runs an epoch of both jobs side by side, and compares their batches. Returns the bytes that
        they read."""
        nonlocal number
        before = sum(job.stats()["bytes_read"] for job in jobs)
        for loader in plain + jobs:
            loader.set_epoch(number)
        number += 1
        for batches in zip(*plain, *jobs, strict=True):
            for (images, labels), (ours, our_labels) in zip(batches[:2], batches[2:]):
                assert torch.equal(images, ours) and torch.equal(labels, our_labels)
        return sum(job.stats()["bytes_read"] for job in jobs) - before

    run()
    while not about(name)["evicted"]:
        run()
        assert number < 200
    assert about(name)["orders"] == 2
    reads = [run() for _ in range(4)]
    assert sum(reads) / len(reads) < 0.8 * data.total
    assert about(name)["used_bytes"] <= data.total // 2
    # One that is left evicts nothing.
    jobs.pop().close()
    plain.pop()
    run()
    run()
    assert about(name)["orders"] == 0
    evicted = about(name)["evicted"]
    run()
    assert about(name)["evicted"] == evicted
    jobs.pop().close()
    subprocess.check_call([Path(sys.executable).with_name("headrace"), "cache", "drop", name])


def drop(name, *jobs):
    for job in jobs:
        job.close()
    subprocess.check_call([Path(sys.executable).with_name("headrace"), "cache", "drop", name])


def until_it_evicts(name, run, most=200):
    """Runs epochs until the segment has evicted something."""
    for _ in range(most):
        run()
        if about(name)["evicted"]:
            return
    raise AssertionError("nothing was evicted")


def test_a_sampler_that_repeats_evicts_on_a_name(data):
    """One job alone, as in a private cache: what its sampler draws next is kept."""
    name, budget = f"draws{os.getpid()}", data.total // 2
    kept = f"shm:{name}?size={budget}&form=encoded"
    job = DataLoader(data, 8, sampler=weighted(), cache=kept)
    plain = DataLoader(data, 8, sampler=weighted())
    assert "once it is full those that all who use it use next" in job.explain()
    orders, reads, stock = [], [], weighted()

    def run():
        batches, read = epoch(job)
        assert same(batches, epoch(plain)[0])
        orders.append(list(stock))
        reads.append(read)

    until_it_evicts(name, run)
    assert about(name)["orders"] == 1
    begun = len(reads)
    for _ in range(6):
        run()
    best = belady(data.sizes, orders, budget, begun)
    assert best <= sum(reads[begun:]) <= 1.5 * best
    assert about(name)["used_bytes"] <= budget
    drop(name, job), plain.close()


@pytest.mark.parametrize("other", ["shuffle", "weighted"])
def test_a_sampler_and_another_job_on_one_name(data, other):
    """Each job has a thread of its own, and its own epochs."""
    name = f"two{os.getpid()}"
    kept = f"shm:{name}?size={data.total // 2}&form=encoded"
    order = {"shuffle": True, "seed": 2} if other == "shuffle" else {"sampler": weighted(seed=9)}
    jobs = [DataLoader(data, 8, sampler=weighted(), cache=kept), DataLoader(data, 8, cache=kept, **order)]
    seen = []

    def run():
        for batches in zip(*jobs, strict=True):
            seen.append([len(labels) for _, labels in batches])
        if about(name)["orders"] == 2:
            seen.append("both")

    until_it_evicts(name, run)
    for _ in range(3):
        run()
    assert "both" in seen
    drop(name, *jobs)


def test_jobs_with_one_sampler_are_one_order(data):
    """A sampler that uses each sample once, with the same generator in both: nothing is evicted."""
    name = f"one{os.getpid()}"
    kept = f"shm:{name}?size={data.total // 2}&form=encoded"
    jobs = [
        DataLoader(data, 8, sampler=SubsetRandomSampler(range(PHOTOGRAPHS), generator(4)), cache=kept)
        for _ in range(2)
    ]
    for _ in range(6):
        for _ in zip(*jobs, strict=True):
            pass
    assert about(name)["refused"] > 0  # it is full
    assert about(name)["evicted"] == 0 and about(name)["orders"] == 0
    drop(name, *jobs)
