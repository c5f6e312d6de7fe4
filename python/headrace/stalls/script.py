"""The measured command: its environment, its process, and what is left of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import dataclass

BOOTSTRAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bootstrap")
FOLDER = "HEADRACE_STALLS_DIR"


@dataclass
class Command:
    """What is started: words, working directory (None: this one), environment."""

    words: list[str]
    folder: str | None
    environment: dict[str, str]


def prepare(words: list[str], run_folder: str, scratch: str | None) -> Command:
    """The command as the user gave it, with the probe in its environment."""
    environment = dict(os.environ)
    environment[FOLDER] = run_folder
    paths = [BOOTSTRAP]
    if environment.get("PYTHONPATH"):
        paths.append(environment["PYTHONPATH"])
    if scratch is not None:
        words = [absolute(word, first=at == 0) for at, word in enumerate(words)]
        if "-m" in words:  # looks for its module in the working directory
            paths.append(os.getcwd())
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    return Command(words, scratch, environment)


def absolute(word: str, first: bool = False) -> str:
    """A word, or what follows its equals sign, that is the relative path of something that
    exists, as an absolute path. The first word is looked for on PATH unless it has a /."""
    if first:
        return os.path.abspath(word) if "/" in word and os.path.exists(word) else word
    name, equals, value = word.partition("=")
    if equals and name.startswith("-") and value and os.path.exists(value):
        return name + equals + os.path.abspath(value)
    if word and not word.startswith("-") and os.path.exists(word):
        return os.path.abspath(word)
    return word


def start(command: Command, stdout: int | None) -> subprocess.Popen[bytes]:
    """Starts it in this process group, so that Ctrl-C reaches it. Signals that are blocked
    here are not blocked there. OSError where it cannot be started."""

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
    """Why a command could not be started."""
    word = command.words[0]
    if "/" not in word and shutil.which(word) is None:
        return f"there is no command {word} on PATH"
    return f"{word} cannot be started: {error.strerror}"


def using(run_folder: str) -> list[tuple[int, str]]:
    """Processes with that run's environment: (id, command line)."""
    found = []
    mark = f"{FOLDER}={run_folder}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:  # it is another user's, or has ended
            continue
        if words[0]:  # not one that has ended and is not yet collected
            found.append((int(name), b" ".join(words).decode(errors="replace").strip()))
    return found
