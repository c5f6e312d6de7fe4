"""CachedDataset: each sample is made once for all processes, and returned unchanged."""

import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset

import forked
import headrace
from headrace import CachedDataset

from conftest import COUNT, run_forked, run_python
from counted import Files, Numbers, calls, make_negative, right, segments


@pytest.fixture(autouse=True)
def shared_memory(monkeypatch):
    """Each test has a place for caches of its own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="headrace-test-") as place:
        monkeypatch.setenv("HEADRACE_SHM", place)
        yield


@pytest.fixture
def numbers(tmp_path):
    return Numbers(tmp_path / "calls")


names = iter(range(1000))


@pytest.fixture
def kept():
    """The text of a kept cache for this test alone."""
    return f"shm:test{os.getpid()}-{next(names)}?size=64MiB"


# One process


def test_each_sample_is_made_once(numbers):
    with CachedDataset(numbers, "64MiB") as cached:
        assert len(cached) == 40 and cached.classes == ("even", "odd")
        for _ in range(3):
            assert all(right(cached[i], numbers, i) for i in range(40))
        assert calls(numbers) == list(range(40))
        assert [label for _, label in cached] == list(range(40))
        assert right(cached[-1], numbers, 39) and right(cached[np.int64(5)], numbers, 5)
        assert right(cached[torch.tensor(7)], numbers, 7)
        info = cached.info()
        assert info["hits"] >= 80 and info["misses"] >= 40 and info["pids"] == [os.getpid()]
        assert info["used_bytes"] >= 40 * 4000
        assert calls(numbers) == list(range(40))
        with pytest.raises(IndexError, match="no such number"):
            cached[40]
        with pytest.raises(AttributeError, match="nothing"):
            cached.nothing


def test_a_smaller_cache_keeps_what_came_first(numbers):
    with CachedDataset(numbers, 80_000) as cached:
        for _ in range(3):
            assert all(right(cached[i], numbers, i) for i in range(40))
    made = calls(numbers)
    once = [i for i in range(40) if made.count(i) == 1]
    assert 5 <= len(once) < 25
    assert all(made.count(i) in (1, 3) for i in range(40))


def test_what_is_given_is_the_callers_own(numbers):
    with CachedDataset(numbers, "64MiB") as cached:
        for _ in range(3):
            image, _ = cached[3]
            assert right((image, 3), numbers, 3)
            image[:] = 0


def test_views(numbers):
    cached = CachedDataset(numbers, "64MiB", copy=False)
    for i in range(40):
        cached[i]
    again = [cached[i] for i in range(40)]
    assert not again[5][0].flags.writeable
    assert np.shares_memory(again[5][0], cached[5][0])
    cached.close()  # the returned value does not change
    assert all(right(sample, numbers, i) for i, sample in enumerate(again))
    with pytest.raises(RuntimeError, match="closed"):
        cached[0]
    cached.close()


def test_exceptions_pass_through(numbers):
    class Odd(Numbers):
        failures = 3

        def __getitem__(self, index):
            if index == 7 and self.failures:
                self.failures -= 1
                raise OSError("the disk is tired")
            return super().__getitem__(index)

    numbers = Odd(numbers.log)
    with CachedDataset(numbers, "64MiB", wait=3600) as cached:
        for _ in range(3):
            with pytest.raises(OSError, match="tired"):
                cached[7]
        assert right(cached[7], numbers, 7) and right(cached[7], numbers, 7)
        assert calls(numbers) == [7]


def test_what_cannot_be_kept_is_named():
    dataset = [(1, {"target": [3, {4}]})]
    with CachedDataset(dataset, "1MiB") as cached:
        for _ in range(2):
            with pytest.raises(TypeError, match=r"sample 0, item \[1\]\['target'\]\[1\]: set "):
                cached[0]
    with CachedDataset([{4}], "1MiB") as cached, pytest.raises(TypeError, match="0, itself: set"):
        cached[0]


def test_batches(numbers):
    class Batched(Numbers):
        asked = ()

        def __getitems__(self, indices):
            self.asked = list(indices)
            return [self[i] for i in indices]

    numbers = Batched(numbers.log)
    with CachedDataset(numbers, "64MiB") as cached:
        cached[2], cached[3]
        batch = cached.__getitems__([1, 2, 3, 4, 1])
        assert [label for _, label in batch] == [1, 2, 3, 4, 1]
        assert all(right(sample, numbers, i) for sample, i in zip(batch, [1, 2, 3, 4, 1]))
        assert numbers.asked == [1, 4, 1]
        numbers.asked = ()
        assert [label for _, label in cached.__getitems__([4, 3, 2, 1])] == [4, 3, 2, 1]
        assert numbers.asked == ()
        with pytest.raises(IndexError):
            cached.__getitems__([0, 99])
        assert right(cached[0], numbers, 0)
        assert [label for _, label in Subset(cached, [5, 6]).__getitems__([1, 0])] == [6, 5]


def test_a_key_of_ones_own(numbers):
    versions = {i: "a" for i in range(40)}
    with CachedDataset(numbers, "64MiB", key=versions.get) as cached:
        cached[1], cached[1]
        assert calls(numbers) == [1]
        versions[1] = "b"
        cached[1], cached[1]
        assert calls(numbers) == [1, 1]
        versions[1] = {"no"}
        with pytest.raises(TypeError, match=r"key\(1\) must return"):
            cached[1]


def test_samples_with_names():
    class Words:
        def __len__(self):
            return 2

        def __getitem__(self, name):
            return {"a": np.ones(3), "b": np.zeros(2)}[name]

    with CachedDataset(Words(), "1MiB") as cached:
        for _ in range(2):
            assert cached["a"].sum() == 3 and cached["b"].shape == (2,)
        with pytest.raises(KeyError):
            cached["c"]


def test_threads(numbers):
    wrong = []
    with CachedDataset(numbers, "64MiB") as cached:
        cached[0]  # twice, to find out whether it is random

        def read(seed):
            order = list(range(40)) * 5
            random.Random(seed).shuffle(order)
            wrong.extend(i for i in order if not right(cached[i], numbers, i))

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert calls(numbers) == list(range(40))


# Arguments


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"cache": "2G"}, ValueError, "2GiB"),
        ({"cache": 0}, ValueError, "more than 0"),
        ({"cache": 1.5}, TypeError, "number of bytes"),
        ({"cache": "shm:x?size=1MiB"}, ValueError, "identity="),
        ({"cache": " shm:x?size=1MiB"}, ValueError, "identity="),
        ({"identity": ""}, ValueError, "not empty"),
        ({"after": "blur"}, TypeError, "'transform'"),
        ({"files": "yes"}, TypeError, "files must be"),
        ({"files": True}, ValueError, "attribute `loader`"),
        ({"wait": -1}, ValueError, "wait"),
    ],
    ids=str,
)
def test_refused_arguments(numbers, arguments, error, words):
    with pytest.raises(error, match=words):
        CachedDataset(numbers, **{"cache": "1MiB", **arguments})


def test_refused_datasets():
    with pytest.raises(TypeError, match="map-style"):
        CachedDataset(iter([1]), "1MiB")
    with pytest.raises(ValueError, match="after='transform' needs"):
        CachedDataset([1], "1MiB", after="transform")


def test_two_private_caches_are_two(numbers, tmp_path):
    other = Numbers(tmp_path / "others", offset=5)
    with CachedDataset(numbers, "1MiB") as a, CachedDataset(other, "1MiB") as b:
        for _ in range(2):
            assert right(a[3], numbers, 3) and right(b[3], other, 3)


def test_after(numbers):
    with CachedDataset(numbers, "1MiB", after=lambda sample: sample[1] + 100) as cached:
        assert [cached[3], cached[3], *cached.__getitems__([3, 4])] == [103, 103, 103, 104]
        assert calls(numbers) == [3, 4]


def test_the_transform_goes_behind_the_cache(numbers):
    drawn = iter(range(100))
    numbers.transform = lambda image: image + next(drawn)
    with CachedDataset(numbers, "1MiB", after="transform") as cached:
        assert [int(cached[3][0][0]) for _ in range(4)] == [0, 1, 2, 3]
        assert cached[3][1] == 3
        assert calls(numbers) == [3]
    assert numbers.transform is not None  # the dataset itself is unchanged


def test_joint_transforms(torchvision):
    from torchvision.datasets import VisionDataset

    class Pairs(VisionDataset):
        made = 0

        def __len__(self):
            return 3

        def __getitem__(self, index):
            self.made += 1
            sample = torch.ones(2) * index, index
            return sample if self.transforms is None else self.transforms(*sample)

    for options, expected in (
        ({"transforms": lambda a, b: (a + 5, b + 7)}, (6, 8)),
        ({"transform": lambda a: a + 5, "target_transform": lambda b: b + 1}, (6, 2)),
        ({}, (1, 1)),
    ):
        with CachedDataset(Pairs("", **options), "1MiB", after="transform") as cached:
            for _ in range(2):
                image, target = cached[1]
                assert (int(image[0]), target) == expected
            assert cached.made == 2  # once more to find out whether it is random


class Augmented(Numbers):
    """Draws from a generator in an attribute with an unusual name."""

    def __init__(self, log, draw):
        super().__init__(log)
        self.augmentation = draw

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return image + self.augmentation(), label


DRAWS = {
    "torch": lambda: int(torch.randint(1000, ())),
    "python": lambda: random.randrange(1000),
    "numpy": lambda: np.random.randint(1000),
    "its own generator": random.Random(5).random,
    "numpy's generator": np.random.default_rng(3).random,
    "the clock": lambda: time.perf_counter_ns() / 1e9,
}


@pytest.mark.parametrize("what", DRAWS)
def test_frozen_augmentation_is_warned_of(tmp_path, what):
    with CachedDataset(Augmented(tmp_path / "calls", DRAWS[what]), "1MiB") as cached:
        with pytest.warns(UserWarning, match=r"Augmented seem to be random.*after='transform'"):
            cached[0]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert [cached[i][1] for i in range(40)] == list(range(40))  # once


@pytest.mark.parametrize("random_one", [0, 9])
def test_frozen_augmentation_in_batches_is_warned_of(tmp_path, random_one):
    """Also if the first samples are not random."""

    class Batched(Augmented):
        def __getitems__(self, indices):
            return [self[i] if i == random_one else Numbers.__getitem__(self, i) for i in indices]

    with CachedDataset(Batched(tmp_path / "calls", DRAWS["torch"]), "1MiB") as cached:
        loader = DataLoader(cached, 4)
        with pytest.warns(UserWarning, match="seem to be random"):
            list(loader)


def test_another_bit_generator_of_numpys(tmp_path):
    code = (
        "import headrace, numpy, warnings\n"
        "numpy.random.set_bit_generator(numpy.random.PCG64(1))\n"
        "warnings.simplefilter('error')\n"
        "class Mine:\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, i): return i + (numpy.random.rand() if i > 5 else 0)\n"
        "cached = headrace.CachedDataset(Mine(), '1MiB')\n"
        "print([cached[i] for i in range(6)])\n"
        "try: cached[6]\n"
        "except UserWarning as warning: print(warning)\n"
        "cached.close()\n"
    )
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[0, 1, 2, 3, 4, 5]\nsamples of __main__.Mine seem to be random")


def test_what_is_not_random_is_not_warned_of(numbers, v2):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        numbers.transform = lambda image: image + int(torch.randint(1000, ()))
        with CachedDataset(numbers, "1MiB", after="transform") as cached:
            assert [label for _, label in cached] == list(range(40))
        numbers.transform = v2.Compose([v2.ToImage(), v2.Normalize([0.5], [0.5])])
        numbers.image = lambda index: np.full((8, 8, 3), index, np.float32)
        with CachedDataset(numbers, "1MiB") as cached:
            assert [label for _, label in cached] == list(range(40))


def test_headraces_own_dataset_inside_a_cache(folder, recipe):
    """Its random parameters differ from access to access, so caching them gives a warning."""
    with CachedDataset(headrace.ImageFolder(folder, recipe), "4MiB") as cached:
        with pytest.warns(UserWarning, match="ImageFolder seem to be random"):
            cached[0]
    still = headrace.transforms.CenterCrop(32)
    with CachedDataset(headrace.ImageFolder(folder, still), "4MiB") as cached:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            list(cached)


def test_frozen_augmentation_is_warned_of_by_worker_processes(tmp_path):
    code = (
        "import random, sys, headrace\n"
        "from torch.utils.data import DataLoader\n"
        "class Mine:\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, i): return i + random.random()\n"
        "with headrace.CachedDataset(Mine(), '1MiB') as cached:\n"
        "    epochs = [batch for _ in range(2) for batch in DataLoader(cached, 4, num_workers=1)]\n"
    )
    done = run_forked(code)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("samples of __main__.Mine seem to be random") == 1


# Processes


def epoch(loader, dataset):
    seen = []
    for images, labels in loader:
        for image, label in zip(images, labels.tolist()):
            assert right((image, label), dataset, label)
            seen.append(label)
    return sorted(seen)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_worker_processes_share(numbers, method):
    everything = list(range(40))
    with CachedDataset(numbers, "64MiB") as cached:
        loader = DataLoader(
            cached, 4, shuffle=True, num_workers=2, multiprocessing_context=method
        )
        for _ in range(2):
            assert epoch(loader, numbers) == everything
        assert calls(numbers) == everything
        assert right(cached[4], numbers, 4)  # this process has them too
        assert calls(numbers) == everything
    assert segments() == []


def test_pickling(numbers):
    with CachedDataset(numbers, "64MiB", after=make_negative) as cached:
        cached[3]
        with pickle.loads(pickle.dumps(cached)) as again:
            assert np.array_equal(again[3][0], cached[3][0]) and again[3][0][1] == -3
            assert calls(numbers) == [3]


SCRIPT = """
import sys, time
sys.path.insert(0, {folder!r})
from counted import *
from headrace import CachedDataset
numbers = Numbers(Path(sys.argv[1]))
cached = CachedDataset(numbers, sys.argv[2], identity="numbers")
"""


def start(code, *arguments):
    script = SCRIPT.format(folder=str(Path(__file__).parent)) + code
    return forked.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True,
    )


def finish(process, timeout=600):
    out, _ = process.communicate(timeout=timeout)
    return process.returncode, out


def test_two_jobs_and_a_later_run(numbers, kept):
    code = "print(all(right(cached[i], numbers, i) for i in range(40)))"
    jobs = [start(code, numbers.log, kept) for _ in range(2)]
    assert [finish(job) for job in jobs] == [(0, "True\n")] * 2
    assert calls(numbers) == list(range(40))
    with CachedDataset(numbers, kept, identity="numbers") as cached:
        assert all(right(cached[i], numbers, i) for i in range(40))
        assert calls(numbers) == list(range(40))
        assert cached.info()["name"].startswith("test")
    with CachedDataset(numbers, kept, identity="other numbers") as cached:
        assert right(cached[1], numbers, 1)
        assert calls(numbers).count(1) == 2


def test_kept_bytes_are_logged(numbers, kept, caplog):
    with CachedDataset(numbers, kept, identity="ten") as cached:
        with CachedDataset(numbers, kept, identity="ten") as other:
            other[3]
        assert not caplog.records  # it has another user
        pickle.loads(pickle.dumps(cached)).close()
        assert not caplog.records
    name = kept.partition(":")[2].partition("?")[0]
    assert f"`headrace cache drop {name}`" in caplog.text
    assert "keeps 1 items of ten" in caplog.text
    with CachedDataset(numbers, "1MiB") as cached:
        cached[3]
    assert len(caplog.records) == 1


HANGS = """
class Hangs(Numbers):
    def __getitem__(self, index):
        if index == 3:
            print("in", flush=True)
            time.sleep(600)
        return super().__getitem__(index)
