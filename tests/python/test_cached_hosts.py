"""CachedDataset on the memcached servers of several hosts: samples are shared between processes, and
right whatever happens to the servers."""

import logging
import os
import pickle
import random
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import forked
from agents import wait_until
from counted import Files, Numbers, calls, right
from headrace import CachedDataset
from servers import Memcached, Servers
from test_hosts_faults import poison

@pytest.fixture
def servers():
    with Servers([Memcached(), Memcached()]) as servers:
        yield servers


@pytest.fixture
def numbers(tmp_path):
    return Numbers(tmp_path / "calls")


def opened(dataset, servers, identity="numbers", **options):
    return CachedDataset(dataset, servers.text(**{"timeout": "30s", **options}), identity=identity)


def check(cached, dataset, indices=range(40)):
    assert all(right(cached[i], dataset, i) for i in indices)


def made(dataset):
    """The samples that were made because they were asked for: sample 0 names the dataset."""
    return [i for i in calls(dataset) if i]


def test_each_sample_is_made_once(numbers, servers):
    with opened(numbers, servers) as cached:
        for _ in range(3):
            check(cached, numbers)
        assert made(numbers) == list(range(1, 40))
        assert all(server.items > 5 for server in servers)
        info = cached.info()
        assert (info["hits"], info["misses"], info["refused"]) == (80, 40, 0)
        assert info["items"][0] == 40 and info["budget_bytes"] == 2 * 32 << 20
    with opened(numbers, servers) as cached:  # a later run
        check(cached, numbers)
        assert cached.info()["misses"] == 0


RANK = """
import pathlib
import sys
import torch
import headrace.torch
import forked
from agents import wait_until
from counted import Numbers, right
from headrace import CachedDataset

def main():
    rank, kind, log, text = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    numbers = Numbers(log)
    cached = CachedDataset(numbers, text, identity="numbers")
    if kind == "ours":
        options = {"rank": rank, "world_size": 2, "shuffle": True, "num_workers": 2}
        loader = headrace.torch.DataLoader(cached, 4, **options)
    else:
        sampler = torch.utils.data.DistributedSampler(cached, 2, rank)
        loader = torch.utils.data.DataLoader(
            cached, 4, sampler=sampler, num_workers=2, multiprocessing_context=kind)
    for epoch in range(3):
        (loader if kind == "ours" else sampler).set_epoch(epoch)
        seen = 0
        for images, labels in loader:
            seen += len(labels)
            assert all(right((a, int(i)), numbers, int(i)) for a, i in zip(images, labels))
        assert seen == 20, seen
        if epoch == 0:
            place = pathlib.Path(log).parent
            (place / f"done-{rank}").touch()
            wait_until((place / f"done-{1 - rank}").exists, "the other rank's first epoch")

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("kind", ["ours", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("fork", "spawn"))])
def test_ranks_on_two_hosts(numbers, servers, tmp_path, kind):
    """Two processes with identities of their own, each with worker processes."""
    script = tmp_path / "rank.py"
    script.write_text(RANK)

    ranks = [
        forked.Popen(
            [sys.executable, script, str(rank), kind, str(numbers.log),
             servers.text(self=rank, timeout="30s")],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]  # fmt: skip
    assert [rank.wait(300) for rank in ranks] == [0, 0]
    # In later epochs each rank found what the other one had made.
    assert made(numbers) == list(range(1, 40))


def test_a_server_that_is_killed(numbers, servers, caplog):
    with opened(numbers, servers) as cached:
        check(cached, numbers)
        before = len(made(numbers))
        kept = servers[1].items
        servers[0].send(signal.SIGKILL)
        with caplog.at_level(logging.WARNING, "headrace"):
            for _ in range(2):
                check(cached, numbers)
        [line] = [r.getMessage() for r in caplog.records]
        assert servers[0].address in line and "its items are made anew until it answers" in line
        assert len(made(numbers)) - before <= 2 * (40 - kept)
        assert servers[1].items == kept  # others do not take its samples over

        servers[0].restart()

        def served():
            before = len(made(numbers))
            check(cached, numbers)
            return len(made(numbers)) == before

        wait_until(served, "the server is used again")
        assert servers[0].items + kept == 40


def test_no_server_at_all(numbers, tmp_path):
    cached = CachedDataset(numbers, f"memcached:{tmp_path}/a,{tmp_path}/b?size=1MiB", identity="a")
    for _ in range(2):
        check(cached, numbers)
    assert cached.info()["hits"] == 0
    cached.close()


def test_a_server_that_hangs(numbers, servers):
    with opened(numbers, servers, timeout="50ms") as cached:
        check(cached, numbers)
        servers[0].send(signal.SIGSTOP)
        try:
            for _ in range(2):
                check(cached, numbers)
        finally:
            servers[0].send(signal.SIGCONT)


def change_all(server, change):
    """Replaces each item's value by `change` of it."""
    with server._connect() as link, link.makefile("rb") as answer:
        link.sendall(b"lru_crawler metadump all\r\n")
        lines = iter(answer.readline, b"END\r\n")
        keys = [line.split()[0][4:].replace(b"%3A", b":") for line in lines]
        for key in keys:
            link.sendall(b"get " + key + b"\r\n")
            value = change(answer.read(int(answer.readline().split()[3])))
            assert answer.readline() + answer.readline() == b"\r\nEND\r\n"
            link.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
            assert answer.readline() == b"STORED\r\n"
    return len(keys)


