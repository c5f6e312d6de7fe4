"""headrace.pack, unpack, verify_pack, pack_info."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import headrace
import headrace.transforms as T
from PIL import Image

SEED = 5


def write_folder(root: Path, count: int = 12, side: int = 60) -> Path:
    random = np.random.default_rng(SEED)
    for i in range(count):
        directory = root / ("cat" if i % 3 else "dog")
        directory.mkdir(parents=True, exist_ok=True)
        coarse = random.integers(0, 255, (6, 8, 3), np.uint8)
        image = Image.fromarray(coarse).resize((side + i, side - 10 + i), Image.BICUBIC)
        image.save(directory / f"{i:03d}.jpg", quality=88, subsampling=i % 3)
    return root


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "set")


def recipe():
    return T.Compose(
        [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToImage(), T.ToDtype("float32", scale=True)]
    )


@pytest.mark.parametrize("form", ["coefficients", "planes", "indexed", "encoded", "auto"])
@pytest.mark.parametrize("jobs", [1, 3])
def test_a_pack_gives_the_folders_batches(folder, tmp_path, form, jobs):
    torch = pytest.importorskip("torch")
    import headrace.torch

    result = headrace.pack(str(folder), tmp_path / "p", form=form, jobs=jobs)
    assert result["samples"] == 12 and result["bad"] == [] and result["continued"] == 0
    assert sum(f["samples"] for f in result["forms"].values()) == 12
    if form != "auto":
        assert result["forms"][form]["samples"] == 12
    assert result["bytes"] == os.path.getsize(tmp_path / "p")
    assert result["source_bytes"] == sum(f.stat().st_size for f in folder.glob("*/*.jpg"))

    def batches(dataset):
        loader = headrace.torch.DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2, seed=9)
        return list(loader)

    ours = batches(headrace.Pack(tmp_path / "p", transform=recipe()))
    theirs = batches(headrace.ImageFolder(folder, transform=recipe()))
    assert len(ours) == len(theirs) == 3
    for (x, a), (y, b) in zip(ours, theirs):
        assert torch.equal(x, y) and torch.equal(a, b)


def test_what_is_in_it(folder, tmp_path):
    Image.new("RGB", (5, 5)).save(folder / "cat" / "x.png")
    written = headrace.pack(headrace.ImageFolder(folder), tmp_path / "p")
    assert written["encoded"]["format"] == 1
    assert written["forms"]["coefficients"]["samples"] == 12
    info = headrace.pack_info(tmp_path / "p")
    del written["bad"], written["rewritten"]
    assert info == written
    with pytest.raises(ValueError, match="is not a pack"):
        headrace.pack_info(folder / "cat" / "x.png")
    with pytest.raises(FileNotFoundError):
        headrace.pack_info(tmp_path / "none")


def test_progressive_files_are_named_where_they_are_rewritten(folder, tmp_path):
    source = folder / "cat" / "progressive.jpg"
    Image.effect_noise((70, 50), 60).convert("RGB").save(source, progressive=True, comment="kept")
    assert headrace.pack(folder, tmp_path / "c")["rewritten"] == []
    written = headrace.pack(folder, tmp_path / "i", form="indexed")
    assert written["rewritten"] == [str(source)]
    assert written["forms"]["indexed"]["samples"] == 13
    headrace.unpack(tmp_path / "i", tmp_path / "again")
    for file in folder.glob("*/*.jpg"):
        with Image.open(file) as old, Image.open(tmp_path / "again" / file.relative_to(folder)) as new:
            assert (old.tobytes() == new.tobytes()) and old.info.get("comment") == new.info.get("comment")
            assert (file == source) == ("progressive" in old.info) and "progressive" not in new.info


def test_threads_do_not_matter(folder, tmp_path):
    for jobs in (1, 2, 7):
        headrace.pack(folder, tmp_path / str(jobs), jobs=jobs)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes() == (tmp_path / "7").read_bytes()


def test_arguments(folder, tmp_path):
    with pytest.raises(ValueError, match="form must be one of"):
        headrace.pack(folder, tmp_path / "p", form="rgb")
    with pytest.raises(ValueError, match="on_error"):
        headrace.pack(folder, tmp_path / "p", on_error="ignore")
    with pytest.raises(ValueError, match="max_growth"):
        headrace.pack(folder, tmp_path / "p", max_growth=-1)
    with pytest.raises(TypeError):
        headrace.pack(7, tmp_path / "p")
    with pytest.raises(FileNotFoundError):
        headrace.pack(tmp_path / "none", tmp_path / "p")
    headrace.pack(folder, tmp_path / "p")
    with pytest.raises(FileExistsError, match="there is something at"):
        headrace.pack(folder, tmp_path / "p")
    headrace.pack(folder, tmp_path / "p", overwrite=True)
    assert not list(tmp_path.glob("*.partial"))


def test_max_growth_keeps_images_as_they_are(folder, tmp_path):
    result = headrace.pack(folder, tmp_path / "p", form="planes", max_growth=1.01)
    assert result["encoded"]["growth"] == 12
    assert result["forms"]["encoded"]["bytes"] == result["source_bytes"]


def test_bad_samples(folder, tmp_path):
    bad = folder / "cat" / "004.jpg"
    bad.write_bytes(bad.read_bytes()[:300])
    with pytest.raises(headrace.SampleError) as caught:
        headrace.pack(folder, tmp_path / "p")
    assert caught.value.path == str(bad)
    assert caught.value.reason
    result = headrace.pack(folder, tmp_path / "p", on_error="skip")
    assert [b.path for b in result["bad"]] == [str(bad)]
    assert result["encoded"]["bad"] == 1
    assert result["continued"] == caught.value.index
    (found,) = headrace.verify_pack(tmp_path / "p", jobs=2)
    assert found.index == caught.value.index and found.path.endswith("cat/004.jpg")


def test_progress_can_end_it_and_it_continues(tmp_path):
    folder = write_folder(tmp_path / "set", count=60, side=500)
    seen = []

    def stop(done, total):
        if done:  # the first calls may come before anything is
            seen.append((done, total))
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        headrace.pack(folder, tmp_path / "p", progress=stop, jobs=1)
    assert len(seen) == 1 and seen[0][1] == 60
    assert (tmp_path / "p.partial").exists() and not (tmp_path / "p").exists()
    with pytest.raises(OSError) as caught:
        headrace.pack(folder, tmp_path / "p", form="planes")
    assert caught.value.errno == errno.ESTALE
    seen.clear()
    result = headrace.pack(folder, tmp_path / "p", progress=lambda *at: seen.append(at))
    assert 0 < result["continued"] <= 60
    assert seen[-1] == (60, 60)
    headrace.pack(folder, tmp_path / "whole")
    assert (tmp_path / "p").read_bytes() == (tmp_path / "whole").read_bytes()


def test_keyboard_interrupt(tmp_path):
    folder = write_folder(tmp_path / "set", count=100, side=600)

    def interrupt(done, total):
        if done:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        headrace.pack(folder, tmp_path / "p", jobs=1, progress=interrupt)
    assert (tmp_path / "p.partial").exists()
    assert headrace.pack(folder, tmp_path / "p")["continued"] > 0


def test_killed_writers_are_continued(tmp_path):
    folder = write_folder(tmp_path / "set", count=30, side=300)
    headrace.pack(folder, tmp_path / "whole")
    code = "import sys, headrace; headrace.pack(sys.argv[1], sys.argv[2], jobs=2)"
    partial = tmp_path / "p.partial"
    for _ in range(3):
        size = partial.stat().st_size if partial.exists() else 0
        writer = subprocess.Popen([sys.executable, "-c", code, str(folder), str(tmp_path / "p")])
        while writer.poll() is None and not (partial.exists() and partial.stat().st_size > size):
            time.sleep(0.001)
        writer.kill()
        writer.wait()
        if (tmp_path / "p").exists():
            break
    else:
        headrace.pack(folder, tmp_path / "p")
    assert (tmp_path / "p").read_bytes() == (tmp_path / "whole").read_bytes()


def test_verify_finds_damage(folder, tmp_path):
    path = tmp_path / "p"
    headrace.pack(folder, path)
    assert headrace.verify_pack(path) == []
    data = bytearray(path.read_bytes())
    data[-150] ^= 4
    path.write_bytes(data)
    (bad,) = headrace.verify_pack(path)
    assert bad.index == 11 and "checksum" in bad.reason
    with pytest.raises(headrace.SampleError, match="checksum"):
        headrace.unpack(path, tmp_path / "out")
    result = headrace.unpack(path, tmp_path / "out2", on_error="skip")
    assert result["samples"] == 11 and [b.index for b in result["bad"]] == [11]
    data[4100] ^= 4
    path.write_bytes(data)
    with pytest.raises(ValueError):
        headrace.verify_pack(path)


@pytest.mark.parametrize("form", ["coefficients", "planes", "indexed", "encoded"])
def test_unpacked_images_have_the_same_pixels(folder, tmp_path, form):
    headrace.pack(folder, tmp_path / "p", form=form)
    result = headrace.unpack(tmp_path / "p", tmp_path / "out", jobs=2)
    assert result["samples"] == 12 and result["bad"] == []
    for path in sorted(folder.glob("*/*.jpg")):
        again = tmp_path / "out" / path.relative_to(folder)
        if form == "planes":
            again = again.with_name(again.name + ".png")
        with Image.open(path) as x, Image.open(again) as y:
            assert np.array_equal(np.asarray(x), np.asarray(y.convert(x.mode)))
        assert again.stat().st_mtime_ns == path.stat().st_mtime_ns
        if form in ("encoded", "indexed"):
            assert again.read_bytes() == path.read_bytes()
    with pytest.raises(FileExistsError):
        headrace.unpack(tmp_path / "p", tmp_path / "out")
    headrace.unpack(tmp_path / "p", tmp_path / "out", overwrite=True)


