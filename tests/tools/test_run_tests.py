"""The totals that `make test` ends with."""

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import run_tests


def test_meson_totals(tmp_path):
    log = tmp_path / "testlog.json"
    log.write_text("".join(json.dumps({"name": n, "result": r}) + "\n" for n, r in (
        ("a", "OK"), ("b", "FAIL"), ("c", "SKIP"), ("d", "TIMEOUT"), ("e", "EXPECTEDFAIL"))))
    assert run_tests.meson_totals(log) == (2, 2, 1, ["b (FAIL)", "d (TIMEOUT)"])


def test_pytest_totals(tmp_path):
    log = tmp_path / "pytest.xml"
    log.write_text("""<testsuites><testsuite>
        <testcase classname="m" name="good"/>
        <testcase classname="m" name="bad"><failure/></testcase>
        <testcase classname="m" name="broken"><error/></testcase>
        <testcase classname="m" name="not"><skipped/></testcase></testsuite></testsuites>""")
    assert run_tests.pytest_totals(log) == (1, 2, 1, ["m::bad", "m::broken"])


def test_records_of_several_processes(tmp_path):
    logs = [tmp_path / "1.xml", tmp_path / "2.xml"]
    merged = tmp_path / "all.xml"
    logs[0].write_text("""<testsuites><testsuite>
        <testcase classname="m" name="good"/></testsuite></testsuites>""")
    run_tests.merge(logs, merged)
    assert not merged.exists(), "one of them left no record"
    logs[1].write_text("""<testsuites><testsuite>
        <testcase classname="n" name="bad"><failure/></testcase></testsuite></testsuites>""")
    run_tests.merge(logs, merged)
    assert run_tests.pytest_totals(merged) == (1, 1, 0, ["n::bad"])


def part_of(tmp_path, code):
    part = run_tests.Part("C and command", tmp_path / "log", run_tests.meson_totals)
    part.start([sys.executable, "-c", code, str(tmp_path / "log")], None)
    part.wait()
    return part.report()


def test_a_part_is_good_where_something_passed_and_nothing_failed(tmp_path):
    record = "import json, sys; open(sys.argv[1], 'w').write(json.dumps({'name': 'a', 'result': '%s'}))"
    assert part_of(tmp_path, record % "OK") == (["C and command:    1 passed, 0 failed, 0 skipped"], True)
    assert not part_of(tmp_path, record % "SKIP")[1]
    assert not part_of(tmp_path, record % "OK" + "; sys.exit(3)")[1]
    lines, good = part_of(tmp_path, record % "FAIL")
    assert not good and lines[1] == "    failed: a (FAIL)"
    assert part_of(tmp_path, "raise SystemExit(5)") == (["C and command:    did not run (exit status 5)"], False)


def test_failed_tests_run_again(tmp_path, monkeypatch):
    """A test that fails twice stays failed, and so do more failures than a busy machine explains."""
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "test_speed.py").write_text("""
import os
import pytest

def passes_at(place, run):
    with open(place, "a") as file:
        file.write("x")
    assert os.path.getsize(place) >= run

@pytest.mark.parametrize("name", ["a.b"])
def test_second(name):
    passes_at("second", 2)

def test_third():
    passes_at("third", 3)
""")
    environment = {**os.environ, "PYTHONPATH": str(Path(run_tests.__file__).parent)}
    environment.pop("HEADRACE_TEST_CLAIMS", None)  # of the run that this test is part of

    def summary(*fewer):
        for name in ("second", "third"):
            (tmp_path / name).unlink(missing_ok=True)
        for name in fewer:  # succeeds at once
            (tmp_path / name).write_text("xxx")
        part = run_tests.Part("Python", tmp_path / "log.xml", run_tests.pytest_totals)
        run_tests.start_pytest(part, ["folder"], environment, part.record, "not long")
        part.wait()
        again = part.again(environment)
        return part.report(), again

    second = ["    failed beside other tests, passed alone: folder.test_speed::test_second[a.b]"]
    (lines, good), again = summary()
    assert not good and again == second
    assert lines == ["Python:           1 passed, 1 failed, 0 skipped",
                     "    failed: folder.test_speed::test_third"]
    (lines, good), again = summary("third")
    assert good and again == second and lines == ["Python:           2 passed, 0 failed, 0 skipped"]
    assert summary("second", "third") == ((lines, True), [])
    monkeypatch.setattr(run_tests, "AGAIN_AT_MOST", 1)
    (lines, good), again = summary()
    assert not good and again == [] and len(lines) == 3


