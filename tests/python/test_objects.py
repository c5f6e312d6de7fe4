"""Datasets in buckets: the same samples as on a disk, from a real server, through every fault that
a network makes, with the credentials of AWS's tools, and with errors that say what to do."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading

import numpy as np
import pytest
import torch

import headrace
from agents import Agent
from buckets import (KEY, SECRET, Proxy, answer, certificate_for, refusal, settings, with_keys)
from headrace import ImageFolder, SampleError
from headrace import transforms as T
from headrace.torch import DataLoader
from object_store import load, picture, proxy, same_as_on_disk, store, write  # noqa: F401

ODD = ["a b", "c=d", "e+f", "g%20h", "i&j", "k'l", "m,n", "Füße", "~p", "q(r)", "s;t", "u@v"]


def test_folder(store, proxy):
    with with_keys(proxy.url):
        same_as_on_disk(store, "s3://birds/train/")
    samples = 63
    assert all(one.method == "GET" for one in proxy.requests)  # no HEAD, ever
    assert sum(not one.is_list for one in proxy.requests) == samples
    # the second open asks for the classes and a few pages, and opens no object
    proxy.requests.clear()
    with with_keys(proxy.url):
        assert len(ImageFolder("s3://birds/train")) == samples
    assert 1 <= len(proxy.requests) <= 5
    assert all(one.is_list for one in proxy.requests)


def test_index_notices_changes(store, proxy):
    folder = store[0] / "changing"
    write(folder, ["a/1.jpg", "a/2.jpg", "b/3.jpg"])
    with with_keys(proxy.url):
        assert len(ImageFolder("s3://birds/changing")) == 3
        write(folder, ["b/4.jpg"])
        assert len(ImageFolder("s3://birds/changing")) == 4
        (folder / "a/1.jpg").unlink()
        assert len(ImageFolder("s3://birds/changing")) == 3
        write(folder, ["c/5.jpg"])
        assert ImageFolder("s3://birds/changing").classes == ["a", "b", "c"]
    shutil.rmtree(folder)


def test_odd_keys_and_pages(store, proxy):
    folder = store[0] / "odd"
    write(folder, [f"{name}/{name}.jpg" for name in ODD])
    many = folder / "many"
    many.mkdir()
    (many / "0.jpg").write_bytes(picture(0))
    for number in range(1, 1100):
        os.link(many / "0.jpg", many / f"{number}.jpg")
    with with_keys(proxy.url):
        dataset = ImageFolder("s3://birds/odd")
        assert len(dataset) == len(ODD) + 1100
        assert dataset.classes == sorted([*ODD, "many"])
        there = ImageFolder(str(folder))
        assert dataset.targets == there.targets
        odd = [i for i, (path, _) in enumerate(dataset.samples) if "/many/" not in path]
        for i in odd:
            assert np.array_equal(np.asarray(dataset[i][0]), np.asarray(there[i][0]))
    assert sum("continuation-token" in one.target for one in proxy.requests) == 1
    shutil.rmtree(folder)


# ---- faults on the way ----


class Sometimes:
    """Makes a fault of each `every`-th request for an object, but not twice for one of them."""

    def __init__(self, fault, every=3):
        self.fault, self.every, self.count, self.hit = fault, every, 0, set()

    def __call__(self, request):
        self.count += 1
        if request.is_list or self.count % self.every or request.target in self.hit:
            return None
        self.hit.add(request.target)
        return self.fault


@pytest.mark.parametrize("fault", [
    answer(503, retry_after=0), refusal(503, "SlowDown"), refusal(429, "TooManyRequests"),
    refusal(500, "InternalError"), refusal(400, "RequestTimeout"), "reset", "close",
    ("cut", 0), ("cut", 100), ("last", b"not HTTP\r\n\r\n"),
    ("last", b"HTTP/1.1 403 No\r\nDate"), ("longer", 5),
], ids=["503", "SlowDown", "429", "500", "RequestTimeout", "reset", "close", "cut-0", "cut", "not-http",
        "cut-head", "longer"])
def test_passing_faults(store, proxy, fault):
    sometimes = proxy.fault = Sometimes(fault)
    with with_keys(proxy.url):
        if fault == ("longer", 5):  # another length than listed: another object
            with pytest.raises(SampleError, match="replaced after it was listed"):
                load("s3://birds/train")
            return
        same_as_on_disk(store)
    assert len(sometimes.hit) > 5


def test_listing_is_repeated(store, proxy):
    seen = set()

    def fault(request):
        if not request.is_list or request.target in seen:
            return None
        seen.add(request.target)
        return refusal(503, "SlowDown")

    proxy.fault = fault
    with with_keys(proxy.url, XDG_CACHE_HOME="/nowhere"):
        assert len(ImageFolder("s3://birds/train", index="none")) == 63


def test_a_hanging_server(store, proxy):
    proxy.fault = Sometimes("hang", every=10)
    with with_keys(proxy.url, HEADRACE_OBJECT_TIMEOUT=4):  # without a byte: given up after 0.5 s
        same_as_on_disk(store)


def test_a_store_that_never_recovers(store, proxy):
    with with_keys(proxy.url):
        load("s3://birds/train")
    with with_keys(proxy.url, HEADRACE_OBJECT_TIMEOUT=1):
        proxy.fault = lambda request: None if request.is_list else refusal(503, "SlowDown")
        with pytest.raises(SampleError) as caught:
            load("s3://birds/train")
    for part in ("s3://birds/train/", "fewer requests (503 SlowDown)", "given up after"):
        assert part in str(caught.value)


@pytest.mark.parametrize("what", ["deleted", "replaced"])
def test_objects_that_change(store, proxy, what):
    name = "/" "birds/train/dog/007.jpg"
    fault = refusal(404, "NoSuchKey") if what == "deleted" else ("headers", {"ETag": '"other"'})
    proxy.fault = lambda request: fault if request.target == name else None
    with with_keys(proxy.url):
        with pytest.raises(SampleError) as caught:
            load("s3://birds/train")
        assert f"s3:/{name}" in str(caught.value)
        assert "open the dataset again" in str(caught.value)
        assert what in str(caught.value)
        found, loader, _ = load("s3://birds/train", on_error="skip", max_bad_share=0.1)
    assert sum(found.values()) == 63
    assert [one.path for one in loader.skipped()] == [f"s3:/{name}"]


# ---- credentials ----


@pytest.mark.parametrize("url, variables, parts", [
    ("s3://nobucket/x", {}, ["no bucket nobucket", "check its name"]),
    ("s3://birds/train/dog", {}, ["no class directory in s3://birds/train/dog"]),
    ("s3://birds/nothing", {}, ["there is no s3://birds/nothing: .*check the name"]),
    ("s3://birds/train", {"AWS_SECRET_ACCESS_KEY": "other"}, ["the environment", "denied|wrong"]),
    ("s3://birds/train", {"AWS_ACCESS_KEY_ID": "otherkeyid"}, ["key of the environment"]),
    ("s3://birds/train", {"AWS_ENDPOINT_URL": "http://nowhere.invalid"}, ["name is not known"]),
    ("s3://birds/train", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, ["check that the server runs"]),
    ("s3://birds/train", {"AWS_ENDPOINT_URL": "ftp://x"}, ["ftp://"]),
    ("s3://birds/train", {"http_proxy": "http://127.0.0.1:1"}, ["no connection"]),
    ("s3://AKIA:geheim@birds/train", {}, ["password before an @"]),
    ("https://host.invalid/x?sig=geheim", {}, ["query"]),
    ("abfs://birds/train", {}, ["s3://, gs://, https://"]),
], ids=["bucket", "classes", "folder", "secret", "key", "dns", "port", "endpoint", "proxy", "userinfo",
        "query", "scheme"])
def test_errors_say_what_to_do(store, proxy, url, variables, parts):
    import re

    with with_keys(proxy.url):
        os.environ.update(variables)
        with pytest.raises((OSError, ValueError)) as caught:
            ImageFolder(url, index="none")
    for part in parts:
        assert re.search(part, str(caught.value)), str(caught.value)
    assert "geheim" not in str(caught.value) and SECRET not in str(caught.value)


def test_certificates(store, tmp_path):
    """A certificate that nobody vouches for is refused, and taken if AWS_CA_BUNDLE names it."""
    both, one = certificate_for(tmp_path)
    proxy = Proxy(store[1], certificate=both)
    try:
        with with_keys(proxy.url):
            with pytest.raises(OSError, match="no secure connection.*AWS_CA_BUNDLE"):
                ImageFolder("s3://birds/train", index="none")
        with with_keys(proxy.url, AWS_CA_BUNDLE=one):
            same_as_on_disk(store)
    finally:
        proxy.close()


def test_web_servers_have_no_folders(store):
    with pytest.raises(NotImplementedError, match="web servers have no listing"):
        ImageFolder("https://host.invalid/train")


# ---- processes ----


def test_fork(store, proxy):
    """A child goes on with a dataset that its parent has used, and the parent after it."""
    with with_keys(proxy.url):
        dataset = ImageFolder("s3://birds/train")
        first = np.asarray(dataset[0][0])
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            same = all(np.array_equal(np.asarray(dataset[0][0]), first) for _ in range(3))
            os.write(writer, b"same" if same else b"other")
            os._exit(0)
        for _ in range(3):
            assert np.array_equal(np.asarray(dataset[0][0]), first)
        os.waitpid(child, 0)
        assert os.read(reader, 10) == b"same"


def test_caches(store, proxy):
    """The second epoch comes from memory: no request."""
    with with_keys(proxy.url):
        dataset = ImageFolder("s3://birds/train",
                              transform=T.Compose([T.Resize((32, 32)), T.ToTensor()]))
        loader = DataLoader(dataset, batch_size=8, num_workers=2, cache="256MiB")
        for _ in loader:
            pass
        before = len(proxy.requests)
        for _ in loader:
            pass
    assert len(proxy.requests) == before


# ---- packs, shards and lists ----


def epoch(dataset, **options):
    """The digests of an epoch's samples in order, and the loader."""
    loader = DataLoader(dataset, batch_size=8, num_workers=2, **options)
    return [hashlib.sha256(x.numpy().tobytes()).hexdigest() for x, _ in loader], loader