cached.dataset = Hangs(numbers.log)
"""


def test_a_process_is_killed_while_others_wait_for_it(numbers, kept):
    worker = start(HANGS + "cached[3]", numbers.log, kept)
    try:
        assert worker.stdout.readline() == "in\n"
        with CachedDataset(numbers, kept, identity="numbers", wait=3600) as cached:
            assert right(cached[2], numbers, 2)
            threading.Timer(0.3, worker.kill).start()
            assert right(cached[3], numbers, 3)
            assert worker.wait(600) == -signal.SIGKILL  # it waited for this one
            assert all(right(cached[i], numbers, i) for i in range(40))
            assert calls(numbers) == list(range(40))
    finally:
        worker.kill()
        worker.communicate()


def test_waiting_ends_after_a_while(numbers, kept):
    worker = start(HANGS + "cached[3]", numbers.log, kept)
    try:
        assert worker.stdout.readline() == "in\n"
        with CachedDataset(numbers, kept, identity="numbers", wait=0.2) as cached:
            assert right(cached[3], numbers, 3)
            assert worker.poll() is None  # it is still making this one
    finally:
        worker.kill()
        worker.communicate()


def test_ctrl_c_ends_the_wait(numbers, kept):
    with CachedDataset(numbers, kept, identity="numbers") as cached:
        entered, leave = threading.Event(), threading.Event()

        class Slow(Numbers):
            def __getitem__(self, index):
                entered.set()
                leave.wait(600)
                return super().__getitem__(index)

        cached.dataset = Slow(numbers.log)
        maker = threading.Thread(target=cached.__getitem__, args=(3,))
        code = """
