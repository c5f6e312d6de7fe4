"""`make release` writes one version everywhere and commits it before anything is built of the commit,
which it tags last."""

import subprocess
import sys
from pathlib import Path

import check_packaging
import pytest
import release

ROOT = Path(__file__).resolve().parents[2]


def git(root, *words):
    done = subprocess.run(["git", "-c", "user.name=N", "-c", "user.email=n@example.org", *words],
                          cwd=root, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A repository with the files that have the version."""
    for name in check_packaging.VERSIONS:
        copy = tmp_path / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace("## Unreleased\n", "## Unreleased\n\n- New.\n", 1))
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "all: begin")
    for variable in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{variable}_NAME", "N")
        monkeypatch.setenv(f"{variable}_EMAIL", "n@example.org")
    for module in (check_packaging, release):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(release, "STEPS", [("seen", ["sh", "-c", "git log --format=%s >>built"])])
    return tmp_path


def make_release(monkeypatch, version):
    monkeypatch.setattr(sys, "argv", ["release.py", version])
    release.main()


def test_a_release_is_a_commit(tree, monkeypatch, capsys):
    make_release(monkeypatch, "97.0.0")
    assert list(check_packaging.version_faults("97.0.0")) == []
    assert "HR_VERSION_MAJOR 97\n" in (tree / "include/headrace/base.h").read_text()
    assert git(tree, "status", "--porcelain", "-uno") == ""
    assert (tree / "built").read_text().splitlines() == ["all: release 97.0.0", "all: begin"]
    assert "v97.0.0" in capsys.readouterr().out
    text = (tree / "CHANGELOG.md").read_text()
    assert text.index("## Unreleased") < text.index("## 97.0.0") < text.index("- New.")
    assert git(tree, "tag", "--points-at", "HEAD") == "v97.0.0\n"
    with pytest.raises(SystemExit):
        make_release(monkeypatch, "97.0.0")
    assert "the tag v97.0.0 is there" in capsys.readouterr().err


def test_a_release_goes_on_after_a_repair(tree, monkeypatch):
    with monkeypatch.context() as broken, pytest.raises(SystemExit):
        broken.setattr(release, "STEPS", [("broken", ["false"])])
        make_release(monkeypatch, "97.0.0")
    assert git(tree, "tag") == ""
    (tree / "repaired").write_text("")
    git(tree, "add", "repaired")
    git(tree, "commit", "-q", "-m", "all: repair")
    make_release(monkeypatch, "97.0.0")
    assert git(tree, "log", "--format=%s").splitlines() == ["all: repair", "all: release 97.0.0",
                                                            "all: begin"]
    assert git(tree, "tag", "--points-at", "HEAD") == "v97.0.0\n"


def test_what_is_not_committed_is_refused(tree, monkeypatch, capsys):
    (tree / "meson.build").write_text((tree / "meson.build").read_text() + "\n")
    with pytest.raises(SystemExit):
        make_release(monkeypatch, "97.0.0")
    assert "meson.build" in capsys.readouterr().err
    assert not (tree / "built").exists()


def test_versions_that_are_refused(tree, monkeypatch, capsys):
    for version, said in (("0.0.1", "not newer"), ("1.2", "name the version")):
        with pytest.raises(SystemExit):
            make_release(monkeypatch, version)
        assert said in capsys.readouterr().err
    assert git(tree, "log", "--format=%s").split("\n")[0] == "all: begin"


def test_the_number_of_the_library(tmp_path):
    for name in ("src/meson.build", "debian/control", "docs/install.md"):
        copy = tmp_path / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    assert list(check_packaging.number_faults(tmp_path)) == []
    (tmp_path / "src" / "meson.build").write_text("soversion: '97',\n")
    (tmp_path / "debian" / "libheadrace96.install").write_text("")
    faults = "\n".join(check_packaging.number_faults(tmp_path))
    for name in ("debian/control", "docs/install.md", "debian/libheadrace96.install"):
        assert f"{name}: " in faults
