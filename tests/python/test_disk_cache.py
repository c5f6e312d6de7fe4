"""Caches on a disk, alone and behind memory: equal batches, no reads from the source in a second
run, other recipes and subsets, changed files, damage, and CachedDataset."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
import torch
from torch.utils.data import Subset

import headrace
from headrace import transforms as T
from headrace.torch import DataLoader

FORMS = ("encoded", "indexed", "coefficients", "planes")


def recipe(size=64):
    return T.Compose(
        [T.RandomResizedCrop(size), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)]
    )


@pytest.fixture
def data(folder, tmp_path):
    """A copy of the photographs, which tests may change."""
    root = tmp_path / "photos"
    shutil.copytree(folder, root)
    time.sleep(0.05)  # files written just now are not cached
    dataset = headrace.ImageFolder(root, recipe())
    dataset.total = sum(os.path.getsize(path) for path, _ in dataset.samples)
    return dataset


def epoch(dataset, cache, *, number=0, **options):
    """The batches of one epoch of a run of its own, and its stats."""
    with DataLoader(dataset, 8, shuffle=True, num_workers=2, cache=cache, **options) as loader:
        loader.set_epoch(number)
        batches = [(images.clone(), labels.clone()) for images, labels in loader]
        return batches, loader.stats()


def same(a, b):
    return all(torch.equal(x, y) for one, other in zip(a, b, strict=True) for x, y in zip(one, other))


@pytest.mark.parametrize("form", [None, *FORMS])
def test_second_run_reads_nothing_from_the_source(data, tmp_path, form):
    cache = f"disk:{tmp_path}/cache?size=64MiB"
    first, stats = epoch(data, cache, cache_form=form)
    assert stats["bytes_read"] == data.total
    assert stats["disk_items"] == len(data) and stats["disk_hits"] == 0
    again, stats = epoch(data, cache, cache_form=form)
    assert stats["bytes_read"] == 0
    assert stats["disk_hits"] == stats["cache_hits"] == len(data)
    assert stats["disk_bytes"] > 0
    if form:  # what has no such form stays a file
        assert stats[f"cache_{form}"] > len(data) // 2
    plain, _ = epoch(data, None)
    assert same(first, plain) and same(again, plain)


def test_fetchers_read_it(data, tmp_path):
    cache = f"disk:{tmp_path}/cache?size=64MiB"
    plain, _ = epoch(data, None)
    for io_uring in (True, False):
        got, stats = epoch(data, cache, direct_io=True, io_uring=io_uring)
        assert same(got, plain)
    assert stats["bytes_read"] == 0


@pytest.mark.parametrize("memory", ["64MiB", "shm:disktier?size=64MiB", "100KiB", "shm:disktier?size=100KiB"])
def test_behind_memory(data, tmp_path, memory):
    disk = f"disk:{tmp_path}/cache?size=64MiB"
    cache = f"{memory},{disk}"
    plain = [epoch(data, None, number=number)[0] for number in range(2)]
    try:
        with DataLoader(
            data, 8, shuffle=True, num_workers=2, cache=cache, cache_form="encoded"
        ) as loader:
            for number in range(2):
                assert same([(x.clone(), y.clone()) for x, y in loader], plain[number])
            stats = loader.stats()
        assert stats["bytes_read"] == data.total
        assert stats["cache_hits"] == len(data)
        if memory.startswith("shm"):  # nothing is kept twice
            assert stats["cache_encoded"] + stats["disk_items"] == len(data)
        else:
            assert stats["disk_items"] == len(data)
        again, stats = epoch(data, cache, cache_form="encoded")
        assert same(again, plain[0])
        assert stats["bytes_read"] == 0
        if memory == "64MiB":
            assert stats["disk_hits"] == len(data)
            assert stats["cache_encoded"] == len(data)
    finally:
        if memory.startswith("shm"):
            run("cache", "drop", "disktier", "--force")


def test_what_does_not_fit_is_read_again(data, tmp_path):
    cache = f"disk:{tmp_path}/cache?size={data.total // 2}"
    plain = [epoch(data, None, number=number)[0] for number in range(3)]
    held = 0
    with DataLoader(
        data, 8, shuffle=True, num_workers=2, cache=cache, cache_form="encoded"
    ) as loader:
        for number in range(3):
            before = loader.stats()["bytes_read"]
            assert same([(x.clone(), y.clone()) for x, y in loader], plain[number])
            stats = loader.stats()
            assert stats["bytes_read"] - before == data.total - held
            assert stats["disk_used_bytes"] <= data.total // 2
            held = stats["cache_source_bytes"]
    assert held > 0


def test_other_recipes_and_subsets_share_it(data, tmp_path):
    cache = f"disk:{tmp_path}/cache?size=64MiB"
    epoch(data, cache)
    other = headrace.ImageFolder(data.root, recipe(32))
    half = Subset(other, range(0, len(other), 2))
    got, stats = epoch(half, cache)
    assert stats["bytes_read"] == 0
    assert same(got, epoch(half, None)[0])


def test_a_changed_file_is_not_served(data, tmp_path):
    cache = f"disk:{tmp_path}/cache?size=64MiB"
    epoch(data, cache)
    one, other = data.samples[0][0], data.samples[-1][0]
    kept = os.stat(one)
    shutil.copyfile(other, one)
    os.utime(one, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    time.sleep(0.05)
    got, stats = epoch(data, cache)
    assert stats["bytes_read"] == os.path.getsize(one)
    assert same(got, epoch(data, None)[0])


def cache_file(tmp_path):
    (path,) = (tmp_path / "cache").iterdir()
    return path


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments], capture_output=True, text=True, timeout=300
    )


def damage(path, every):
    """Writes over a byte in each of so many bytes behind the index."""
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        for at in range(size // 2, size, every):
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 0x40]))


def test_damage_is_never_served(data, tmp_path):
    cache = f"disk:{tmp_path}/cache?size=64MiB"
    plain, _ = epoch(data, cache, cache_form="encoded")
    damage(cache_file(tmp_path), 20000)
    got, stats = epoch(data, cache, cache_form="encoded")
    assert same(got, plain)
    assert 0 < stats["bytes_read"] < data.total
    got, stats = epoch(data, cache, cache_form="encoded")
    assert same(got, plain)
    assert stats["bytes_read"] == 0


def test_the_command_knows_it(data, tmp_path):
    place = f"disk:{tmp_path}/cache"
    out = run("cache", "warm", f"{place}?size=64MiB", data.root, "--json")
    assert out.returncode == 0, out.stderr
    assert json.loads(out.stdout)["cached"] == len(data)
    assert epoch(data, f"{place}?size=64MiB")[1]["bytes_read"] == 0
    out = run("cache", "info", place, "--json")
    (info,) = json.loads(out.stdout)["caches"]
    assert info["on_disk"] and sum(info["items"].values()) == len(data)
    assert f"{len(data)} items" in run("cache", "info", place).stdout
    out = run("cache", "verify", place, "--json")
    assert out.returncode == 0
    assert json.loads(out.stdout)["items"] == len(data)
    damage(cache_file(tmp_path), 20000)
    out = run("cache", "verify", place, "--json")
    assert out.returncode == 1 and json.loads(out.stdout)["bad"] > 0
    bad = json.loads(out.stdout)["bad"]
    out = run("cache", "verify", place)
    assert out.returncode == 0 and f"{len(data) - bad} items" in out.stdout
    out = run("cache", "drop", place)
    assert out.returncode == 0 and "of disk freed" in out.stdout
    assert not list((tmp_path / "cache").iterdir())
    out = run("cache", "verify", place)
    assert out.returncode == 3 and "no cache" in out.stderr


def test_other_owners_are_refused(data, tmp_path):
    (tmp_path / "open").mkdir(mode=0o755)
    os.chmod(tmp_path / "open", 0o755)
    with pytest.raises(OSError, match="open to others"):
        DataLoader(data, 8, cache=f"disk:{tmp_path}/open?size=1MiB")
    with pytest.raises(ValueError, match="beginning with '/'"):
        DataLoader(data, 8, cache="disk:cache?size=1MiB")
    with pytest.raises(ValueError, match="memory and a disk behind it"):
        DataLoader(data, 8, cache=f"disk:{tmp_path}/a?size=1MiB,64MiB")


class Numbers(torch.utils.data.Dataset):
    def __init__(self):
        self.made = 0

    def __len__(self):
        return 50

    def __getitem__(self, index):
        self.made += 1
        return torch.full((100, 7), float(index)), index


def test_cached_dataset(tmp_path):
    spec = f"disk:{tmp_path}/cache?size=16MiB"
    for number in range(2):
        own = Numbers()
        cached = headrace.CachedDataset(own, spec, identity="numbers 1")
        for index in range(len(cached)):
            value, label = cached[index]
            assert label == index and torch.equal(value, torch.full((100, 7), float(index)))
        made = own.made
        assert made >= 50 if number == 0 else made <= 2  # one to find out whether it is random
        cached.close()
    with pytest.raises(ValueError, match="tiers in a row"):
        headrace.CachedDataset(Numbers(), f"1MiB,{spec}", identity="numbers 1")