CHANGES = {
    "a newer version": lambda value: value[:-44] + bytes([value[-44] + 1]) + value[-43:],
    "another length": lambda value: value[:-1],
    "a bit": lambda value: value[:100] + bytes([value[100] ^ 1]) + value[101:],
    "nothing": lambda value: b"",
}


@pytest.mark.parametrize("what", CHANGES)
def test_changed_items_are_made_again(numbers, servers, what):
    with opened(numbers, servers) as cached:
        check(cached, numbers)
        for server in servers:
            assert change_all(server, CHANGES[what]) > 5
        before = len(made(numbers))
        check(cached, numbers)
        assert len(made(numbers)) == before + 39
        check(cached, numbers)  # they were stored again
        assert len(made(numbers)) == before + 39


def test_values_of_other_keys(numbers, servers):
    with opened(numbers, servers) as cached:
        check(cached, numbers)
        assert all(poison(server) > 5 for server in servers)
        check(cached, numbers)


def test_datasets_never_mix(servers, tmp_path):
    """Though somebody gave them one identity."""

    class Others(Numbers):
        pass

    many = [Numbers(tmp_path / "a"), Numbers(tmp_path / "b", offset=1), Others(tmp_path / "c"),
            Numbers(tmp_path / "d", count=39)]  # fmt: skip
    for numbers in many:
        with opened(numbers, servers) as cached:
            check(cached, numbers, range(1, 39))
        assert made(numbers) == list(range(1, 39))
    for numbers in many:
        with opened(numbers, servers) as cached:
            check(cached, numbers, range(1, 39))
        assert made(numbers) == list(range(1, 39))
    with opened(many[0], servers, "another version") as cached:
        cached[1]
        assert cached.info()["misses"] == 1