def test_processes_share_files(tmp_path):
    claims, folder = tmp_path / "claims", tmp_path / "tests"
    claims.mkdir()
    folder.mkdir()
    for name in "ab":
        (folder / f"test_{name}.py").write_text("def test_one():\n    pass\n\ndef test_two():\n    pass\n")
    (claims / "test_a.py").touch()  # another process has it
    for passed in ([("test_b", "test_one"), ("test_b", "test_two")], []):
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "pytest_share",
             f"--junitxml={tmp_path / 'log.xml'}", str(folder)], capture_output=True, cwd=tmp_path,
            env={**os.environ, "HEADRACE_TEST_CLAIMS": str(claims),
                 "PYTHONPATH": str(Path(run_tests.__file__).parent)}, check=False)
        assert run.returncode == 0, run.stdout.decode()
        cases = ElementTree.parse(tmp_path / "log.xml").getroot().iter("testcase")
        assert [(case.get('classname')[-6:], case.get('name')) for case in cases] == passed


def test_a_package_whose_tests_cannot_begin(tmp_path, monkeypatch, capfd):
    """pytest ends before it forks: that is no record, and its message is shown."""
    (tmp_path / "tests/python").mkdir(parents=True)
    (tmp_path / "tests/python/test_a.py").write_text("pass  # mark.long\n")
    (tmp_path / "tests/python/conftest.py").write_text("raise OSError('no disk')\n")
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "--build", str(tmp_path), "--jobs", "1", "--long"])
    monkeypatch.setenv("PYTHONPATH", str(Path(run_tests.__file__).parent))
    assert run_tests.main() == 1
    out = capfd.readouterr().out
    assert "no disk" in out and "Python package:   did not run (exit status " in out


@pytest.mark.parametrize("option, begun", [("--package", ["Python package"]),
                                           ("--without-package", ["meson", "tools, examples"])])
def test_with_and_without_the_package(tmp_path, monkeypatch, option, begun):
    class Part:
        logs, processes = [], []

        def __init__(self, title):
            titles.append(title)

        def join(self, jobs):
            pass

        def wait(self):
            pass

        def again(self, environment):
            return []

        def report(self):
            return [], True

    titles = []
    monkeypatch.setattr(run_tests, "start_meson", lambda build, jobs: Part("meson"))
    monkeypatch.setattr(run_tests, "python_tests", lambda title, *rest: Part(title))
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "--build", str(tmp_path), option])
    assert run_tests.main() == 0 and titles == begun


def test_pytest_ends_while_the_c_tests_run(tmp_path, monkeypatch):
    """Processes cannot join then: the summary says that the package's tests did not run."""
    (tmp_path / "tests/python").mkdir(parents=True)
    (tmp_path / "tests/python/test_a.py").write_text("pass\n")
    (tmp_path / "tests/python/conftest.py").write_text("raise OSError('no disk')\n")
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(Path(run_tests.__file__).parent)}
    record = tmp_path / "pytest.xml"
    python = run_tests.python_tests("Python package", "python", record, environment, is_long=False)
    python.processes[0].wait()
    python.join(2)
    python.wait()
    assert python.report() == (["Python package:   did not run (exit status 4)"], False)


