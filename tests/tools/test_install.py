"""Installing: missing packages are reported at once, PyTorch is not needed, uninstall is exact."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, **more)


def test_make_install_needs_no_python_packages():
    done = run("make", "-n", "install", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "tools/install.sh" in done.stdout and "setup.sh" not in done.stdout
    assert "torch" not in (ROOT / "tools" / "install.sh").read_text().replace("PyTorch", "")


def test_every_module_is_installed():
    listed = (ROOT / "python" / "meson.build").read_text()
    modules = [p.relative_to(ROOT / "python") for p in (ROOT / "python" / "headrace").rglob("*.py")]
    assert [str(m) for m in modules if f"'{m}'" not in listed] == []


def test_missing_libraries_are_named_together(tmp_path):
    meson = shutil.which("meson")
    if meson is None:
        pytest.skip("meson is not here")
    environment = {**os.environ, "PKG_CONFIG_LIBDIR": str(tmp_path), "CMAKE": "false"}
    done = run(meson, "setup", str(tmp_path / "build"), "-Dtests=disabled", cwd=ROOT, env=environment)
    (line,) = [line for line in done.stdout.splitlines() if "ERROR" in line]
    assert done.returncode != 0
    for package in ("libjpeg-dev", "libspng-dev", "libwebp-dev", "liburing-dev", "libxxhash-dev", "libjansson-dev"):
        assert package in line


def test_setup_names_everything_on_other_systems(tmp_path):
    """A machine without apt, a compiler and everything else."""
    for name in ("sh", "dirname", "id", "cksum", "tr"):
        (tmp_path / name).symlink_to(shutil.which(name))
    done = run(str(tmp_path / "sh"), str(ROOT / "tools" / "setup.sh"), "--system",
               env={"PATH": str(tmp_path), "PYTHON": "no-python"})
    assert done.returncode == 3 and done.stdout == ""
    for word in ("C compiler", "make", "pkg-config", "libjpeg-turbo", "liburing", "jansson", "cmocka",
                 "Python 3.11"):
        assert word in done.stderr


def test_uninstall_takes_away_what_was_installed(tmp_path):
    prefix, logs = tmp_path / "prefix", tmp_path / "build" / "meson-logs"
    logs.mkdir(parents=True)
    for name in ("include/headrace/base.h", "bin/headrace", "bin/other", "with space/a"):
        (prefix / name).parent.mkdir(parents=True, exist_ok=True)
        (prefix / name).write_text("x")
    listed = ["include", "include/headrace", "include/headrace/base.h", "bin", "bin/headrace",
              "with space", "with space/a"]
    (logs / "install-log.txt").write_text("# a comment\n" + "".join(f"{prefix / n}\n" for n in listed))
    environment = {**os.environ, "BUILD": str(tmp_path / "build"), "DESTDIR": str(tmp_path)}
    done = run(str(ROOT / "tools" / "install.sh"), "--uninstall", env=environment)
    assert done.returncode == 0, done.stderr
    assert sorted(str(p.relative_to(prefix)) for p in prefix.rglob("*")) == ["bin", "bin/other"]
    done = run(str(ROOT / "tools" / "install.sh"), "--uninstall", env=environment)
    assert done.returncode == 3 and "install-log.txt" in done.stderr


def test_a_failed_install_leaves_a_folder_that_was_there(tmp_path):
    if shutil.which("meson") is None or shutil.which("ninja") is None:
        pytest.skip("meson or ninja is not here")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes").write_text("x")
    for build in (mine, tmp_path / "new"):
        environment = {**os.environ, "PKG_CONFIG_LIBDIR": str(tmp_path), "CMAKE": "false",
                       "BUILD": str(build), "PREFIX": str(tmp_path / "prefix")}
        done = run(str(ROOT / "tools" / "install.sh"), env=environment)
        assert done.returncode == 3 and "libjpeg-dev" in done.stderr
    assert (mine / "notes").read_text() == "x" and not (tmp_path / "new").exists()


def test_the_package_brings_the_command(tmp_path):
    headrace = pytest.importorskip("headrace")
    package = Path(headrace.__file__).parent
    if not (package / "headrace-command").exists():
        pytest.skip("not an installed package")
    expected = f"headrace {headrace.__version__}"
    script = Path(sys.executable).with_name("headrace")
    link = tmp_path / "elsewhere"
    link.symlink_to(package / "headrace-command")
    for words in ([sys.executable, "-m", "headrace"], [str(script)], [str(link)]):
        done = run(*words, "version", cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})
        assert done.returncode == 0 and done.stdout.splitlines()[0] == expected, (words, done.stderr)
    # Its exit status, and its behaviour in a pipe, are the program's.
    assert run(sys.executable, "-m", "headrace", "no-such-verb").returncode == 2
    done = run("sh", "-c", f"'{sys.executable}' -m headrace --help | head -n 1")
    assert done.returncode == 0 and done.stderr == ""
