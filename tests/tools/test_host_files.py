"""The files that make bench-hosts reads: distinct, small, and some of one set large."""

import io

import make_host_files
from progress import Progress


def contents(root):
    return {p.relative_to(root): p.read_bytes() for p in root.glob("*/*.jpg")}


def test_even_files_are_alike_and_uneven_ones_are_not(photographs, tmp_path, monkeypatch):
    source, name = tmp_path / "source", next(iter(photographs))
    (source / name).mkdir(parents=True)
    for file in photographs[name][:5]:
        (source / name / file.name).symlink_to(file)
    monkeypatch.setattr(make_host_files, "PICTURES", 32)
    ratios = {}
    for kind in ("even", "uneven"):
        made = make_host_files.make_host_set(tmp_path / "set", source, kind, 1,
                                             Progress("test", io.StringIO()), 64)
        files = contents(tmp_path / "set" / kind)
        assert made["files"] == len(files) == len(set(files.values())) == 64
        assert made["bytes"] == sum(map(len, files.values()))
        sizes = sorted(map(len, files.values()))
        ratios[kind] = sizes[-1] / sizes[32]
        again = make_host_files.make_host_set(tmp_path / "set", source, kind, 1,
                                              Progress("test", io.StringIO()), 64)
        assert again == made
        assert contents(tmp_path / "set" / kind) == files
    assert ratios["even"] < 3 < ratios["uneven"]
