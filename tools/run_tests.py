#!/usr/bin/env python3
"""Runs every test and ends with the totals: what `make test` does after building.

The C and command tests run through Meson, which leaves BUILD/meson-logs/testlog.json;
the tests of the Python package and those of tools and examples through pytest, which leaves
BUILD/pytest.xml and BUILD/pytest-tools.xml. All parts always run; the exit status is 0 only
when nothing failed and something ran in each.
"""

import argparse
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOOD = {"OK", "EXPECTEDFAIL"}
PASSED_OVER = {"SKIP"}


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


def pytest_totals(log):
    """The same of a JUnit file."""
    passed, skipped, failed = 0, 0, []
    for case in ElementTree.parse(log).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, len(failed), skipped, failed


def pytest_command(folder, log):
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder,
            f"--junitxml={log}"]


def run_part(command, log, count, environment):
    """Runs one part; returns its totals, or None where it left no log."""
    log.unlink(missing_ok=True)
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    if not log.exists():
        return status, None
    return status, count(log)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, required=True, help="Meson's build folder")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    environment = dict(os.environ)
    # torchvision's shim, which the tests that compare with torchvision import.
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT / "tools"), *filter(None, [environment.get("PYTHONPATH")])])
    parts = (
        ("C and command", build / "meson-logs" / "testlog.json", meson_totals,
         ["meson", "test", "-C", str(build), "--num-processes", str(arguments.jobs),
          "--print-errorlogs"]),
        ("Python package", build / "pytest.xml", pytest_totals,
         pytest_command("tests/python", build / "pytest.xml")),
        ("tools, examples", build / "pytest-tools.xml", pytest_totals,
         pytest_command("tests/tools", build / "pytest-tools.xml")),
    )
    lines, good = [], True
    for title, log, count, command in parts:
        try:
            status, totals = run_part(command, log, count, environment)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        if totals is None:
            lines.append(f"{title + ':':17} did not run (exit status {status})")
            good = False
            continue
        passed, failed, skipped, names = totals
        good = good and status == 0 and failed == 0 and passed > 0
        lines.append(f"{title + ':':17} {passed} passed, {failed} failed, {skipped} skipped")
        lines.extend(f"    failed: {name}" for name in names)
    print("\n" + "\n".join(lines))
    print("all tests passed" if good else "TESTS FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
