"""Changed files are never served with their old contents: in no kind of cache, however they were
rewritten and whatever their times are."""

import os
import shutil
import tarfile
import textwrap
import time
import uuid

import pytest
from PIL import Image

import headrace
import headrace.transforms as T
from conftest import run_forked
from headrace.torch import DataLoader
from servers import Memcached, Servers

COUNT = 60
CHANGED = range(5, COUNT, 7)
STAMP = 1_700_000_000 * 10**9


def color(index: int, version: int) -> tuple[int, int, int]:
    return (index * 4 % 256, version * 50, 255 - index * 4 % 256)


def save(path, index: int, version: int) -> None:
    """Writes a PNG without compression: all versions have one size. Every third is too large for
    its digest to cover all bytes."""
    side = 170 if index % 3 == 0 else 40
    with open(path, "r+b" if path.exists() else "wb") as file:
        Image.new("RGB", (side, side), color(index, version)).save(file, "PNG", compress_level=0)
        file.truncate()


def make(root, version: int, times: int | None = None):
    below = root / "class"
    below.mkdir(parents=True)
    for index in range(COUNT):
        path = below / f"{index:03d}.png"
        save(path, index, version)
        if times is not None:
            os.utime(path, ns=(times, times))
    return root


def settle() -> None:
    """Waits until no file counts as just written."""
    time.sleep(0.05)


def rewrite(root, version: int, how: str) -> None:
    for index in CHANGED:
        path = root / "class" / f"{index:03d}.png"
        was = path.stat()
        if how == "rename":
            other = path.with_suffix(".new")
            save(other, index, version)
            os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
            other.rename(path)
        else:
            save(path, index, version)
            if how == "times kept":
                os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    settle()


def open_(root, index="none"):
    return headrace.ImageFolder(root, T.Compose([T.CenterCrop(32), T.PILToTensor()]), index=index)


def colors(dataset, cache: str):
    """Returns the colours of an epoch by sample, and the number of bytes it read."""
    found = {}
    with DataLoader(dataset, 8, cache=cache, num_workers=2, return_index=True) as loader:
        for images, _, indices in loader:
            for image, index in zip(images, indices.tolist(), strict=True):
                assert image.flatten(1).float().std(1).max() == 0
                found[index] = tuple(image[:, 0, 0].tolist())
        return found, loader.stats()["bytes_read"]


def wanted(version: int, changed: int | None = None):
    return {i: color(i, changed if changed and i in CHANGED else version) for i in range(COUNT)}


@pytest.fixture(params=["shm", "memcached", "memcached mtime=no"])
def cache(request):
    """The text of a cache that outlives its loader."""
    if request.param == "shm":
        yield f"shm:changed-{uuid.uuid4().hex[:12]}?size=64MiB"
        return
    with Servers([Memcached()]) as servers:
        text = servers.text(size="32MiB")
        yield text + ("&mtime=no" if "no" in request.param else "")


@pytest.mark.parametrize("how", ["in place", "times kept", "rename"])
def test_a_warm_cache_after_files_were_rewritten(tmp_path, cache, how):
    root = make(tmp_path / "data", 1)
    settle()
    before = open_(root)
    assert colors(before, cache)[0] == wanted(1)
    found, read = colors(before, cache)
    assert found == wanted(1) and read == 0
    rewrite(root, 2, how)
    # Both a dataset that was opened before the change, and one opened after it.
    for dataset in (before, open_(root), open_(root)):
        assert colors(dataset, cache)[0] == wanted(1, 2)
    rewrite(root, 3, how)
    assert colors(before, cache)[0] == wanted(1, 3)


def test_what_an_index_says_is_not_believed(tmp_path, cache):
    """The directory's times do not change when a file is rewritten in place."""
    root = make(tmp_path / "data", 1)
    time.sleep(2.1)  # newer folders get no index
    first = open_(root, "beside")
    assert colors(first, cache)[0] == wanted(1)
    rewrite(root, 2, "in place")
    for _ in range(2):
        assert colors(open_(root, "beside"), cache)[0] == wanted(1, 2)


def test_versions_with_equal_times(tmp_path, cache):
    """As in archives and image layers: all files have the same time, and both versions the same
    names and sizes."""
    one = make(tmp_path / "one", 1, STAMP)
    two = make(tmp_path / "two", 2, STAMP)
    settle()
    assert colors(open_(one), cache)[0] == wanted(1)
    assert colors(open_(two), cache)[0] == wanted(2)
    assert colors(open_(one), cache)[0] == wanted(1)
    # The same path, like a volume that is replaced.
    shutil.rmtree(one)
    make(one, 2, STAMP)
    settle()
    assert colors(open_(one), cache)[0] == wanted(2)


def test_copies_share_what_is_the_same(tmp_path, cache):
    """Another copy of the files is recognised by its content, and reads only samples of it."""
    if cache.startswith("shm:"):
        pytest.skip("a segment belongs to the files of one path")
    one = make(tmp_path / "one", 1, STAMP)
    shutil.copytree(one, tmp_path / "two")
    settle()
    assert colors(open_(one), cache)[0] == wanted(1)
    found, read = colors(open_(tmp_path / "two"), cache)
    assert found == wanted(1) and read == 0


def test_tar_files(tmp_path, cache):
    """A tar file that is made again with its old time."""
    path = tmp_path / "data.tar"
    for version in (1, 2):
        root = make(tmp_path / f"{version}", version, STAMP)
        with tarfile.open(path, "w") as tar:
            for file in sorted((root / "class").iterdir()):
                tar.add(file, f"data/class/{file.name}")
        os.utime(path, ns=(STAMP, STAMP))
        settle()
        for again in range(2):
            dataset = headrace.TarDataset(path, T.Compose([T.CenterCrop(32), T.PILToTensor()]))
            found, read = colors(dataset, cache)
            assert found == wanted(version)
            assert not (again and read)


@pytest.mark.parametrize("how", ["in place", "times kept", "rename"])
@pytest.mark.parametrize("text", ["64MiB", "shm:NAME?size=64MiB"])
def test_files_that_change_while_training(tmp_path, how, text):
    root = make(tmp_path / "data", 1)
    settle()
    text = text.replace("NAME", "changed-" + uuid.uuid4().hex[:12])
    with DataLoader(open_(root), 8, cache=text, num_workers=2, return_index=True) as loader:
        for epoch in range(6):
            if epoch in (2, 4):
                rewrite(root, epoch, how)
            version = None if epoch < 2 else 2 if epoch < 4 else 4
            found = {
                index: tuple(image[:, 0, 0].tolist())
                for images, _, indices in loader
                for image, index in zip(images, indices.tolist(), strict=True)
            }
            assert found == wanted(1, version)


def test_mtime_no_says_what_it_cannot_see(tmp_path):
    """One line, once in a process."""
    root = make(tmp_path / "data", 1)
    with Servers([Memcached()]) as servers:
        code = """
            import logging, sys
            logging.basicConfig()
            import headrace, headrace.transforms as T
            from headrace.torch import DataLoader
            data = headrace.ImageFolder(sys.argv[1], T.Compose([T.CenterCrop(32), T.PILToTensor()]))
            for _ in range(2):
                for _ in DataLoader(data, 8, cache=sys.argv[2]):
                    pass
            """
        done = run_forked(textwrap.dedent(code), str(root), servers.text(mtime="no"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("detected by its size and by samples of its content") == 1
