"""A pytest plugin (-p pytest_share) with which several processes share the test files of one run.

With --forks=FD, pytest collects all files once, which takes ten seconds of a core: they import
torch, lightning and transformers. Then it forks a process for each line that it reads from this file
descriptor: the name of the process's JUnit file. The process prints to the log beside that file.
The first process to reach a file's first test claims the file, by creating an empty file of its name
in the folder HEADRACE_TEST_CLAIMS, and runs its tests. The others skip it and record nothing. At the
end of its input, pytest waits for the processes and ends with the largest of their statuses.

A test that takes longer than HEADRACE_TEST_LIMIT_S (900) hangs: pytest ends its process and what that
has started, and writes a record in which this test failed. The other processes go on.
"""

import contextlib
import faulthandler
import gc
import os
import select
import signal
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from _pytest.junitxml import xml_key

LIMIT_S = float(os.environ.get("HEADRACE_TEST_LIMIT_S", 900))
_is_mine = {}
_running = None  # the file with the name of the test that this process runs


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
    if not _is_mine.get(item.path, True):
        return True
    if _running is not None:
        _running.write_text(item.nodeid)
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    names = session.config.getoption("--forks")
    if names is None:
        return None
    children = {}  # process ids and records

    def end(*_):
        for child in children:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.kill(child, signal.SIGTERM)
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    gc.collect()
    gc.freeze()  # what nothing writes to stays shared
    record = _fork_for_each(names, children)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _become(session.config, record)
    return None  # pytest runs the tests


def _fork_for_each(names, children):
    """Returns the record in each child. The parent ends here, after its children."""
    statuses, rest, is_open = [0], b"", True
    while is_open or children:
        ready, _, _ = select.select([names] if is_open else [], [], [], 0.2)
        if ready:
            more = os.read(names, 1 << 16)
            is_open = bool(more)
            *lines, rest = (rest + more).split(b"\n")
            for record in map(Path, map(os.fsdecode, lines)):
                record.with_suffix(".running").unlink(missing_ok=True)
                child = os.fork()
                if child == 0:
                    os.close(names)
                    return record
                children[child] = record
        for child, record in list(children.items()):
            if _hangs(record):
                _end_hanging(child, record)
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                record.with_suffix(".running").unlink(missing_ok=True)
                statuses.append(abs(os.waitstatus_to_exitcode(status)))
                del children[child]
    os._exit(max(statuses))


def _hangs(record):
    with contextlib.suppress(FileNotFoundError):
        return time.time() - record.with_suffix(".running").stat().st_mtime > LIMIT_S
    return False


def _end_hanging(child, record):
    """Its threads' stacks go to the log: SIGABRT makes faulthandler print them."""
    started = _descendants(child)
    for process, number in (child, signal.SIGABRT), *((one, signal.SIGKILL) for one in started):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
    until = time.monotonic() + 10
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.05)
    path, _, name = record.with_suffix(".running").read_text().partition("::")
    said = f"{path}::{name} did not end within {LIMIT_S:g} s, and its process was killed"
    case = ElementTree.Element("testcase", name=name,
                               classname=path.removesuffix(".py").replace("/", "."))
    ElementTree.SubElement(case, "failure", message=said)
    suite = ElementTree.Element("testsuite")
    suite.append(case)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.ElementTree(root).write(record)
    with open(record.with_suffix(".log"), "a") as log:
        log.write(f"\n= FAILURES =\n{said}; its other results are lost\n")


def _descendants(process):
    """Returns the ids of processes that it started, and of those that these started."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _become(config, record):
    """Gives this process a record, a log and files for captured output of its own."""
    global _running
    _running = record.with_suffix(".running")
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    log = os.open(record.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable(log)
    capture.start_global_capturing()
    capture.suspend_global_capture()
    config.stash[xml_key].logfile = str(record)