SMALL = T.Compose([T.Resize((32, 32)), T.ToTensor()])


def test_pack(store, proxy):
    path = store[0] / "train.hrpack"
    headrace.pack(ImageFolder(str(store[0] / "train")), str(path))
    there, _ = epoch(headrace.Pack(str(path), transform=SMALL))
    with with_keys(proxy.url):
        dataset = headrace.Pack("s3://birds/train.hrpack", transform=SMALL)
        assert len(proxy.requests) <= 3
        found, _ = epoch(dataset)
        assert found == there
        assert headrace.pack_info("s3://birds/train.hrpack")["samples"] == 63
        assert headrace.verify_pack("s3://birds/train.hrpack") == []
        assert all("range" in one.headers for one in proxy.requests)
        # another pack in its place is noticed
        proxy.fault = lambda request: ("headers", {"ETag": '"other"'})
        with pytest.raises(SampleError, match="replaced after it was listed"):
            epoch(dataset)
        # a part that is cut is asked for again
        proxy.fault = Sometimes(("cut", 50))
        proxy.fault.hit = type("Never", (set,), {"__contains__": lambda self, one: False})()
        assert epoch(dataset, prefetch_factor=2)[0] == there
        assert len(proxy.fault.hit) == 1
        path.write_bytes(path.read_bytes()[:5000])
        with pytest.raises(ValueError, match="it was cut"):
            headrace.Pack("s3://birds/train.hrpack")
    path.unlink()


