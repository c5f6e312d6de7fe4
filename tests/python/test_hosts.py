"""Caches on several hosts, with real memcached servers: right data, right batches, faults."""

import itertools
import os
import signal
import tempfile
import threading
import time

import pytest
import torch
from torch import nn

import headrace
import headrace.transforms as T
from agents import Truth, wait_until
from conftest import COUNT, in_child
from headrace.torch import DataLoader, _hosts
from servers import Memcached, Ranks, Servers, global_batches

REPEAT = 6
LONG = REPEAT * COUNT


@pytest.fixture
def servers():
    with Servers(Memcached() for _ in range(2)) as running:
        yield running


def long_of(folder, tmp_path):
    """Makes a folder of `count` files, links to those of the small one."""
    for c in sorted(p for p in folder.iterdir()):
        for n in range(REPEAT):
            for path in c.rglob("*.*"):
                below = tmp_path / "long" / c.name
                below.mkdir(parents=True, exist_ok=True)
                (below / f"{n}-{path.name}").hardlink_to(path)
    time.sleep(0.05)  # making a link changes the file's ctime, so the files count as just written
    return tmp_path / "long"


@pytest.fixture(scope="module")
def long_folder(folder, tmp_path_factory):
    return long_of(folder, tmp_path_factory.mktemp("hosts"))


@pytest.fixture
def long(long_folder, recipe):
    return headrace.ImageFolder(long_folder, recipe)


@pytest.fixture(scope="module")
def truth(long_folder):
    """The epochs of a single process without a cache."""
    recipe = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor()])
    return Truth(headrace.ImageFolder(long_folder, recipe), shuffle=True, seed=11)


@pytest.fixture
def plain(long_folder):
    """The same dataset as in `truth`."""
    recipe = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor()])
    return headrace.ImageFolder(long_folder, recipe)


def check(truth, ranks, epoch, start=0, size=4):
    """Checks that each global batch has the samples of a single process, bit for bit, each once."""
    order = truth.order(epoch)
    step = size * len(ranks)
    for g, found in enumerate(global_batches(ranks)):
        places = order[start + g * step : start + (g + 1) * step]
        wanted = places + order[: -len(places) % len(ranks)]  # the last batch is padded
        assert found == sorted(wanted), g
    assert start + sum(len(b) for b in global_batches(ranks)) >= LONG
    for batches in ranks:
        for images, labels, index in batches:
            for image, label, i in zip(images, labels, index.tolist(), strict=True):
                right, its_label = truth.epochs[epoch][i]
                assert torch.equal(image, right) and label == its_label


def until(ranks, truth, epoch, condition, limit_s=600):
    """Reads epochs from `epoch` on, each of which must be right, until the condition holds."""
    deadline = time.monotonic() + limit_s
    for number in itertools.count(epoch):
        check(truth, ranks.epoch(), number)
        if condition():
            return
        assert time.monotonic() < deadline, ranks.loaders[1].hosts()


@pytest.mark.parametrize("assignment", ["local", "exact"])
@pytest.mark.parametrize("count", [2, 3])
def test_the_global_batches_are_those_of_one_host(plain, truth, servers, assignment, count):
    with Ranks(plain, servers, count=count, assignment=assignment) as ranks:
        check(truth, ranks.epoch(), 0)
        first = ranks.stats()
        wait_until(lambda: ranks.stats()["stored"] == LONG, "all items stored")
        check(truth, ranks.epoch(), 1)
        later = ranks.stats()
        check(truth, ranks.epoch(), 2)
        last = ranks.stats()
    assert last["bytes_read"] == later["bytes_read"]  # everything is in memory
    hits = later["own_hits"] + later["peer_hits"] - first["own_hits"] - first["peer_hits"]
    assert hits >= LONG - 8 * count  # except items that the first epochs had begun to read ahead
    own = last["own_hits"] - first["own_hits"]
    peer = last["peer_hits"] - first["peer_hits"]
    if assignment == "local":
        assert own > 2 * peer
    else:
        assert peer > own / 2


