"""A disk before the memory of several hosts: what no memory holds is read once, too."""

import os

import pytest
import torch

import headrace
import headrace.transforms as T
from buckets import Proxy, rclone_server, with_keys
from headrace.torch import DataLoader
from servers import Memcached, Ranks, Servers, global_batches
from test_hosts import LONG, check, long_folder, plain, truth  # noqa: F401

SIZE = 16  # of a rank's batch: so large that no host has more than that on its disk alone


@pytest.fixture
def servers():
    with Servers(Memcached() for _ in range(2)) as running:
        yield running


def total_of(data):
    return sum(os.path.getsize(path) for path, _ in data.samples)


def on_disks(servers, place, memory, **options):
    """Options of ranks that have a directory each, as on hosts of their own."""
    def change(rank):
        text = servers.text(size=f"{memory}", **options)
        return {"cache": f"disk:{place / str(rank)}?size=64MiB,{text}&self={rank % 2}"}
    return change


def disk_items(ranks):
    return sum(loader.stats()["disk_items"] for loader in ranks.loaders)


@pytest.mark.parametrize("form", ["encoded", "coefficients"])
def test_all_is_read_once(plain, truth, servers, tmp_path, form):  # noqa: F811
    total = total_of(plain)
    memory = total * 3 // 10 * (1 if form == "encoded" else 2)  # of each host
    change = on_disks(servers, tmp_path, memory, form=form)
    with Ranks(plain, servers, size=SIZE, change=change) as ranks:
        check(truth, ranks.epoch(), 0, size=SIZE)
        first = ranks.stats()
        for epoch in (1, 2):
            check(truth, ranks.epoch(), epoch, size=SIZE)
        last = ranks.stats()
        kept = disk_items(ranks)
        hits = sum(loader.stats()["disk_hits"] for loader in ranks.loaders)
        planned = sum(host["planned_items"] for host in ranks.loaders[0].hosts())
    assert first["bytes_read"] == total == last["bytes_read"]
    assert 0 < planned < LONG and kept == LONG - planned and hits >= 2 * kept
    for server in servers:
        server.restart()  # empty
    with Ranks(plain, servers, size=SIZE, change=change) as ranks:
        check(truth, ranks.epoch(), 0, size=SIZE)
        again = ranks.stats()["bytes_read"]
        assert disk_items(ranks) == kept
    assert 0 < again < total  # what was in memory alone


def test_a_disk_that_is_full(plain, truth, servers, tmp_path):  # noqa: F811
    """What has room nowhere is read again, and nothing is wrong."""
    total = total_of(plain)

    def change(rank):
        text = servers.text(size=f"{total // 10}")
        return {"cache": f"disk:{tmp_path / str(rank)}?size={total // 5},{text}&self={rank}"}

    with Ranks(plain, servers, size=SIZE, change=change) as ranks:
        check(truth, ranks.epoch(), 0, size=SIZE)
        first = ranks.stats()["bytes_read"]
        check(truth, ranks.epoch(), 1, size=SIZE)
        second = ranks.stats()["bytes_read"] - first
    # Memory holds a fifth of it and the disks two; where the next image does not fit, some room is left.
    assert first == total and total * 2 // 5 <= second < total * 7 // 10


def test_exact_keeps_what_each_host_reads(plain, truth, servers, tmp_path):  # noqa: F811
    total = total_of(plain)
    change = on_disks(servers, tmp_path, total // 5)
    with Ranks(plain, servers, size=SIZE, change=change, assignment="exact") as ranks:
        for epoch in range(3):
            check(truth, ranks.epoch(), epoch, size=SIZE)
        assert total <= ranks.stats()["bytes_read"] < 2 * total
        assert disk_items(ranks) > 0


def test_from_a_bucket_each_object_is_asked_for_once(tmp_path, folder, servers):
    shelf = tmp_path / "store"
    names = [path.relative_to(folder) for path in sorted(folder.rglob("*.*"))]
    names = names[: len(names) // 2 * 2]  # so that no batch is padded with a sample of another host
    for path in names:
        target = shelf / "birds/train" / path.parts[0] / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((folder / path).read_bytes())
    recipe = T.Compose([T.Resize((32, 32)), T.ToTensor()])
    with rclone_server(shelf) as port:
        proxy = Proxy(port)
        try:
            with with_keys(proxy.url):
                data = headrace.ImageFolder("s3://birds/train", recipe)
                total = sum(p.stat().st_size for p in (shelf / "birds/train").rglob("*.*"))
                proxy.requests.clear()
                change = on_disks(servers, tmp_path / "disks", total // 4)
                (tmp_path / "disks").mkdir()
                with Ranks(data, servers, size=len(data) // 2, change=change) as ranks:
                    for _ in range(3):
                        found = [i for b in global_batches(ranks.epoch()) for i in b]
                        assert set(found) == set(range(len(data)))
                    assert disk_items(ranks) > 0
                assert len(proxy.requests) == len(data)
        finally:
            proxy.close()


def test_refusals(plain, servers, tmp_path, monkeypatch):  # noqa: F811
    text = servers.text(self=0)

    def create(cache):
        return DataLoader(plain, 4, cache=cache, rank=0, world_size=1)

    for cache, why in [
        (f"disk:{tmp_path}/a?size=1GiB&form=planes,{text}", "beside memory keeps files"),
        (f"disk:{tmp_path}/a,{text}", "needs a size"),
        (f"64MiB,{text}", "two tiers are memory and a disk behind it"),
        (f"shm:a?size=64MiB,{text}", "two tiers are memory and a disk behind it"),
        (f"disk:{tmp_path}/none/a?size=1GiB,{text}", "none"),
    ]:
        with pytest.raises((ValueError, OSError), match=why):
            create(cache)
    with create(f"disk:{tmp_path}/a?size=64MiB,{text}") as loader:
        with pytest.raises(ValueError, match="the disk stays as it is"):
            loader.set_hosts(f"disk:{tmp_path}/a?size=64MiB,{text}", epoch=1)
        loader.set_hosts(text, epoch=1)
    with pytest.raises((ValueError, NotImplementedError), match="is for loaders"):
        headrace.CachedDataset([torch.zeros(1)], f"disk:{tmp_path}/a?size=64MiB,{text}",
                               identity="x")


def test_disks_of_different_sizes_are_reported(plain, servers, tmp_path):  # noqa: F811
    def change(rank):
        return {"cache": f"disk:{tmp_path / str(rank)}?size={64 + rank}MiB,"
                f"{servers.text()}&self={rank}"}

    with Ranks(plain, servers, change=change) as ranks:
        ranks.each(lambda rank, loader: next(iter(loader)))
        for error in ranks.errors:
            assert "the size of the disk before the hosts" in str(error)