print("ready", flush=True)
sys.stdin.readline()
try:
    cached[3]
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
        worker = start(code, numbers.log, kept)
        try:
            assert worker.stdout.readline() == "ready\n"
            maker.start()  # only now: a process that makes nothing for two seconds is not waited for
            assert entered.wait(600)
            worker.stdin.write("\n")
            worker.stdin.flush()
            time.sleep(0.2)
            worker.send_signal(signal.SIGINT)
            assert finish(worker) == (0, "interrupted\n")
        finally:
            leave.set()
            worker.kill()
            maker.join()
        assert calls(numbers) == [3]


def test_a_killed_worker_of_a_loader(numbers, kept):
    code = """
import os, signal
from torch.utils.data import DataLoader
iterator = iter(DataLoader(cached, 4, num_workers=2, multiprocessing_context="fork"))
next(iterator)
for worker in iterator._workers:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler would raise
    os.kill(worker.pid, signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert finish(start(code, numbers.log, kept))[0] == -signal.SIGKILL
    assert 4 <= len(calls(numbers)) <= 40
    with CachedDataset(numbers, kept, identity="numbers") as cached:
        loader = DataLoader(cached, 4, num_workers=2)
        for _ in range(2):
            assert epoch(loader, numbers) == list(range(40))
        assert set(calls(numbers)) == set(range(40)) and len(calls(numbers)) <= 42
        assert cached.info()["users"] == 1


def test_nothing_stays_of_a_private_cache(numbers):
    code = """