def test_the_first_epoch_reads_each_file_once(plain, servers):
    total = sum(os.path.getsize(path) for path, _ in plain.samples)
    with Ranks(plain, servers, size=6) as ranks:
        ranks.epoch()
        read = ranks.stats()["bytes_read"]
    assert read == total


class Network(nn.Module):
    """Convolutions with group norm, in float64."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
        )  # fmt: skip
        self.double()


def trained(ranks):
    """Trains data-parallel with the batches of all ranks: each step uses the mean gradient."""
    torch.manual_seed(5)
    network = Network()
    optimiser = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    gradients = []
    for together in zip(*ranks, strict=True):
        optimiser.zero_grad()
        for images, labels, _ in together:
            loss = nn.functional.cross_entropy(network.body(images.double()), labels)
            (loss / len(together)).backward()
        gradients.append(torch.cat([p.grad.flatten().clone() for p in network.parameters()]))
        optimiser.step()
    return gradients, torch.cat([p.detach().flatten() for p in network.parameters()])


def test_the_gradient_is_the_same(plain, servers):
    found = {}
    for assignment in ("local", "exact"):
        with Ranks(plain, servers, size=16, assignment=assignment, drop_last=True) as ranks:
            ranks.epoch()
            batches = ranks.epoch()
            found[assignment] = (*trained(batches), [b[2].tolist() for b in batches[0]])
    (local, local_weights, dealt), (exact, exact_weights, cut) = found.values()
    assert dealt != cut and len(local) == LONG // 32
    for a, b in zip(local, exact, strict=True):
        assert torch.linalg.norm(a - b) <= 1e-5 * torch.linalg.norm(b)
    assert torch.linalg.norm(local_weights - exact_weights) <= 1e-5 * torch.linalg.norm(exact_weights)


DIFFERENCES = {
    "seed": lambda rank, s, d: {"seed": rank},
    "shuffle": lambda rank, s, d: {"shuffle": rank == 0},
    "batch size": lambda rank, s, d: {"batch_size": 4 + rank},
    "drop_last": lambda rank, s, d: {"drop_last": rank == 0},
    "assignment": lambda rank, s, d: {"assignment": ("local", "exact")[rank]},
    "budget": lambda rank, s, d: {"cache": s.text(f"{32 + rank}MiB", self=rank)},
    "list": lambda rank, s, d: {"cache": s.text(count=2 - rank, self=0)},
    "form": lambda rank, s, d: {"cache": s.text(self=rank, form=("encoded", "planes")[rank])},
    "dataset": lambda rank, s, d: {"data": d[rank]},
}


@pytest.mark.parametrize("what", DIFFERENCES)
def test_a_difference_is_named_before_the_first_batch(plain, recipe, folder, servers, what):
    data = [plain, headrace.ImageFolder(folder, recipe)]
    with Ranks(plain, servers, change=lambda r: DIFFERENCES[what](r, servers, data)) as ranks:
        given = ranks.each(lambda rank, loader: next(iter(loader)))
        assert given == [None, None]
        for error in ranks.errors:
            assert isinstance(error, ValueError), error
            wanted = ("hosts", "budget") if what in ("budget", "list") else (what,)
            wanted = ("samples", "dataset") if what == "dataset" else wanted
            assert any(word in str(error) for word in wanted), error
            assert "rank" in str(error)


def test_this_host_has_to_be_named(plain, servers, monkeypatch):
    with pytest.raises(ValueError, match="both this machine.*HEADRACE_HOST=0 or HEADRACE_HOST=1"):
        DataLoader(plain, 4, cache=servers.text())
    monkeypatch.setenv("HEADRACE_HOST", servers[1].address)
    with DataLoader(plain, 4, cache=servers.text()) as loader:
        assert [host["is_self"] for host in loader.hosts()] == [False, True]
    monkeypatch.setenv("HEADRACE_HOST", "elsewhere")
    with pytest.raises(ValueError, match="HEADRACE_HOST=elsewhere is none of the 2 hosts"):
        DataLoader(plain, 4, cache=servers.text())


def test_a_server_that_restarts_in_mid_epoch(plain, truth, servers):
    begun = threading.Event()

    def each(rank, number):
        if number == 5 and rank == 0:
            servers[1].restart()
            begun.set()

    with Ranks(plain, servers) as ranks:
        check(truth, ranks.epoch(), 0)
        wait_until(lambda: ranks.stats()["stored"] == LONG, "all items stored")
        check(truth, ranks.epoch(each), 1)
        assert begun.is_set()
        # A server that was down is retried only now and then, and epochs of this test are short.
        planned = ranks.loaders[0].hosts()[1]["planned_items"]
        until(ranks, truth, 2, lambda: servers[1].items >= planned)
        read = ranks.stats()["bytes_read"]
        epoch = ranks.loaders[0].state_dict()["epoch"]
        check(truth, ranks.epoch(), epoch)
        assert ranks.stats()["bytes_read"] == read


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_ends_or_hangs(plain, truth, servers, fault):
    def each(rank, number):
        if number == 3 and rank == 1:
            servers[0].send(fault)

    text = servers.text(timeout="200ms" if fault == signal.SIGSTOP else "20s")
    with Ranks(plain, servers, cache=text) as ranks:
        check(truth, ranks.epoch(), 0)
        check(truth, ranks.epoch(each), 1)
        check(truth, ranks.epoch(), 2)
        (down, up) = ranks.loaders[1].hosts()
        # Not is_up: on a busy machine the time may have come to ask the server again.
        assert down["failures"] and down["problem"]
        if fault == signal.SIGKILL:  # the other one may have answered later than a short timeout
            assert up["is_up"] and not up["problem"]
        if fault == signal.SIGSTOP:
            servers[0].send(signal.SIGCONT)
            until(ranks, truth, 3, lambda: all(h["is_up"] for h in ranks.loaders[1].hosts()))


@pytest.mark.parametrize("count", [1, 3])
def test_a_state_goes_on_with_other_ranks(plain, truth, servers, count):
    def some(rank, loader):
        epoch = iter(loader)
        return [tuple(t.clone() for t in next(epoch)) for _ in range(7)], loader.state_dict()

    with Ranks(plain, servers) as ranks:
        check(truth, ranks.epoch(), 0)
        (head, state), (other, its_state) = ranks.good(some)
    assert state == its_state and state["position"] == 7 * 8
    with Ranks(plain, servers, count=count) as ranks:
        ranks.good(lambda rank, loader: loader.load_state_dict(state))
        check(truth, ranks.epoch(), 1, start=56)
        check(truth, ranks.epoch(), 2)
    seen = [i for batch in head + other for i in batch[2].tolist()]
    assert sorted(seen) == sorted(truth.order(1)[:56])


def test_ranks_at_different_places_are_reported(plain, servers):
    with Ranks(plain, servers) as ranks:
        ranks.good(lambda rank, loader: loader.set_epoch(rank))
        assert ranks.each(lambda rank, loader: next(iter(loader))) == [None, None]
        for error in ranks.errors:
            assert isinstance(error, ValueError) and "epoch" in str(error), error


def test_hosts_change_at_an_epoch(plain, truth, servers):
    with Memcached() as third, Ranks(plain, servers, count=3, hosts=2) as ranks:
        check(truth, ranks.epoch(), 0)
        check(truth, ranks.epoch(), 1)
        assert len(ranks.loaders[0].hosts()) == 2
        more = Servers([*servers, third])
        ranks.good(lambda rank, loader: loader.set_hosts(more.text(self=rank)))
        check(truth, ranks.epoch(), 2)
        hosts = ranks.loaders[2].hosts()
        assert [h["name"] for h in hosts] == [s.address for s in more]
        assert sum(h["planned_items"] for h in hosts) == LONG
        assert [h["is_self"] for h in hosts] == [False, False, True]
        wait_until(lambda: third.items >= hosts[2]["planned_items"], "the third host's items")
        check(truth, ranks.epoch(), 3)
        before = ranks.stats()["bytes_read"]
        check(truth, ranks.epoch(), 4)
        assert ranks.stats()["bytes_read"] == before
        # One host again, for ranks that now all belong to it or to none.
        ranks.good(lambda rank, loader: loader.set_hosts(servers.text(count=1), epoch=5))
        check(truth, ranks.epoch(), 5)
        assert len(ranks.loaders[0].hosts()) == 1


def test_hosts_that_differ_at_a_change(plain, servers):
    with Ranks(plain, servers) as ranks:
        ranks.epoch()
        ranks.good(lambda rank, loader: loader.set_hosts(servers.text(f"{16 + rank}MiB", self=rank)))
        ranks.each(lambda rank, loader: next(iter(loader)))
        for error in ranks.errors:
            assert isinstance(error, ValueError) and "hosts" in str(error), error


def test_nonsense_of_set_hosts_changes_nothing(plain, truth, servers):
    with Ranks(plain, servers) as ranks:
        with pytest.raises(ValueError, match="size"):
            ranks.loaders[0].set_hosts("memcached:a?size=lots")
        with pytest.raises(ValueError):
            ranks.loaders[0].set_hosts("64MiB")
        check(truth, ranks.epoch(), 0)


def test_ranks_know_how_all_waited(plain, truth, servers):
    with Ranks(plain, servers) as ranks:
        check(truth, ranks.epoch(), 0)
        assert "wait_spread_s" not in ranks.loaders[0].stats()
        check(truth, ranks.epoch(), 1)
        one, other = (loader.stats() for loader in ranks.loaders)
        for name in ("rank_wait_s", "rank_ready_s", "wait_spread_s", "ready_spread_s"):
            assert one[name] == other[name]
        assert len(one["rank_wait_s"]) == 2 and all(w >= 0 for w in one["rank_wait_s"])
        assert one["ready_spread_s"] == max(one["rank_ready_s"]) - min(one["rank_ready_s"])
        rates = [loader.rates() for loader in ranks.loaders]
        assert [r["host"] for r in rates] == [0, 1]
        for r in rates:
            assert r["own_bytes_per_s"] > 0 and r["prepare_bytes_per_s"] > 0


def test_rates_by_hand(plain, truth, servers):
    """A host with storage a hundred times slower reads fewer of the samples that must be read."""
    text = servers.text("60KB")
    with Ranks(plain, servers, cache=text, gather=False, size=16, drop_last=True) as ranks:
        ranks.epoch()
        rates = [loader.rates() for loader in ranks.loaders]
        for r, storage in zip(rates, (1e6, 1e8)):
            r.update(own_bytes_per_s=1e9, peer_bytes_per_s=1e8, storage_bytes_per_s=storage)
            r.update(prepare_bytes_per_s=1e9)
        ranks.good(lambda rank, loader: loader.set_rates(rates))
        before = [loader.stats()["bytes_read"] for loader in ranks.loaders]
        batches = ranks.epoch()
        slow, fast = (
            loader.stats()["bytes_read"] - b for loader, b in zip(ranks.loaders, before)
        )
        order = truth.order(1)
        assert [set(b) for b in global_batches(batches)] == [
            set(order[g * 32 : g * 32 + 32]) for g in range(LONG // 32)
        ]
    assert fast > slow


def test_the_default_assignment_is_logged_once(plain, servers, caplog, monkeypatch):
    monkeypatch.setattr(_hosts, "_said_local", False)

    def lines(**options):
        caplog.clear()
        with Ranks(plain, servers, **options) as ranks:
            ranks.each(lambda rank, loader: iter(loader))
            return [r.message for r in caplog.records if "assignment='exact'" in r.message]

    assert lines(assignment="local") == lines(assignment="exact") == lines(count=1) == []
    assert lines(cache=servers.text(count=1), hosts=1) == []
    (line,) = lines()
    assert "the 2 hosts that keep them" in line
    assert lines() == []


def test_a_fork_and_a_copy_for_measuring(plain, truth, servers):
    with Ranks(plain, servers) as ranks:
        check(truth, ranks.epoch(), 0)
        loader = ranks.loaders[0]
        assert in_child(lambda: (loader.stats()["samples"], len(loader.hosts()))) == "(0, 2)"
        copy = loader._measured_copy([[5, 3], [1]])
        assert [index.tolist() for *_, index in copy] == [[5, 3], [1]]
        assert copy.hosts() == []
        copy.close()
        check(truth, ranks.epoch(), 1)


def test_epochs_left_early_and_begun_again(plain, truth, servers):
    def left(rank, loader):
        for number in range(4):
            for done, _ in enumerate(loader):
                if done == 3 * number:
                    break

    with Ranks(plain, servers) as ranks:
        ranks.good(left)
        check(truth, ranks.epoch(), 4)
        for _ in range(2):
            ranks.good(lambda rank, loader: loader.set_epoch(2))
            check(truth, ranks.epoch(), 2)


def test_one_rank_with_two_hosts(plain, truth, servers):
    with Ranks(plain, servers, count=1) as ranks:
        check(truth, ranks.epoch(), 0)
        check(truth, ranks.epoch(), 1)
        before = ranks.stats()
        check(truth, ranks.epoch(), 2)
        assert ranks.stats()["bytes_read"] == before["bytes_read"]
        assert [h["is_self"] for h in ranks.loaders[0].hosts()] == [True, False]


@pytest.mark.parametrize("form", ["coefficients", "planes", "indexed"])
def test_items_of_other_forms(plain, truth, servers, form):
    with Ranks(plain, servers, cache=servers.text(form=form)) as ranks:
        for epoch in range(3):
            check(truth, ranks.epoch(), epoch)
        stats = ranks.stats()
        assert stats["own_hits"] > 0 and stats["refused"] == 0


@pytest.fixture
def place():
    """A folder with a short name that an unprivileged server may write to."""
    with tempfile.TemporaryDirectory(prefix="hr-") as path:
        os.chmod(path, 0o777)
        yield path


def test_unix_sockets(plain, truth, place):
    options = ("-M", "-I", "8m", "-a", "0777")
    with Servers(Memcached(path=f"{place}/{n}", options=options) for n in range(2)) as servers:
        with Ranks(plain, servers) as ranks:
            for epoch in range(2):
                check(truth, ranks.epoch(), epoch)
            assert ranks.stats()["own_hits"] > 0


def test_bad_samples_are_replaced_as_ever(long_folder, tmp_path, folder, servers):
    root = long_of(folder, tmp_path)
    bad = sorted(root.rglob("*.jpg"))[7]
    data = bad.read_bytes()
    bad.unlink()
    bad.write_bytes(data[:100])
    recipe = T.Compose([T.RandomResizedCrop(32), T.ToTensor()])
    with Ranks(
        headrace.ImageFolder(root, recipe), servers, on_error="skip", max_bad_share=0.1
    ) as ranks:
        for _ in range(3):
            assert len({i for b in global_batches(ranks.epoch()) for i in b}) == LONG - 1
        skipped = {s.path for loader in ranks.loaders for s in loader.skipped()}
        assert skipped == {str(bad)}


def test_an_item_limit_of_a_server(long_folder, tmp_path, plain, truth):
    """Samples larger than the smallest -I are read from storage each epoch."""
    sizes = [os.path.getsize(path) for path, _ in plain.samples]
    assert max(sizes) < 1 << 20  # the smallest -I that memcached accepts
    with Servers([Memcached(options=("-M", "-I", "8k", "-o", "slab_chunk_max=4096")), Memcached()]) as servers:
        if servers[0].stats("settings")["item_size_max"] != "8192":
            pytest.skip("this memcached takes no such -I")
        large = sum(s for s in sizes if s > 8000)
        assert large
        with Ranks(plain, servers) as ranks:
            check(truth, ranks.epoch(), 0)
            check(truth, ranks.epoch(), 1)
            before = ranks.stats()
            check(truth, ranks.epoch(), 2)
            after = ranks.stats()
        assert after["bytes_read"] - before["bytes_read"] >= large
        assert after["refused"] == 0
