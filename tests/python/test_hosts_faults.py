"""Faults of networks and broken servers for a cache on several hosts: short versions of the soak.

A proxy (tests/soak/hosts_proxy.py) stands before each of two servers.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import torch

import headrace
import headrace.transforms as T
from agents import Truth, wait_until
from conftest import COUNT
from servers import Memcached, Ranks, free_port, global_batches

PROXY = Path(__file__).parents[1] / "soak" / "hosts_proxy.py"
SIZE = 2


class Ways:
    """Two servers behind proxies; `set` changes the connection to one of them."""

    def __init__(self, place: Path):
        self.servers = []
        self.process = None
        try:
            for i in range(2):
                self.servers.append(Memcached(path=str(place / f"{i}.sock")))
            self.ports = [free_port(), free_port()]
            self.process = subprocess.Popen([sys.executable, str(PROXY)], text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.tell({"servers": [["127.0.0.1", port, server.path] for port, server
                                   in zip(self.ports, self.servers, strict=True)]})
        except BaseException:
            self.close()
            raise
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.hosts = f"memcached:{hosts}?size=32MiB&meet=600s"
        self.text = f"{self.hosts}&timeout=200ms"

    def tell(self, order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() in ("ready\n", "done\n")

    def set(self, server, way, number=0.0):
        self.tell({"server": server, "way": way, "number": number})

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait(600)
            self.process.stdout.close()
        for server in self.servers:
            server.stop()


@pytest.fixture
def ways():
    # Not tmp_path, which only root can enter: servers that root starts run as another user.
    with tempfile.TemporaryDirectory(prefix="headrace-hosts-") as place:
        Path(place).chmod(0o777)
        ways = Ways(Path(place))
        yield ways
        ways.close()


@pytest.fixture(scope="module")
def plain(folder):
    recipe = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor()])
    return headrace.ImageFolder(folder, recipe)


@pytest.fixture(scope="module")
def truth(plain):
    return Truth(plain, shuffle=True, seed=11)


def check(truth, ranks, epoch):
    """Checks that each global batch has the samples of a single process, bit for bit."""
    order = truth.order(epoch)
    step = SIZE * len(ranks)
    batches = global_batches(ranks)
    assert len(batches) == -(-COUNT // step)
    for g, found in enumerate(batches):
        places = order[g * step : (g + 1) * step]
        assert found == sorted(places + order[: -len(places) % len(ranks)])
    for images, labels, index in (batch for batches in ranks for batch in batches):
        for image, label, i in zip(images, labels, index.tolist(), strict=True):
            right, its_label = truth.epochs[epoch][i]
            assert torch.equal(image, right) and label == its_label


def until_served(ranks, truth, epoch):
    """Reads epochs, each of which must be right, until one reads nothing from storage."""
    deadline = time.monotonic() + 600
    while True:
        read = ranks.stats()["bytes_read"]
        check(truth, ranks.epoch(), epoch)
        if ranks.stats()["bytes_read"] == read:
            return
        assert time.monotonic() < deadline, [loader.hosts() for loader in ranks.loaders]
        epoch += 1


@pytest.mark.parametrize("way, number", [("slow", 0.1), ("trickle", 0.01), ("cut", 0), ("flip", 0),
                                         ("flip", 1), ("endless", 0), ("silent", 0),
                                         ("refuse", 0)])
def test_a_server_that_answers_wrongly(plain, truth, ways, way, number):
    def each(rank, batch):
        if rank == 0 and batch == 2:
            ways.set(1, way, number)

    with Ranks(plain, ways.servers, SIZE, cache=ways.text) as ranks:
        check(truth, ranks.epoch(), 0)
        check(truth, ranks.epoch(each), 1)
        check(truth, ranks.epoch(), 2)
        ways.set(1, "pass")
        until_served(ranks, truth, 3)


def test_other_values_under_the_keys_of_items(plain, truth, ways):
    with Ranks(plain, ways.servers, SIZE, cache=f"{ways.hosts}&timeout=20s") as ranks:
        check(truth, ranks.epoch(), 0)
        until_served(ranks, truth, 1)
        epoch = ranks.loaders[0].state_dict()["epoch"]
        for server in ways.servers:
            assert poison(server) > 4
        check(truth, ranks.epoch(), epoch)
        assert any("checksum" in host["problem"] for host in ranks.loaders[0].hosts())
        until_served(ranks, truth, epoch + 1)


def poison(server):
    """Gives each item the value of the next one; returns their number."""
    with server._connect() as link, link.makefile("rb") as answer:
        link.sendall(b"lru_crawler metadump all\r\n")
        lines = iter(answer.readline, b"END\r\n")
        keys = [line.split()[0][4:].replace(b"%3A", b":") for line in lines]
        keys = [key for key in keys if key.startswith(b"hr1:")]
        values = []
        for key in keys:
            link.sendall(b"get " + key + b"\r\n")
            values.append(answer.read(int(answer.readline().split()[3])))
            assert answer.readline() + answer.readline() == b"\r\nEND\r\n"
        for key, value in zip(keys, values[1:] + values[:1], strict=True):
            link.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
            assert answer.readline() == b"STORED\r\n"
    return len(keys)


def test_a_rank_that_is_cut_off_before_the_first_batch(plain, truth, ways):
    """It waits until it reaches a server, for the other rank's record."""
    def change(rank):
        own = f"&socket={ways.servers[0].path}" if rank == 0 else ""
        return {"cache": f"{ways.text}&self={rank}{own}"}

    for server in range(2):
        ways.set(server, "refuse")
    healed = threading.Event()

    def heal():
        healed.set()
        for server in range(2):
            ways.set(server, "pass")

    heals = threading.Timer(1.5, heal)
    heals.start()
    try:
        with Ranks(plain, ways.servers, SIZE, cache=ways.text, change=change) as ranks:
            check(truth, ranks.epoch(), 0)
            assert healed.is_set()
            wait_until(lambda: all(h["is_up"] for h in ranks.loaders[1].hosts()), "both are up")
    finally:
        heals.join()