def test_neighbouring_ranges(store, proxy):
    """In order, a pack's items come in few requests; where it was cut, those before are good."""
    path = store[0] / "order.hrpack"
    headrace.pack(ImageFolder(str(store[0] / "train")), str(path))
    there, _ = epoch(headrace.Pack(str(path), transform=SMALL))
    with with_keys(proxy.url):
        dataset = headrace.Pack("s3://birds/order.hrpack", transform=SMALL)
        proxy.requests.clear()
        found, loader = epoch(dataset, prefetch_factor=4)
        assert found == there
        assert len(proxy.requests) == loader.stats()["object_requests"] <= 16
        proxy.fault = Sometimes(("cut", 3000), every=2)
        assert epoch(dataset, prefetch_factor=4)[0] == there
        assert proxy.fault.hit
        proxy.fault = lambda request: None
        size = path.stat().st_size
        proxy.fault = lambda request: (
            refusal(416, "InvalidRange")
            if int(request.headers["range"].rpartition("-")[2]) > size * 2 // 3 else None)
        _, loader = epoch(dataset, prefetch_factor=4, on_error="skip", max_bad_share=0.9)
        assert 15 < len(loader.skipped()) < 30
    path.unlink()


def test_bulk_verbs_read_ahead(store, proxy, tmp_path):
    """They work on a sample at a time, and yet a pack's items come in few requests."""
    path = store[0] / "bulk.hrpack"
    headrace.pack(ImageFolder(str(store[0] / "train")), str(path), form="encoded")
    names = [f"{n}.jpg" for n in range(12)]
    write(store[0] / "bulk", names)
    try:
        with with_keys(proxy.url):
            dataset = headrace.Pack("s3://birds/bulk.hrpack")
            proxy.requests.clear()
            assert dataset.verify() == [] and len(proxy.requests) <= 20
            headrace.pack(dataset, str(tmp_path / "again.hrpack"), form="encoded")
            assert len(proxy.requests) <= 20
            assert (tmp_path / "again.hrpack").stat().st_size == path.stat().st_size
            spec = f"disk:{tmp_path / 'pack'}?size=64MiB"
            for most in (20, 3):  # the second time nothing but its catalog
                proxy.requests.clear()
                assert "63 of 63" in command("cache", "warm", spec, "s3://birds/bulk.hrpack",
                                             "--no-progress")
                assert len(proxy.requests) <= most
            # a list of objects, some of which are not there
            urls = [f"s3://birds/bulk/{n}.jpg" for n in range(14)]
            text = tmp_path / "list.txt"
            text.write_text("".join(f"{url}\t0\n" for url in urls))
            spec = f"disk:{tmp_path / 'list'}?size=64MiB"
            proxy.requests.clear()
            out = command("cache", "warm", spec, str(text), "--no-progress", "--json", status=1)
            assert json.loads(out)["cached"] == 12 and json.loads(out)["bad"] == 2
            assert len({one.target for one in proxy.requests}) == 14
            assert [bad.index for bad in listed(urls).verify()] == [12, 13]
            dataset = listed(urls[:12])
            there, _ = epoch(listed([str(store[0] / "bulk" / name) for name in names]))
            assert epoch(dataset, cache=spec)[0] == there
    finally:
        path.unlink()
        shutil.rmtree(store[0] / "bulk")


def test_tar(store, proxy):
    for name in ("cat", "dog"):
        with tarfile.open(store[0] / f"{name}.tar", "w") as file:
            file.add(store[0] / "train" / name, name)
    there, _ = epoch(headrace.TarDataset(str(store[0] / "{cat,dog}.tar"), transform=SMALL))
    with with_keys(proxy.url):
        found, _ = epoch(headrace.TarDataset("s3://birds/{cat,dog}.tar", transform=SMALL))
        assert found == there
        with pytest.raises(FileNotFoundError, match="no such object"):
            headrace.TarDataset("s3://birds/{cat,cow}.tar")
    for name in ("cat", "dog"):
        (store[0] / f"{name}.tar").unlink()


def listed(paths):
    return headrace.ImageList(zip(paths, range(len(paths))), SMALL)


def test_parquet(store, proxy):
    """Tables of images, as those of Hugging Face, by ranges."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    for n in range(2):
        images = [{"bytes": picture(10 * n + i), "path": None} for i in range(10)]
        table = pa.table({"image": pa.array(images, kind), "label": pa.array(range(10), pa.int64()),
                          "other": pa.array([b"x" * 1000] * 10)})
        pq.write_table(table, store[0] / f"t-{n}.parquet", compression="none", row_group_size=4,
                       use_dictionary=False)
    try:
        there, _ = epoch(headrace.ParquetDataset(store[0] / "t-0.parquet", transform=SMALL))
        with with_keys(proxy.url):
            found, _ = epoch(headrace.ParquetDataset("s3://birds/t-0.parquet", transform=SMALL))
            assert found == there
            assert len(headrace.ParquetDataset("s3://birds/t-{0..1}.parquet")) == 20
            with pytest.raises(NotImplementedError, match="patterns with [*] are not looked up"):
                headrace.ParquetDataset("s3://birds/t-*.parquet")
            with pytest.raises(NotImplementedError, match="folder of tables is not looked up.*birds/"
                               r"tables/train-\{00000"):
                headrace.ParquetDataset("s3://birds/tables/")
            proxy.fault = Sometimes(("cut", 30), every=2)
            found, _ = epoch(headrace.ParquetDataset("s3://birds/t-0.parquet", transform=SMALL))
            assert found == there and proxy.fault.hit
            proxy.fault = lambda request: None
            told = json.loads(command("scan", "--json", "s3://birds/t-{0..1}.parquet"))
            assert told["samples"] == 20
            dataset = headrace.ParquetDataset("s3://birds/t-0.parquet", transform=SMALL)
            (store[0] / "t-0.parquet").write_bytes((store[0] / "t-1.parquet").read_bytes())
            with pytest.raises(SampleError, match="replaced"):
                epoch(dataset)
            with pytest.raises(OSError, match="no such object"):
                headrace.ParquetDataset("s3://birds/none.parquet")
            # a footer as long as damage makes it is not fetched
            with open(store[0] / "t-1.parquet", "wb") as file:
                file.write(b"PAR1")
                file.truncate(1 << 29)
                file.seek(0, os.SEEK_END)
                file.write((300 << 20).to_bytes(4, "little") + b"PAR1")
            with pytest.raises(ValueError, match="its footer has 314572800 bytes, and at most"):
                headrace.ParquetDataset("s3://birds/t-1.parquet")
            (store[0] / "t-1.parquet").write_bytes(b"PAR1 is no table")
            with pytest.raises(Exception, match="does not end like a Parquet file"):
                headrace.ParquetDataset("s3://birds/t-1.parquet")
    finally:
        for n in range(2):
            (store[0] / f"t-{n}.parquet").unlink()


def test_lists(store, proxy, caplog):
    """Lists of objects and files, a list that is an object, and files of a web server."""
    names = ["cat/001.jpg", "dog/002.jpg", "ant/003.jpg"]
    local = [str(store[0] / "train" / name) for name in names]
    file = store[0] / "list.txt"
    there, _ = epoch(listed(local))
    with with_keys(proxy.url):
        assert epoch(listed([f"s3://birds/train/{names[0]}", local[1],
                             f"s3://birds/train/{names[2]}"]))[0] == there
        file.write_text("".join(f"train/{name}\t{i}\n" for i, name in enumerate(names)))
        assert epoch(headrace.ImageList("s3://birds/list.txt", SMALL))[0] == there
    with http_server(store[0]) as url:
        assert epoch(listed([f"{url}/train/{name}" for name in names]))[0] == there
        assert epoch(headrace.ImageList(f"{url}/list.txt", SMALL))[0] == there
        assert "not cached" not in caplog.text
        dataset = headrace.ImageList(f"{url}/list.txt", SMALL)
        with DataLoader(dataset, batch_size=2, cache="64MiB") as loader:
            assert [len(list(loader)) for _ in range(2)] == [2, 2]
            assert loader.stats()["cache_hits"] == 0
        assert caplog.text.count("sends no strong ETag") == 1
        assert re.search(f"{url}/train/.*[.]jpg is not cached", caplog.text)
        with pytest.raises(SampleError, match="no such object"):
            epoch(listed([f"{url}/train/none.jpg"]))
    file.unlink()


@pytest.mark.parametrize("cache", ["64MiB", "shm:headrace-test-list?size=64MiB"])
def test_lists_are_cached(store, proxy, cache):
    """From the first read on, under what it told of an object; another version is never served."""
    folder = store[0] / "listed"
    write(folder, [f"{n}.jpg" for n in range(12)])
    urls = [f"s3://birds/listed/{n}.jpg" for n in range(12)]
    try:
        with with_keys(proxy.url):
            with DataLoader(listed(urls), batch_size=4, shuffle=True, cache=cache) as loader:
                first = sorted(i.numpy().tobytes() for batch, _ in loader for i in batch)
                assert len(proxy.requests) == 12
                again = sorted(i.numpy().tobytes() for batch, _ in loader for i in batch)
                assert again == first and len(proxy.requests) == 12
                assert loader.stats()["cache_hits"] == 12
            (folder / "3.jpg").write_bytes(picture(100))
            there = sorted(i.numpy().tobytes() for batch, _ in DataLoader(
                listed([str(folder / f"{n}.jpg") for n in range(12)]), batch_size=4) for i in batch)
            with DataLoader(listed(urls), batch_size=4, cache=cache) as loader:
                for _ in range(2):
                    found = sorted(i.numpy().tobytes() for batch, _ in loader for i in batch)
                    assert found == there != first
                assert loader.stats()["cache_hits"] == 12
            # replaced while the program runs, before it is cached: refused
            dataset = listed(urls)
            with DataLoader(dataset, batch_size=4, cache="64MiB") as loader:
                assert len(list(loader)) == 3
            (folder / "5.jpg").write_bytes(picture(101))
            with pytest.raises(SampleError, match="replaced after it was listed, or read before"):
                list(DataLoader(dataset, batch_size=4, cache="64MiB"))
    finally:
        subprocess.run([sys.executable, "-m", "headrace", "cache", "drop", "shm:headrace-test-list"],
                       check=False, capture_output=True)
        shutil.rmtree(folder)


def test_weak_etags_are_none(store, proxy, caplog):
    """They may stay the same for other bytes."""
    urls = [f"s3://birds/train/cat/{n:03}.jpg" for n in range(8)]
    proxy.fault = lambda request: ("headers", {"ETag": 'W/"all"'})
    with with_keys(proxy.url), DataLoader(listed(urls), batch_size=4, cache="64MiB") as loader:
        assert [len(list(loader)) for _ in range(2)] == [2, 2]
        assert loader.stats()["cache_hits"] == 0
    assert "sends no strong ETag" in caplog.text


def test_reads_far_ahead(store, proxy):
    """Enough batches that the way to the store is full, unless told or too large."""
    urls = [f"s3://birds/train/cat/{n:03}.jpg" for n in range(8)]
    with with_keys(proxy.url):
        dataset = listed(urls)
        for options, ahead in (({"batch_size": 4}, 128), ({"batch_size": 100}, 6),
                               ({"batch_size": 1000}, 2),
                               ({"batch_size": 4, "prefetch_factor": 3}, 3)):
            loader = DataLoader(dataset, num_workers=1, **options)
            assert loader.stats()["batches_ahead"] == loader.prefetch_factor == ahead
        large = headrace.ImageList(
            [(url, 0) for url in urls],
            T.Compose([T.Resize((2048, 2048)), T.ToDtype(torch.float32, scale=True)]))
        assert DataLoader(large, batch_size=1).stats()["batches_ahead"] == 5
    near = listed([str(store[0] / "train/cat/000.jpg")])
    assert DataLoader(near, num_workers=1).stats()["batches_ahead"] == 2


@contextlib.contextmanager
def http_server(folder):
    """Python's own server of files, which knows no ranges."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *a: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with settings():
            yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_server_without_ranges(store):
    with http_server(store[0]) as url:
        (store[0] / "x.tar").write_bytes(bytes(200000))
        with pytest.raises(NotImplementedError, match="whole files only"):
            headrace.TarDataset(f"{url}/x.tar")
    (store[0] / "x.tar").unlink()


def test_stats(store, proxy):
    proxy.fault = Sometimes(refusal(503, "SlowDown"), every=10)
    with with_keys(proxy.url, HEADRACE_OBJECT_PRICES="0.4,3,5"):
        loader = load("s3://birds/train")[1]
    stats = loader.stats()
    assert stats["object_requests"] == len(proxy.requests)
    assert stats["object_lists"] == sum(one.is_list for one in proxy.requests)
    assert stats["object_retries"] == stats["object_refusals"] == len(proxy.fault.hit) > 0
    assert stats["object_hedges"] <= 1 + len(proxy.requests) // 64
    assert stats["object_bytes"] >= stats["bytes_read"] > 0
    plain = stats["object_requests"] - stats["object_lists"]
    assert stats["object_cost_usd"] == pytest.approx(
        plain * 0.4 / 1e3 + stats["object_lists"] * 5 / 1e3)


def command(*arguments, status=0):
    done = subprocess.run([sys.executable, "-m", "headrace", *arguments], capture_output=True,
                          text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout


def test_commands(store, proxy, tmp_path):
    """The command takes URLs where it takes paths, and tells what its requests cost."""
    with with_keys(proxy.url, XDG_RUNTIME_DIR=tmp_path):
        told = json.loads(command("scan", "--json", "--verify", "s3://birds/train"))
        assert told["samples"] == 63
        # one finds out what is there, before there is a dataset that counts
        count = told["requests"]["count"]
        assert len(proxy.requests) - 1 <= count <= len(proxy.requests)
        lists = sum(one.is_list for one in proxy.requests)
        assert told["requests"]["lists"] == lists
        assert told["requests"]["cost_usd"] == pytest.approx(
            (count - lists) * 4e-7 + lists * 5e-6)
        assert "to the store" in command("scan", "s3://birds/train")
        command("pack", "s3://birds/train", str(tmp_path / "a.hrpack"), "--no-progress")
        command("pack", str(store[0] / "train"), str(tmp_path / "b.hrpack"), "--no-progress")
        assert epoch(headrace.Pack(str(tmp_path / "a.hrpack"), transform=SMALL))[0] == \
            epoch(headrace.Pack(str(tmp_path / "b.hrpack"), transform=SMALL))[0]
        spec = f"disk:{tmp_path / 'cache'}?size=64MiB"
        assert "63 of 63" in command("cache", "warm", spec, "s3://birds/train", "--no-progress")
        expected, _, _ = load(str(store[0] / "train"))
        proxy.requests.clear()
        found, _, _ = load("s3://birds/train", cache=spec)
        assert found == expected and all(one.is_list for one in proxy.requests)
    assert json.loads(command("scan", "--json", str(store[0] / "train")))["requests"] is None


@pytest.mark.parametrize("prices", ["1,2", "a,b,c", "1,2,3,4", "-1,2,3"])
def test_prices_that_are_none(prices):
    with with_keys("http://127.0.0.1:1", HEADRACE_OBJECT_PRICES=prices), \
            pytest.raises(ValueError, match="HEADRACE_OBJECT_PRICES"):
        ImageFolder("s3://birds/train")


def test_google(store, proxy):
    """gs:// signs with HMAC keys of its own, and not with those of AWS."""
    with with_keys("http://127.0.0.1:1", STORAGE_EMULATOR_HOST=proxy.url, GS_ACCESS_KEY_ID=KEY,
                   GS_SECRET_ACCESS_KEY=SECRET):
        os.environ["AWS_ACCESS_KEY_ID"] = "another"
        same_as_on_disk(store, "gs://birds/train")
    assert {one.key_id for one in proxy.requests} == {KEY}
    assert all("/" "auto/s3/" in one.headers["authorization"] for one in proxy.requests)


def test_agent(store, proxy, tmp_path):
    """An agent opens the URL itself, with the credentials of its own environment."""
    with with_keys(proxy.url, XDG_RUNTIME_DIR=tmp_path):
        found, _, _ = load("s3://birds/train", agent="auto")
        expected, _, _ = load("s3://birds/train")
    assert found == expected


def test_an_agent_with_another_endpoint(store, proxy, tmp_path):
    """Buckets of the same name may be there, too: it is refused, with what to set."""
    with with_keys("http://127.0.0.1:9", XDG_RUNTIME_DIR=tmp_path), Agent() as agent:
        with with_keys(proxy.url, XDG_RUNTIME_DIR=tmp_path):
            with pytest.raises(Exception, match="start the agent with AWS_ENDPOINT_URL=") as caught:
                load("s3://birds/train", agent=agent.socket)
            assert proxy.url in str(caught.value) and "127.0.0.1:9" in str(caught.value)
            assert SECRET not in str(caught.value)
