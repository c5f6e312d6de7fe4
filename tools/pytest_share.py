"""A pytest plugin (-p pytest_share) that splits the test files of one run among several processes.

Each process collects all files. The first to reach a file's first test claims the file, by creating
an empty file of its name in the folder HEADRACE_TEST_CLAIMS, and runs its tests. The others skip it
and record nothing. Without the variable every process runs everything.
"""

import os
from pathlib import Path

import pytest

_is_mine = {}


def _claim(folder, path):
    try:
        os.close(os.open(Path(folder, path.name), os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    folder = os.environ.get("HEADRACE_TEST_CLAIMS")
    if folder and item.path not in _is_mine:
        _is_mine[item.path] = _claim(folder, item.path)
    return None if _is_mine.get(item.path, True) else True