from torch.utils.data import DataLoader
loader = DataLoader(cached, 4, num_workers=2, multiprocessing_context="fork")
print(sorted(int(i) for _, labels in loader for i in labels) == list(range(40)), len(segments()))
kept_alive = iter(DataLoader(cached, 4, num_workers=2, persistent_workers=True))
next(kept_alive)
"""
    assert finish(start(code, numbers.log, "64MiB")) == (0, "True 1\n")
    assert segments() == []


def test_ranks_share_by_identity(numbers):
    code = """
import headrace._core as core
print(core.cache_run(2) == core.cache_run(2) != core.cache_run(1), flush=True)
sys.stdin.readline()
print(all(right(cached[i], numbers, i) for i in range(40)), flush=True)
sys.stdin.readline()
"""
    os.environ["WORLD_SIZE"] = "2"
    try:
        ranks = [start(code, numbers.log, "64MiB") for _ in range(2)]
        for _ in range(2):
            assert [rank.stdout.readline() for rank in ranks] == ["True\n"] * 2
            for rank in ranks:
                rank.stdin.write("\n")
                rank.stdin.flush()
        assert [finish(rank) for rank in ranks] == [(0, "")] * 2
        assert calls(numbers) == list(range(40))
        with pytest.warns(UserWarning, match="identity="):
            CachedDataset(numbers, "1MiB").close()
    finally:
        del os.environ["WORLD_SIZE"]
    assert segments() == []


# Files


@pytest.fixture
def images(torchvision, tmp_path, folder):
    from torchvision.datasets import ImageFolder

    root = tmp_path / "images"
    subprocess.run(["cp", "-rp", folder, root], check=True)
    return ImageFolder(root)


def opened(monkeypatch):
    """Returns the paths of images that _FileLoader reads from now on."""
    from headrace import cached

    paths = []
    read = cached._FileLoader._read

    def noting(self, name, *arguments):
        paths.append(name)
        return read(self, name, *arguments)

    monkeypatch.setattr(cached._FileLoader, "_read", noting)
    return paths


def equal(a, b):
    return a[0] == b[0] and a[1] == b[1]


def test_files_are_kept(images, kept, monkeypatch):
    read = opened(monkeypatch)
    total = sum(os.path.getsize(path) for path, _ in images.samples)
    with CachedDataset(images, kept) as cached:
        for _ in range(2):
            assert all(equal(cached[i], images[i]) for i in range(COUNT))
        assert len(read) == COUNT
        info = cached.info()
        assert total <= info["used_bytes"] < total + COUNT * 64
        assert str(images.root) in info["dataset"]
        assert cached.classes == images.classes and len(cached.targets) == COUNT
    assert images.loader.__name__ == "default_loader"


def test_augmentation_is_not_frozen(images, v2):
    images.transform = v2.Compose([v2.ToImage(), v2.RandomResizedCrop(32)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cached = CachedDataset(images, "64MiB")
    with cached:
        for i in (0, 5):
            torch.manual_seed(1)
            first = cached[i][0]
            assert not torch.equal(first, cached[i][0])
            torch.manual_seed(1)
            assert torch.equal(first, images[i][0])
        cached.dataset.transform = None
        assert equal(cached[0], (Image.open(images.samples[0][0]).convert("RGB"), 0))


def test_a_changed_file_is_read_anew(images, monkeypatch):
    read = opened(monkeypatch)
    path = images.samples[3][0]
    with CachedDataset(images, "64MiB") as cached:
        before = cached[3][0]
        assert cached[3][0] == before and read == [path]
        status = os.stat(path)
        Image.new("RGB", (9, 9), "red").save(path)
        os.utime(path, ns=(0, status.st_mtime_ns + 1))
        assert cached[3][0].size == (9, 9)
        assert cached[3][0].size == (9, 9) and read == [path, path]
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # another size, an old time
        assert cached[3][0].size == (9, 9)
        os.unlink(path)
        with pytest.raises(FileNotFoundError):
            cached[3]


def test_a_file_that_is_being_written_is_not_kept(images, monkeypatch):
    from headrace import cached as module

    path = images.samples[3][0]
    with CachedDataset(images, "64MiB") as cached:
        for name, value in (("_changed", lambda before, now: True), ("_FRESH_NS", 1 << 60)):
            with monkeypatch.context() as patch:
                patch.setattr(module, name, value)
                first = cached[3]
        read = opened(monkeypatch)
        assert equal(cached[3], first) and read == [path]


def read_pixels(path):
    with open(path, "rb") as file:
        return np.asarray(Image.open(file).convert("L"))


def test_a_loader_of_ones_own(torchvision, images, monkeypatch):
    from torchvision.datasets import DatasetFolder

    own = DatasetFolder(images.root, read_pixels, (".jpg", ".png"))
    read = opened(monkeypatch)
    with CachedDataset(own, "64MiB") as cached, CachedDataset(
        own, "64MiB", files=lambda file: len(file.read())
    ) as sizes:
        for i in (0, 7, 0, 7):
            assert np.array_equal(cached[i][0], own[i][0])
            assert sizes[i][0] == os.path.getsize(own.samples[i][0])
        assert len(read) <= 4
    assert len(os.listdir("/proc/self/fd")) < 200


def test_what_the_dataset_returns_can_be_kept_of_files_too(images, v2, kept):
    images.transform = v2.Compose([v2.ToImage(), v2.Resize((8, 8))])
    with pytest.raises(ValueError, match="identity="):
        CachedDataset(images, kept, files=False)
    with CachedDataset(images, kept, files=False, identity="8 x 8") as cached:
        a, b = cached[3], cached[3]
        assert type(a[0]) is type(b[0]) and torch.equal(a[0], b[0]) and a[1] == b[1]
        os.unlink(images.samples[3][0])
        assert torch.equal(cached[3][0], a[0])


def test_a_dataset_that_leaves_its_loader_out(images):
    class Own(type(images)):
        def __getitem__(self, index):
            return 5

    images.__class__ = Own
    with CachedDataset(images, "1MiB") as cached, pytest.warns(UserWarning, match="files=False"):
        assert cached[0] == 5


def test_files_in_worker_processes(folder, tmp_path):
    files = Files(folder, tmp_path / "calls")
    with CachedDataset(files, "64MiB") as cached:
        loader = DataLoader(cached, None, num_workers=2)
        for _ in range(2):
            for i, (data, target) in enumerate(loader):
                assert data == Path(files.samples[i][0]).read_bytes() and target == i
        assert cached.info()["items"][0] == len(files)
        assert len(calls(files)) == 2 * len(files)  # it decodes each time


# Damage


def test_damaged_values_are_made_anew(numbers):
    with CachedDataset(numbers, "1MiB") as cached:
        assert all(right(cached[i], numbers, i) for i in range(40))
        path = cached.info()["path"]
        rng = random.Random(5)
        with open(path, "r+b", buffering=0) as segment:
            for i in range(40):
                # An image's bytes are recognised wherever they are.
                segment.seek(0)
                at = segment.read().find(numbers.image(i).tobytes())
                if at > 0:
                    segment.seek(at + rng.randrange(3000))
                    segment.write(bytes([rng.randrange(256)]))
        for _ in range(2):
            assert all(right(cached[i], numbers, i) for i in range(40))
        assert 40 < len(calls(numbers)) <= 120


def test_values_that_are_not_ours_are_made_anew(numbers, caplog):
    with CachedDataset(numbers, "1MiB") as cached:
        store = cached._store
        assert store.get(cached._key(3)) is None
        assert store.put(cached._key(3), [b"nonsense"])
        for _ in range(2):
            assert right(cached[3], numbers, 3)
            assert right(cached.__getitems__([3])[0], numbers, 3)
        assert caplog.text.count("cannot be read from the cache") == 1


def test_without_torch():
    code = """
import sys, headrace
class Texts:
    def __len__(self): return 3
    def __getitem__(self, i): return "x" * i, b"y" * 1000
with headrace.CachedDataset(Texts(), "1MiB") as cached:
    print([cached[i] == Texts()[i] for i in (0, 1, 2, 2)], "torch" in sys.modules)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[True, True, True, True] False\n" and not out.stderr


def test_a_child_that_was_forked_by_hand(numbers):
    with CachedDataset(numbers, "64MiB") as cached:
        assert right(cached[3], numbers, 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            good = right(cached[3], numbers, 3) and right(cached[4], numbers, 4)
            os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert right(cached[4], numbers, 4)
        assert calls(numbers) == [3, 4]
    assert segments() == []


def test_package_has_it():
    assert "CachedDataset" in headrace.__all__
