"""Runs a command, records each of its Python processes that imports torch, and prints a report.

The script's output, exit status and end by a signal stay as they are without a recording. Each
error of the recording is one line that begins with ``headrace memory:``.

The launcher and the hook in the script's processes (:mod:`.hook`, :mod:`.watched`) communicate
through files in a temporary folder: the launcher writes ``settings.json``, the hook writes
``hello-PID``, ``record-*.json`` and ``iterations-*``. The records themselves are written to the
folder of ``--out``, so that they survive if the launcher is killed.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import sys
import time
from typing import Any

from .. import _core
from .._launch import hello, process, ranks
from .._launch.bar import Bar
from .._launch.folders import RunFolder, remove_left_over
from .._launch.text import columns, short
from .._launch.why import why_no_python
from . import arguments, records
from ._tap import tap_path
from .hook import VARIABLE

OK, PROBLEM, FAILED = 0, 1, 3
PREFIX = "headrace-memory-"


def say(text: str) -> None:
    """Prints one line to standard error."""
    print(f"headrace memory: {text}", file=sys.stderr, flush=True)


def main(words: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = arguments.parse(words)
    task = ranks.rank()
    if task is not None:  # srun or mpirun started several of us
        options.out = records.with_part(options.out, f"task{task}")
    remove_left_over(PREFIX, VARIABLE)
    try:
        records.check_place(options.out)
        for path, pid in records.left_over(options.out):
            if pid:
                say(f"process {pid} of an earlier run is still recording into {short(path)}")
            else:
                say(f"{short(path)} was left by an earlier run that was killed; it is readable")
    except OSError as error:
        say(f"no record can be written to {options.out}: {error.strerror}; name another file with "
            "--out")
        return FAILED
    return Launch(options).run()


class Launch:
    """One run of the command."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self._signals = process.Signals(say)
        self._folder = ""
        self._began_s = time.time()
        self._problem = 0  # errno of the first error that ended a record early

    def run(self) -> int:
        """Runs the script and prints the report. Returns the exit status."""
        folder = RunFolder(PREFIX)
        self._folder = folder.path
        kept: list[dict[str, Any]] = []
        with self._signals.blocked():
            try:
                status = self._follow()
                if status is None:
                    return FAILED
                kept, failed = self._gather()
            finally:
                folder.close()
            # Only the report is left: from now on Ctrl-C may end this process.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        if not kept:
            return status or PROBLEM
        unprinted = self._print(kept)
        return status or failed or unprinted

    def _follow(self) -> int | None:
        """Runs the script and returns its exit status (128 + N after signal N, as in shells), or
        None if it could not be started."""
        options = self.options
        settings = {
            "out": options.out,
            "iterations": options.iterations,
            "stacks": options.stacks,
            "batch_size": options.batch_size,
            "limit_bytes": options.limit,
        }
        with open(os.path.join(self._folder, "settings.json"), "w", encoding="utf-8") as file:
            json.dump(settings, file)
        command = process.Command(options.command, None, self._environment())
        bar = Bar("memory", self._progress, options.no_progress)
        return self._signals.run(command, bar, f"{VARIABLE}={self._folder}", options.json)

    def _environment(self) -> dict[str, str]:
        environment = process.environment_with(VARIABLE, self._folder)
        tap = None if self.options.no_tap else tap_path()
        if tap is not None and set(tap) & set(" :"):  # LD_PRELOAD's separators
            say(
                f"{tap} cannot be preloaded, since its path contains a space or a colon: only "
                "blocks of tensors are recorded"
            )
        elif tap is not None:
            others = environment.get("LD_PRELOAD")
            environment["LD_PRELOAD"] = f"{tap}:{others}" if others else tap
            if self.options.least is not None:
                environment["HEADRACE_TAP_LEAST"] = str(self.options.least)
        return environment

    def _progress(self) -> tuple[float | None, str]:
        most = self.options.iterations
        training = [one["iterations"] for one in self._states() if one["trained"]]
        if not training:
            return 0.0 if most else None, "waiting until training begins"
        done = min(training)
        if not most:
            return None, f"{done} iterations recorded"
        then = "; training continues" if done == most else ""
        return done / most, f"{done} of {most} iterations recorded{then}"

    def _states(self) -> list[dict[str, Any]]:
        """Reads the processes' record-*.json, sorted by rank, then by start time."""
        found = []
        for name in os.listdir(self._folder):
            if name.startswith("record-") and name.endswith(".json"):
                try:
                    with open(os.path.join(self._folder, name), encoding="utf-8") as file:
                        one = json.load(file)
                    one["iterations"] = self._iterations(one["name"])
                except (OSError, ValueError):
                    continue
                found.append(one)
        return sorted(found, key=lambda one: (one["rank"] is None, one["rank"] or 0, one["began_s"]))

    def _iterations(self, name: str) -> int:
        with open(os.path.join(self._folder, f"iterations-{name}"), "rb") as file:
            return int.from_bytes(file.read(8), "little")

    # -- results --

    def _gather(self) -> tuple[list[dict[str, Any]], int]:
        """Chooses and renames the records to keep. Returns them and an exit status."""
        reports = hello.read(self._folder)
        self._say_forked(reports)
        kept = self._choose()
        if not kept:
            say(self._why_nothing(reports))
            return [], PROBLEM
        try:
            names = records.name_all(
                self.options.out,
                [one["path"] for one in kept],
                [one["rank"] for one in kept],
                self._began_s,
            )
        except OSError as error:
            say(f"{error.filename}: {error.strerror}: the records' names keep the process id")
            return [one for one in kept if os.path.exists(one["path"])], FAILED
        return [{**one, "path": name} for one, name in zip(kept, names)], OK

    def _print(self, kept: list[dict[str, Any]]) -> int:
        try:
            self._results(kept)
        except OSError as error:
            say(f"the report cannot be printed ({error.strerror}): see {short(kept[0]['path'])}")
            # Python would fail again when it flushes its buffer at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except ValueError as error:
            say(f"no report: {error}")
            return FAILED
        return OK

    def _choose(self) -> list[dict[str, Any]]:
        """Returns the records to keep, with their ``about``, and removes the others."""
        found = []
        for one in self._states():
            try:
                one["about"] = records.about(one["path"])
            except OSError:
                continue
            if one["about"] is not None:
                found.append(one)
                self._problem = self._problem or one["about"].problem
        with_events = [one for one in found if one["about"].events]
        kept = [one for one in with_events if one["trained"]]
        if not kept and with_events:
            kept = [max(with_events, key=lambda one: one["about"].events)]
            say(
                "no process trained (no backward pass ran, no optimizer stepped): keeping the "
                f"largest record, of process {kept[0]['about'].pid}"
            )
        for one in found:
            if one not in kept:
                try:
                    os.unlink(one["path"])
                except OSError:  # a worker process removes its own record when it ends
                    pass
        return kept

    def _why_nothing(self, reports: list[dict[str, str]]) -> str:
        for line in reports:
            if "failed" in line:
                return f"the recording does not work with this script: {line['failed']}"
        if not any("hello" in line for line in reports):
            return ("no Python process of the command loaded the recorder: "
                    f"{why_no_python(self.options.command)}")
        if not self._states():
            return "nothing was recorded: the script never imported torch"
        if self._problem:
            return f"nothing was recorded: {problem_text(self._problem)}"
        return "nothing was recorded: no torch operator ran in the thread that imported torch"

    def _say_forked(self, reports: list[dict[str, str]]) -> None:
        forked = sorted({line["pid"] for line in reports if "forked" in line})
        if forked:
            say(
                f"process {', '.join(forked)} trained, but was forked from a recorded process, so "
                "it is in no record; start it with multiprocessing's method spawn"
            )

    def _results(self, kept: list[dict[str, Any]]) -> None:
        paths = [one["path"] for one in kept]
        if self.options.json:
            texts = [_core.memory_analyse(path, 0.0, 0.0).strip() for path in paths]
            print(texts[0] if len(texts) == 1 else f"[{','.join(texts)}]", flush=True)
        else:
            _core.memory_write_text(paths, "-", columns(), 0.0, 0.0)
            print()
        for one in kept:
            if self.options.json:
                say(self._line(one))
            else:
                print(self._line(one), flush=True)

    def _line(self, one: dict[str, Any]) -> str:
        about = one["about"]
        line = (
            f"{short(one['path'])}: {one['iterations']} iterations, {about.events:,} events, "
            f"{bytes_text(about.bytes)}"
        )
        if about.problem:
            line += f"; {problem_text(about.problem)}, so the recording stopped"
        if about.lost:
            line += f": {about.lost:,} events were lost"
        if not about.ended:
            line += f"; process {about.pid} was killed (or left by os._exit): the record ends there"
        return line


def problem_text(code: int) -> str:
    """Describes the errno that ended a recording early."""
    known = {errno.ENOSPC: "the disk was full", errno.EFBIG: "--limit was reached",
             errno.ESTALE: "another program truncated the record"}
    return known.get(code, os.strerror(code))


def bytes_text(count: int) -> str:
    """Formats a size as the headrace command does: "512 B", "1.50 KiB", "120 MiB"."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < 6:
        value /= 1024
        unit += 1
    decimals = 0 if unit == 0 or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB')[unit]}"
