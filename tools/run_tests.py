#!/usr/bin/env python3
"""Runs the tests for `make test` and `make test-long`, and prints the totals.

Tests mostly wait, so all parts run in parallel: the C and command tests in Meson, those of tools
and examples, and those of the Python package in several processes that one pytest forks and that
split its files (pytest_share.py, which also ends a test that hangs). More of these start when the C
tests have ended. Each part writes its record to BUILD: meson-logs/testlog.json, pytest-tools.xml
and pytest.xml. With --long only tests of Python marked `long` run, with the record pytest-long.xml;
with --package only the others of the package, as it is installed, and BUILD may be empty; with
--without-package all but these. The output of pytest goes to a log beside the record, and is
printed if a test failed. A few tests that failed run once more after everything else has ended, and
the summary names those that pass then: processes with time limits fail where the machine stands
still for seconds. What a sanitizer reported stays failed. The exit status is 0 only if no test
failed for good and each part ran at least one.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOOD = {"OK", "EXPECTEDFAIL"}
PASSED_OVER = {"SKIP"}
AGAIN_AT_MOST = 8  # more failures than this are no accident of a busy machine
SANITIZER_REPORTS = ("WARNING: ThreadSanitizer", "ERROR: AddressSanitizer", "ERROR: LeakSanitizer",
                     "runtime error:")
# Test files of the Python package that take longest. A file belongs to one process, so these begin
# first: a long one at the end would keep one process busy and leave the others without work.
LONGEST = ("stalls_scripts", "cameras", "memory_launch", "stalls_disturbed", "stalls_endings",
           "agent_endings", "memory_recording", "stalls_reads", "stalls_loops", "cached",
           "stalls_ranks", "hosts_runs", "frameworks", "stalls_guard")


def meson_totals(log):
    """(passed, failed, skipped, names of the failed) of a testlog.json: one object a line."""
    passed, skipped, failed = 0, 0, []
    for line in log.read_text().splitlines():
        test = json.loads(line)
        if test["result"] in GOOD:
            passed += 1
        elif test["result"] in PASSED_OVER:
            skipped += 1
        else:
            failed.append(f"{test['name']} ({test['result']})")
    return passed, len(failed), skipped, failed


def is_bad(case):
    """Whether a test case of a JUnit file failed."""
    return case.find("failure") is not None or case.find("error") is not None


def pytest_totals(log):
    """The same of a JUnit file."""
    passed, skipped, failed = 0, 0, []
    for case in ElementTree.parse(log).getroot().iter("testcase"):
        if is_bad(case):
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, len(failed), skipped, failed


def replace_failed(record, again):
    """Replaces failed cases of ``record`` that passed in ``again``. Returns their names."""
    def name_of(case):
        return f"{case.get('classname')}::{case.get('name')}"

    passed = {name_of(case): case for case in ElementTree.parse(again).getroot().iter("testcase")
              if not is_bad(case)}
    tree, replaced = ElementTree.parse(record), []
    for suite in tree.getroot().iter("testsuite"):
        for place, case in enumerate(list(suite)):
            if is_bad(case) and name_of(case) in passed:
                suite[place] = passed[name_of(case)]
                replaced.append(name_of(case))
    tree.write(record)
    return replaced


def replace_failed_lines(record, again):
    """The same for two testlog.json."""
    passed = {}
    for line in again.read_text().splitlines():
        test = json.loads(line)
        if test["result"] in GOOD:
            passed[test["name"]] = line
    lines, replaced = [], []
    for line in record.read_text().splitlines():
        test = json.loads(line)
        if test["result"] not in GOOD | PASSED_OVER and test["name"] in passed:
            replaced.append(test["name"])
            line = passed[test["name"]]
        lines.append(line + "\n")
    record.write_text("".join(lines))
    return replaced


def failed_without_report(record):
    """Names of the failed tests of a testlog.json in whose output no sanitizer reports anything."""
    tests = map(json.loads, record.read_text().splitlines())
    # "unit - headrace:watch-result"
    return [test["name"].split(":")[-1] for test in tests
            if test["result"] not in GOOD | PASSED_OVER
            and not any(report in test.get("stdout", "") + test.get("stderr", "")
                        for report in SANITIZER_REPORTS)]


def merge(logs, merged):
    """Makes one JUnit file of several; none where one of them is missing."""
    if all(log.exists() for log in logs):
        root = ElementTree.Element("testsuites")
        for log in logs:
            root.extend(ElementTree.parse(log).getroot())
        ElementTree.ElementTree(root).write(merged)


class Part:
    """Tests with one record, run by one process or by several that share them."""

    def __init__(self, title, record, totals):
        self.title = title
        self.record = record
        self.totals = totals
        self.shares = []  # records of the processes, where there are several
        self.logs = []
        self.processes = []
        self.status = 0
        record.unlink(missing_ok=True)

    def start(self, command, environment, log=None, **more):
        if log is None:
            process = subprocess.Popen(command, cwd=ROOT, env=environment)
        else:
            with open(log, "wb") as output:
                process = subprocess.Popen(command, cwd=ROOT, env=environment,
                                           stdin=subprocess.DEVNULL, stdout=output,
                                           stderr=subprocess.STDOUT, **more)
            self.add_log(log)
        self.processes.append(process)

    def add_log(self, log):
        self.logs.append(log)
        print(f"pytest prints to {log}", flush=True)

    def wait(self):
        for process in self.processes:
            self.status = process.wait() or self.status
        if self.shares:
            merge(self.shares, self.record)

    def again(self, environment):
        """Runs failed tests once more, with nothing beside them, and puts the new results into the
        record. Returns lines of the summary."""
        if not self.record.exists() or not 0 < self.totals(self.record)[1] <= AGAIN_AT_MOST:
            return []
        if self.totals is meson_totals:
            names = self.again_in_meson()
        else:
            names = self.again_in_pytest(environment)
        return [f"    failed beside other tests, passed alone: {name}" for name in names]

    def again_in_meson(self):
        failed = failed_without_report(self.record)
        record = self.record.with_name("again.json")
        record.unlink(missing_ok=True)
        if not failed:
            return []
        subprocess.run([*self.again_command, *failed], check=False)
        names = replace_failed_lines(self.record, record) if record.exists() else []
        self.status = self.status if self.totals(self.record)[1] else 0
        return names

    def again_in_pytest(self, environment):
        record = self.record.with_name(f"{self.record.stem}-again.xml")
        record.unlink(missing_ok=True)
        tests = [name.replace(".", "/", name.split("::")[0].count(".")).replace("::", ".py::", 1)
                 for name in self.totals(self.record)[3]]
        start_pytest(self, tests, environment, record, "")
        self.processes[-1].wait()
        names = replace_failed(self.record, record) if record.exists() else []
        self.status = self.status if self.totals(self.record)[1] else 0
        return names

    def report(self):
        """Lines of the summary, and whether it is good."""
        if not self.record.exists():
            return [f"{self.title + ':':17} did not run (exit status {self.status})"], False
        passed, failed, skipped, names = self.totals(self.record)
        lines = [f"{self.title + ':':17} {passed} passed, {failed} failed, {skipped} skipped"]
        return (lines + [f"    failed: {name}" for name in names],
                self.status == 0 and failed == 0 and passed > 0)


def start_meson(build, jobs, *chosen):
    """Runs all C and command tests, or those that ``chosen`` names."""
    part = Part("C and command", build / "meson-logs" / "testlog.json", meson_totals)
    command = ["meson", "test", "-C", str(build), "--print-errorlogs"]
    if chosen:  # with a sanitizer, which makes them slower
        command += ["--no-rebuild", "--timeout-multiplier", "6"]
    part.start([*command, "--num-processes", str(jobs), *chosen], dict(os.environ))
    part.again_command = [*command, "--num-processes", "1", "--logbase", "again"]
    return part


def start_pytest(part, paths, environment, record, marks, *options, **more):
    part.start([sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "pytest_share",
                "-m", marks, *map(str, paths), f"--junitxml={record}", *options],
               environment, record.with_suffix(".log"), **more)


class Shared(Part):
    """Tests that pytest collects once: processes that share their files can join at any time."""

    def __init__(self, title, record, files, environment, marks="not long"):
        super().__init__(title, record, pytest_totals)
        self.files = files
        self.claims = tempfile.TemporaryDirectory()
        names, self.names = os.pipe()
        start_pytest(self, files, {**environment, "HEADRACE_TEST_CLAIMS": self.claims.name}, record,
                     marks, f"--forks={names}", pass_fds=[names])
        os.close(names)

    def has_files_left(self):
        return len(os.listdir(self.claims.name)) < len(self.files)

    def join(self, processes):
        for _ in range(processes):
            number = len(self.shares) + 1
            record = self.record.with_name(f"{self.record.stem}-{number}.xml")
            record.unlink(missing_ok=True)
            self.shares.append(record)
            self.add_log(record.with_suffix(".log"))
            try:
                os.write(self.names, f"{record}\n".encode())
            except BrokenPipeError:  # pytest has ended: a record that is missing says so
                return

    def wait(self):
        os.close(self.names)
        super().wait()
        self.claims.cleanup()


def python_tests(title, room, record, environment, is_long):
    """Starts collecting the tests of a folder: those marked `long`, or the others."""
    files = sorted((ROOT / "tests" / room).glob("test_*.py"), key=place_of)
    if not is_long:
        return Shared(title, record, files, environment)
    files = [file for file in files if "mark.long" in file.read_text()]
    return Shared(title, record.with_stem(f"{record.stem}-long"), files, environment, "long")


def place_of(file):
    """Where a file stands in the order of the tests: the longest first, then by size."""
    name = file.stem.removeprefix("test_")
    return LONGEST.index(name) if name in LONGEST else len(LONGEST), -file.stat().st_size


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, required=True, help="Meson's build folder")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)),
                        help="processes of the C tests, and of the Python package's")
    parser.add_argument("--long", action="store_true", help="the tests of Python that are marked `long`, alone")
    parser.add_argument("--package", action="store_true",
                        help="the tests of the installed package alone, without the build folder's")
    parser.add_argument("--without-package", action="store_true", help="the tests of all but the package")
    parser.add_argument("--c-tests", nargs="+", default=[], metavar="NAME",
                        help="these C and command tests alone, in the build folder of a sanitizer")
    arguments = parser.parse_args()
    build, jobs = arguments.build.resolve(), arguments.jobs
    environment = dict(os.environ)
    # torchvision's shim, which the tests that compare with torchvision import, and pytest_share.
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT / "tools"), *filter(None, [environment.get("PYTHONPATH")])])
    # A shell's background jobs ignore it, and so would what tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parts, lines, good = [], [], True
    try:
        is_whole = not arguments.long and not arguments.package
        if is_whole:
            parts.append(start_meson(build, jobs, *arguments.c_tests))
        python = None
        if not arguments.c_tests and not arguments.without_package:
            python = python_tests("Python package", "python", build / "pytest.xml", environment,
                                  arguments.long)
            parts.append(python)
            python.join(jobs)
        if not arguments.c_tests and not arguments.package:
            parts.append(python_tests("tools, examples", "tools", build / "pytest-tools.xml",
                                      environment, arguments.long))
            parts[-1].join(1)
        if is_whole:
            parts[0].wait()
        if python and not arguments.package and python.has_files_left():
            python.join(jobs)
        for part in parts:
            part.wait()
    except KeyboardInterrupt:
        for process in (process for part in parts for process in part.processes):
            process.terminate()
            process.wait()
        print("interrupted", file=sys.stderr)
        return 130
    for part in parts:
        repeated = part.again(environment)
        summary, is_good = part.report()
        lines += summary + repeated
        if not is_good:
            good = False
            for log in filter(Path.exists, part.logs):
                print(f"\n== {log}\n{shown(log.read_text(errors='replace'))}")
    print("\n" + "\n".join(lines))
    print("all tests passed" if good else "TESTS FAILED")
    return 0 if good else 1


def shown(text):
    """Of what pytest printed: all but the lines of tests that passed."""
    start = text.find("= FAILURES =")
    start = start if start >= 0 else text.find("= ERRORS =")
    return text[text.rfind("\n", 0, start) + 1:] if start >= 0 else text[-4000:]


if __name__ == "__main__":
    sys.exit(main())
