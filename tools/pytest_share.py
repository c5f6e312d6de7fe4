"""A pytest plugin (-p pytest_share) with which several processes share the test files of one run.

With --forks=FD, pytest collects all files once, which takes ten seconds of a core: they import
torch, lightning and transformers. Then it forks a process for each line that it reads from this file
descriptor: the name of the process's JUnit file. The process prints to the log beside that file.
The first process to reach a file's first test claims the file, by creating an empty file of its name
in the folder HEADRACE_TEST_CLAIMS, and runs its tests. The others skip it and record nothing. At the
end of its input, pytest waits for the processes and ends with the largest of their statuses.
"""

import contextlib
import gc
import os
import signal
from pathlib import Path

import pytest
from _pytest.junitxml import xml_key

_is_mine = {}


def pytest_addoption(parser):
    parser.addoption("--forks", type=int, metavar="FD",
                     help="fork a process for each JUnit file that is named here")


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


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    names = session.config.getoption("--forks")
    if names is None:
        return None
    children = []

    def end(*_):
        for child in children:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.kill(child, signal.SIGTERM)
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    gc.collect()
    gc.freeze()  # what nothing writes to stays shared
    with os.fdopen(names) as lines:
        for line in lines:
            child = os.fork()
            if child == 0:
                break
            children.append(child)
        else:
            statuses = [os.waitpid(child, 0)[1] for child in children]
            os._exit(max(abs(os.waitstatus_to_exitcode(status)) for status in statuses))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _become(session.config, Path(line.rstrip("\n")))
    return None  # pytest runs the tests


def _become(config, record):
    """Gives this process a record, a log and files for captured output of its own."""
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    log = os.open(record.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    capture.start_global_capturing()
    capture.suspend_global_capture()
    config.stash[xml_key].logfile = str(record)
