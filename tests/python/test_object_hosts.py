"""Lists of URLs on the memcached servers of several hosts: nobody knows the size and the ETag of an
object before it is read, and each is asked for once all the same."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pytest
from PIL import Image

import headrace
from buckets import Proxy, rclone_server, with_keys
from headrace import SampleError
from headrace import transforms as T
from servers import Memcached, Ranks, Servers

COUNT = 24
SMALL = T.Compose([T.Resize((16, 16)), T.ToTensor()])


def picture(number):
    pixels = np.random.default_rng(number).integers(0, 255, (30, 30, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture(scope="module")
def servers():
    with Servers(Memcached() for _ in range(2)) as running:
        yield running


@pytest.fixture
def bucket(tmp_path):
    """(the bucket's folder, a proxy before its server)."""
    folder = tmp_path / "store/birds/images"
    folder.mkdir(parents=True)
    for number in range(COUNT):
        (folder / f"{number}.jpg").write_bytes(picture(number))
    with rclone_server(tmp_path / "store") as port:
        proxy = Proxy(port)
        yield folder, proxy
        proxy.close()


def listed():
    """A list of its own for each rank, as separate processes have."""
    return headrace.ImageList([(f"s3://birds/images/{n}.jpg", n) for n in range(COUNT)], SMALL)


def digests(rank, loader):
    return {index: hashlib.sha256(image.numpy().tobytes()).hexdigest()
            for images, _, indices in loader
            for index, image in zip(indices.tolist(), images, strict=True)}


def asked_for(ranks):
    return sum(loader.stats()["object_requests"] for loader in ranks.loaders)


def ranks_of(servers, count=2, **options):
    return Ranks(None, servers, count=count, change=lambda rank: {"data": listed()}, **options)


@pytest.mark.parametrize("count", [2, 3])
def test_each_object_is_asked_for_once(bucket, servers, count):
    folder, proxy = bucket
    with with_keys(proxy.url):
        with ranks_of(servers, count) as ranks:
            first = ranks.good(digests)
            assert asked_for(ranks) == COUNT
            truth = {index: digest for found in first for index, digest in found.items()}
            assert set(truth) == set(range(COUNT))
            for _ in range(3):
                for found in ranks.good(digests):
                    assert all(truth[index] == digest for index, digest in found.items())
            assert asked_for(ranks) == COUNT
            assert ranks.stats()["own_hits"] + ranks.stats()["peer_hits"] >= 3 * COUNT
        # a later run knows no version of any: it finds nothing of the earlier one
        (folder / "5.jpg").write_bytes(picture(500))
        with ranks_of(servers, count) as ranks:
            again = {index: digest for found in ranks.good(digests)
                     for index, digest in found.items()}
            assert {n for n in range(COUNT) if again[n] != truth[n]} == {5}
            assert asked_for(ranks) == COUNT


def test_an_object_that_is_replaced(bucket, servers):
    """The run keeps the version that it read first, and takes no other for it."""
    folder, proxy = bucket
    with with_keys(proxy.url), ranks_of(servers) as ranks:
        truth = {index: digest for found in ranks.good(digests) for index, digest in found.items()}
        for number in range(COUNT):
            (folder / f"{number}.jpg").write_bytes(picture(1000 + number))
        for found in ranks.good(digests):
            assert all(truth[index] == digest for index, digest in found.items())
        for server in servers:
            server.ask("flush_all")
        ranks.each(digests)
        assert any(isinstance(error, SampleError) and "replaced" in str(error)
                   for error in ranks.errors), ranks.errors


def test_objects_without_versions(bucket, servers, caplog):
    """Nothing tells whether they have changed: each epoch asks for them again, and a line says so."""
    _, proxy = bucket
    proxy.fault = lambda request: ("headers", {"ETag": 'W/"weak"'})
    with with_keys(proxy.url), ranks_of(servers) as ranks:
        for _ in range(2):
            ranks.good(digests)
        assert asked_for(ranks) == 2 * COUNT
    assert "not kept on hosts" in caplog.text
