"""The sample set: the same files whatever the processes, restarts and kills."""

import io
import json
import random
import shutil

import pytest
from PIL import Image

import make_samples
import sample_photographs
from progress import Progress


class Quiet(Progress):
    def __init__(self):
        super().__init__("test", io.StringIO())


@pytest.fixture
def cache(photographs, tmp_path, monkeypatch):
    """A cache that holds one unpacked package with 16 photographs in 8 classes."""
    cache = tmp_path / "cache"
    tree = cache / "packages" / "pictures" / "tree"
    tree.mkdir(parents=True)
    (tree.parent / ".complete").write_text("pictures_1_all.deb\n")
    files = [file for files in photographs.values() for file in files[:8]][:16]
    entries = []
    for number, file in enumerate(files):
        shutil.copy(file, tree / f"p{number}.jpg")
        entries.append(sample_photographs.Entry(f"class{number % 8}", f"photo{number}", "pictures",
                                                f"p{number}.jpg"))
    monkeypatch.setattr(sample_photographs, "PACKAGES", ("pictures",))
    monkeypatch.setattr(sample_photographs, "PHOTOGRAPHS", tuple(entries))
    # Every file must fit the band for a small set from small pictures.
    monkeypatch.setattr(make_samples, "MIN_ACCEPTED", 0.0)
    return cache


def make(root, cache, processes=1, count=40, seed=0):
    return make_samples.make_set(root, make_samples.SAMPLE, count, seed, processes, cache, Quiet())


def test_files_are_what_was_asked_for(cache, tmp_path):
    manifest = make(tmp_path / "set", cache)
    files = sorted((tmp_path / "set").glob("*/*.jpg"))
    assert manifest["files"] == len(files) == 40
    assert len(manifest["classes"]) == 8
    assert set(manifest["classes"].values()) == {5}
    shapes = {shape for shape, _ in make_samples.SHAPES}
    for file in files:
        with Image.open(file) as image:
            image.load()
            assert image.format == "JPEG" and image.size in shapes and image.mode == "RGB"
    licences = (tmp_path / "set" / "LICENCES.txt").read_text()
    assert "pictures_1_all.deb" in licences and "class0/photo0_" in licences


def test_same_files_after_restart_and_with_more_processes(cache, tmp_path):
    whole = make(tmp_path / "a", cache)
    parallel = make(tmp_path / "b", cache, processes=2)
    assert parallel["digest"] == whole["digest"]
    # As after a killed run: no manifest, some files missing, one unfinished.
    folder = tmp_path / "b"
    (folder / "MANIFEST.json").unlink()
    files = sorted(folder.glob("*/*.jpg"))
    kept = files[0].stat().st_mtime_ns
    for file in files[1::2]:
        file.unlink()
    files[1].with_name(f".{files[1].name}.part").write_bytes(b"half")
    assert make(folder, cache)["digest"] == whole["digest"]
    assert files[0].stat().st_mtime_ns == kept
    assert not list(folder.glob("*/.*.part"))


def test_small_set_is_part_of_a_larger_one(cache, tmp_path):
    whole = make(tmp_path / "whole", cache)
    folder = tmp_path / "set"
    assert make(folder, cache, count=12)["files"] == 12
    small = {file.relative_to(folder): file.read_bytes() for file in folder.glob("*/*.jpg")}
    assert len(small) == 12
    assert all((tmp_path / "whole" / name).read_bytes() == data for name, data in small.items())
    assert make(folder, cache) == whole
    # The existing files suffice for a smaller set.
    assert make(folder, cache, count=12) == whole
    assert len(list(folder.glob("*/*.jpg"))) == 40


def test_another_seed_makes_other_files_and_drops_the_old(cache, tmp_path):
    first = make(tmp_path / "set", cache)
    other = make(tmp_path / "set", cache, count=24, seed=1)
    assert other["digest"] != first["digest"]
    assert len(list((tmp_path / "set").glob("*/*.jpg"))) == 24


def test_complete_set_needs_no_packages(cache, tmp_path):
    first = make(tmp_path / "set", cache)
    shutil.rmtree(cache)
    assert make(tmp_path / "set", cache) == first


def test_foreign_folder_is_left_alone(cache, tmp_path):
    mine = tmp_path / "mine" / "holiday.jpg"
    mine.parent.mkdir()
    mine.write_bytes(b"precious")
    with pytest.raises(make_samples.Failure, match="not made by this program"):
        make(mine.parent, cache)
    assert mine.read_bytes() == b"precious"


def test_too_few_photographs_is_an_error(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(sample_photographs, "PHOTOGRAPHS", sample_photographs.PHOTOGRAPHS[:5])
    monkeypatch.setattr(sample_photographs, "ENOUGH", 5)
    with pytest.raises(make_samples.Failure, match="at least 15 in 8"):
        make(tmp_path / "set", cache)


def test_windows_lie_within_the_photograph():
    rng = random.Random(1)
    for size in ((451, 300), (640, 427), (2560, 1600), (2056, 3088), (5312, 2988)):
        for shape, _ in make_samples.SHAPES:
            for _ in range(50):
                x, y, right, bottom = make_samples.draw_window(rng, size, shape)
                assert 0 <= x < right <= size[0] + 1e-6
                assert 0 <= y < bottom <= size[1] + 1e-6
                ratio = (right - x) / (bottom - y)
                assert abs(ratio - shape[0] / shape[1]) < 1e-6


def test_catalogue_has_no_doubles():
    seen = [(e.package, e.name) for e in sample_photographs.PHOTOGRAPHS]
    assert len(seen) == len(set(seen))
    assert {e.package for e in sample_photographs.PHOTOGRAPHS} <= set(sample_photographs.PACKAGES)
    assert len({e.label for e in sample_photographs.PHOTOGRAPHS}) >= make_samples.MIN_CLASSES


def test_names(tmp_path):
    make_samples.make_names(tmp_path / "names", 2500, Quiet())
    files = sorted((tmp_path / "names").glob("*/*.jpg"))
    assert len(files) == 2500 and len({f.parent for f in files}) == 100
    with Image.open(files[-1]) as image:
        image.load()
        assert image.size == (16, 16)
    assert json.loads((tmp_path / "names" / "MANIFEST.json").read_text())["files"] == 2500
