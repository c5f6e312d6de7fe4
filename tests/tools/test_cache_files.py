"""The files that make bench-cache reads: distinct copies, restartable, never over another's."""

import io
import json

import pytest
from PIL import Image

import make_cache_files
from progress import Progress


def make(root, source, files=60, total=1, classes=7):
    wish = {"files": files, "bytes": total, "classes": classes}
    return make_cache_files.make_set(root, source, wish, 1, Progress("test", io.StringIO()))


def contents(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in root.glob("*/*.jpg")}


@pytest.fixture
def source(photographs, tmp_path):
    """A few photographs: a prime number, so that copies do not line up with classes."""
    folder = tmp_path / "source"
    for name, files in list(photographs.items())[:2]:
        (folder / name).mkdir(parents=True)
        for file in files[:4]:
            (folder / name / file.name).symlink_to(file)
    next(folder.glob("*/*.jpg")).unlink()
    return folder


def test_copies_are_the_same_pictures_and_all_different(source, tmp_path):
    made = make(tmp_path / "set", source)
    files = contents(tmp_path / "set")
    assert made["files"] == len(files) == len(set(files.values())) == 60
    assert made["bytes"] == sum(map(len, files.values()))
    assert len({name.split("/")[0] for name in files}) == made["classes"] == 7
    sources = sorted(source.glob("*/*.jpg"))
    for number, name in enumerate(sorted(files, key=lambda n: n.split("_")[-1])):
        picture = Image.open(io.BytesIO(files[name]))
        original = Image.open(sources[number % len(sources)])
        assert picture.tobytes() == original.tobytes()
        assert picture.info["comment"] == b"headrace copy %010d" % number


def test_enough_bytes_are_made_where_files_are_small(source, tmp_path):
    total = 40 * max(p.stat().st_size for p in source.glob("*/*.jpg"))
    made = make(tmp_path / "set", source, files=1, total=total)
    assert total <= made["bytes"] < total + 300_000
    assert made["files"] == len(contents(tmp_path / "set"))


def test_a_killed_run_goes_on_and_a_complete_one_stays(source, tmp_path):
    root = tmp_path / "set"
    whole = make(root, source)
    before = contents(root)
    (root / "MANIFEST.json").unlink()
    files = sorted(root.glob("*/*.jpg"))
    kept = files[0].stat().st_mtime_ns
    for file in files[1::2]:
        file.unlink()
    files[2].write_bytes(b"half")
    assert make(root, source) == whole
    assert contents(root) == before
    assert files[0].stat().st_mtime_ns == kept
    files[3].unlink()  # with the manifest there nothing is looked at again
    make(root, source)
    assert not files[3].exists()
    assert json.loads((root / "MANIFEST.json").read_text()) == whole


def test_a_foreign_folder_is_left_alone(source, tmp_path):
    mine = tmp_path / "mine" / "holiday.jpg"
    mine.parent.mkdir()
    mine.write_bytes(b"precious")
    with pytest.raises(make_cache_files.Failure, match="not made by this program"):
        make(mine.parent, source)
    assert mine.read_bytes() == b"precious"


def test_too_little_space_is_reported_beforehand(source, tmp_path, monkeypatch):
    usage = make_cache_files.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(make_cache_files.shutil, "disk_usage",
                        lambda path: usage._replace(free=1 << 20))
    with pytest.raises(make_cache_files.Failure, match=r"GB free.*--out"):
        make(tmp_path / "set", source)
    assert not contents(tmp_path / "set")


def test_no_photographs_is_an_error(tmp_path):
    with pytest.raises(make_cache_files.Failure, match="make samples"):
        make(tmp_path / "set", tmp_path / "nothing")
