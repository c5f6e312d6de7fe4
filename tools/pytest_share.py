"""A plugin of pytest (-p pytest_share) for several processes that share the files of one run.

Each of them collects all files. Whoever comes first to a file's first test claims the file, by
making an empty file of its name in the folder HEADRACE_TEST_CLAIMS, and runs its tests; the others
pass it over and record nothing. Without the variable every process runs everything.
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