def test_a_sample_larger_than_an_item(tmp_path, caplog):
    numbers = Numbers(tmp_path / "calls", count=4, size=(1 << 20) // 4)
    with (
        Servers([Memcached(options=("-M",))]) as servers,  # 1 MiB is memcached's own limit
        opened(numbers, servers) as cached,
        caplog.at_level(logging.WARNING, "headrace"),
    ):
        for _ in range(2):
            check(cached, numbers, range(4))
        assert made(numbers) == [1, 1, 2, 2, 3, 3]
        assert cached.info()["refused"] == 8 and servers[0].items == 0
    [line] = [r.getMessage() for r in caplog.records]
    assert line.startswith("sample 0 takes 1048") and "raise memcached's -I" in line


def test_budgets(numbers, servers):
    with opened(numbers, servers, size="40kB") as cached:
        for _ in range(3):
            check(cached, numbers)
        info = cached.info()
        assert info["refused"] > 20 and 10 < info["items"][0] < 20
        assert info["used_bytes"] < 1.1 * info["budget_bytes"]
        assert made(numbers).count(39) in (1, 3)


def test_a_full_server(tmp_path):
    """It refuses, and nothing is evicted."""
    numbers = Numbers(tmp_path / "calls", count=60, size=100_000)
    with Servers([Memcached(16)]) as servers, opened(numbers, servers, size="1GiB") as cached:
        for _ in range(2):
            check(cached, numbers, range(60))
        assert cached.info()["refused"] and servers[0].stats()["evictions"] == "0"


def test_a_key_file(numbers, servers, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(random.randbytes(32))
        (tmp_path / name).chmod(0o600)
    for name, hits in (("a", 0), ("b", 0), ("b", 40)):
        with opened(numbers, servers, key_file=tmp_path / name) as cached:
            check(cached, numbers)
            assert cached.info()["hits"] == hits


def test_files(servers, folder, tmp_path):
    files = Files(folder, tmp_path / "calls")
    for name in ("first run", "second run"):
        with opened(files, servers) as cached:
            for i, (path, target) in enumerate(files.samples):
                data, found = cached[i]
                assert Path(path).read_bytes() == data and target == found, name
    assert servers[0].items + servers[1].items == len(files)


def test_pickled_and_forked(numbers, servers):
    with opened(numbers, servers) as cached:
        check(cached, numbers)
        with pickle.loads(pickle.dumps(cached)) as again:
            check(again, numbers)
            assert again.info()["misses"] == 0
        for images, labels in DataLoader(cached, 5, num_workers=1):
            assert torch.equal(images, torch.stack([torch.tensor(numbers.image(int(i))) for i in labels]))
        assert made(numbers) == list(range(1, 40))
        check(cached, numbers)  # the child closed no connection of its parent's


def test_views_outlive_the_cache(numbers, servers):
    with CachedDataset(numbers, servers.text(timeout="30s"), identity="numbers", copy=False) as cached:
        check(cached, numbers)
        views = [cached[i] for i in range(40)]
    assert not views[3][0].flags.writeable
    assert all(right(view, numbers, i) for i, view in enumerate(views))


def test_random_samples_are_refused(tmp_path, servers):
    class Drawn(Numbers):
        def __getitem__(self, index):
            image, label = super().__getitem__(index)
            return image + np.random.randint(1 << 30), label

    with opened(Drawn(tmp_path / "calls"), servers) as cached:
        with pytest.raises(ValueError, match="Drawn are random.*after="):
            cached[3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"identity": None}, "a cache on several hosts needs to know what a .*Numbers is"),
        ({"cache": "memcached:a?size=1GiB&form=planes"}, "has no form="),
        ({"cache": "memcached:a?size=1GiB&mtime=no"}, "has no mtime=no"),
        ({"cache": "memcached:a"}, "size"),
        ({"cache": "memcached:a:x?size=1GiB"}, "invalid port"),
        ({"files": lambda file: 0}, "attribute `loader`"),
    ],
)
def test_refused_arguments(numbers, options, message):
    with pytest.raises(ValueError, match=message):
        CachedDataset(numbers, **{"cache": "memcached:a?size=1GiB", "identity": "a", **options})


def test_files_in_a_list_of_paths(servers, folder, tmp_path):
    class Paths(Files):
        def __getitem__(self, index):
            return self.loader(self.samples[index])

    files = Paths(folder, tmp_path / "calls")
    files.samples = [path for path, _ in files.samples]
    with opened(files, servers) as cached:
        for i, path in enumerate(files.samples):
            assert bytes(cached[i]) == Path(path).read_bytes()
    assert servers[0].items + servers[1].items == len(files)


def test_files_without_a_list(numbers):
    numbers.loader = len
    with pytest.raises(ValueError, match="by their first file.*no list of `samples`"):
        CachedDataset(numbers, "memcached:a?size=1GiB", identity="a", files=True)