def test_a_test_that_hangs_is_ended_and_named(tmp_path, monkeypatch):
    """With what it has started; the other processes run the other files."""
    (tmp_path / "test_a.py").write_text("""
import subprocess
import time

def test_before():
    pass

def test_waits():
    child = subprocess.Popen(["sleep", "1000"])
    with open("child", "w") as file:
        file.write(str(child.pid))
    time.sleep(1000)
""")
    (tmp_path / "test_b.py").write_text("def test_one():\n    pass\n")
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    environment = {**os.environ, "HEADRACE_TEST_LIMIT_S": "2",
                   "PYTHONPATH": str(Path(run_tests.__file__).parent)}
    files = sorted(tmp_path.glob("test_*.py"))
    part = run_tests.Shared("Python", tmp_path / "log.xml", files, environment)
    part.join(2)
    part.wait()
    lines, good = part.report()
    assert not good and lines == ["Python:           1 passed, 1 failed, 0 skipped",
                                  "    failed: test_a::test_waits"]
    child = Path("/proc", (tmp_path / "child").read_text(), "cmdline")
    while child.exists() and child.read_text():  # a zombie has none
        time.sleep(0.05)
    log = (tmp_path / "log-1.log").read_text() + (tmp_path / "log-2.log").read_text()
    assert "test_a.py::test_waits did not end within 2 s" in log
    assert "in test_waits" in log, "where it waits"
    assert not list(tmp_path.glob("*.running"))


def test_longest_files_begin_first():
    folder = Path(run_tests.__file__).parents[1] / "tests" / "python"
    files = sorted(folder.glob("test_*.py"), key=run_tests.place_of)
    begun = [file.stem for file in files[:len(run_tests.LONGEST)]]
    assert begun == [f"test_{name}" for name in run_tests.LONGEST]
    sizes = [file.stat().st_size for file in files[len(run_tests.LONGEST):]]
    assert sizes == sorted(sizes, reverse=True)


def test_failed_meson_tests_run_again(tmp_path):
    """What a sanitizer has reported once is wrong, whether it is seen again or not."""
    source, build = tmp_path / "source", tmp_path / "build"
    source.mkdir()
    (source / "meson.build").write_text("""project('p')
shell = find_program('sh')
once = 'test -e "$0" || { : >"$0"; echo "$1" >&2; exit 1; }'
here = meson.current_source_dir()
test('late', shell, args: ['-c', once, here / 'late', 'too late'], suite: 'unit')
test('race', shell, args: ['-c', once, here / 'race', 'WARNING: ThreadSanitizer: data race'], suite: 'unit')
""")
    subprocess.run(["meson", "setup", build, source], check=True, capture_output=True)

    def summary():
        part = run_tests.start_meson(build, 2)
        part.wait()
        again = part.again({})
        return part.report(), again

    (lines, good), again = summary()
    assert not good and [line.split(":")[-1].strip() for line in again] == ["late"]
    assert lines[0] == "C and command:    1 passed, 1 failed, 0 skipped" and len(lines) == 2
    (source / "late").unlink()
    (lines, good), again = summary()
    assert good and lines == ["C and command:    2 passed, 0 failed, 0 skipped"] and len(again) == 1


def test_processes_join_when_the_c_tests_end(tmp_path, monkeypatch, capfd):
    """The Python package's first process runs until another one has begun."""
    build = tmp_path / "build"
    (tmp_path / "meson.build").write_text("project('p')\ntest('one', find_program('true'))\n")
    for folder, files in ("python", {"a": "wait()", "b": "begin()", "c": "pass"}), ("tools", {"d": "pass"}):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        for name, does in files.items():
            (tmp_path / "tests" / folder / f"test_{name}.py").write_text(f"""
import os, time

def wait():
    while not os.path.exists("begun"):
        time.sleep(0.01)

def begin():
    open("begun", "w").close()

def test_one():
    {does}
""")
    subprocess.run(["meson", "setup", build, tmp_path], check=True, capture_output=True)
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "LONGEST", ("a",))
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "--build", str(build), "--jobs", "1"])
    monkeypatch.setenv("PYTHONPATH", str(Path(run_tests.__file__).parent))
    assert run_tests.main() == 0
    out = capfd.readouterr().out
    assert "C and command:    1 passed" in out and "Python package:   3 passed" in out
    assert "tools, examples:  1 passed" in out and out.endswith("all tests passed\n")
