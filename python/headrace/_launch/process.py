"""The watched command: starts it, passes signals on, and names processes that it leaves behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .bar import Bar

BOOTSTRAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bootstrap")
POLL_S = 0.25
SETTLE_S = 1.0  # time for children to end, before remaining ones are reported
SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD})


@dataclass
class Command:
    """A command to start: words, working directory (None: this one), environment."""

    words: list[str]
    folder: str | None
    environment: dict[str, str]


def environment_with(variable: str, folder: str) -> dict[str, str]:
    """Returns this process's environment, with the run's folder and the bootstrap added."""
    environment = dict(os.environ)
    environment[variable] = folder
    paths = [BOOTSTRAP, *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment


def start(command: Command, stdout: int | None) -> subprocess.Popen[bytes]:
    """Starts the command in this process group, so that Ctrl-C reaches it, and with no signals
    blocked that are blocked here. Raises OSError if it cannot be started."""

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    return subprocess.Popen(
        command.words,
        cwd=command.folder,
        env=command.environment,
        stdout=stdout,
        preexec_fn=unblock,
    )


def why_not(command: Command, error: OSError) -> str:
    """Explains why a command could not be started."""
    word = command.words[0]
    if "/" not in word and shutil.which(word) is None:
        return f"there is no command {word} on PATH"
    return f"{word} cannot be started: {error.strerror}"


class Signals:
    """Signals that ask for the end of the run: a launcher blocks them and passes them on."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.got: list[int] = []
        self._say = say

    @contextmanager
    def blocked(self) -> Iterator[None]:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def run(self, command: Command, bar: Bar, mark: str, is_json: bool) -> int | None:
        """Runs a command to its end, and names the processes with ``mark`` in their environment that
        it leaves behind. Returns its exit status (128 + N after signal N, as in shells), or None
        with a message if it could not be started."""
        # With --json, standard output holds nothing but the JSON.
        stdout = sys.stderr.fileno() if is_json else None
        try:
            started = start(command, stdout)
        except OSError as error:
            self._say(why_not(command, error))
            return None
        status = self.follow(started, bar)
        name_left_over(mark, self._say)
        return status

    def follow(self, process: subprocess.Popen[bytes], bar: Bar) -> int:
        """Waits for the script's end. Returns its exit status as a shell would."""
        while process.poll() is None:
            bar.update()
            got = signal.sigtimedwait(SIGNALS, POLL_S)
            if got is not None and got.si_signo != signal.SIGCHLD:
                bar.clear()
                self._pass_on(got, process)
        bar.clear()
        code = process.returncode
        return code if code >= 0 else 128 - code

    def _pass_on(self, got: signal.struct_siginfo, process: subprocess.Popen[bytes]) -> None:
        """Passes on signals sent by a process; the terminal sends its own to the script too."""
        self.got.append(got.si_signo)
        if len(self.got) == 1:
            self._say("interrupted; waiting for the script to end (once more ends it)")
            if got.si_code <= 0:
                process.send_signal(got.si_signo)
        elif len(self.got) == 2:
            process.terminate()
        else:
            process.kill()


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def name_left_over(mark: str, say: Callable[[str], None]) -> None:
    """Reports children of the script that are still running, and leaves them alone."""
    until = time.monotonic() + SETTLE_S
    while (left := using(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    for pid, command in left[:5]:
        say(f"the script has ended, but process {pid} has not: {command[:100]}")
    if len(left) > 5:
        say(f"and {len(left) - 5} more")


def using(mark: str) -> list[tuple[int, str]]:
    """Returns (id, command line) of processes with "NAME=value" in their environment."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark.encode() not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:  # it is another user's, or has ended
            continue
        if words[0]:  # not one that has ended and is not yet collected
            found.append((int(name), b" ".join(words).decode(errors="replace").strip()))
    return found
