"""Runs a command, records a trace of each of its processes that trains, and prints the report.

The script's output, exit status and end by a signal stay as they are without a recording. Each
error of the recording is one line that begins with ``headrace replay:``. The launcher and the hook
in the script's processes (:mod:`.hook`, :mod:`.watched`) communicate through files in a temporary
folder: ``settings.json`` and :mod:`headrace._launch.hello`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from typing import Any

from .._launch import hello, process
from .._launch.bar import Bar
from .._launch.folders import RunFolder, remove_left_over
from .._launch.text import columns, short
from .._launch.why import why_no_python
from . import Replay, arguments
from .hook import VARIABLE

OK, PROBLEM, FAILED = 0, 1, 3
PREFIX = "headrace-replay-"
SUFFIXES = (".json.gz", ".json")


def say(text: str) -> None:
    """Prints one line to standard error."""
    print(f"headrace replay: {text}", file=sys.stderr, flush=True)


def main(words: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = arguments.parse(words)
    folder = os.path.dirname(options.out)
    if not options.out.endswith(SUFFIXES):
        say(f"--out {options.out}: its name must end in .json.gz or .json")
        return FAILED
    if not os.access(folder, os.W_OK | os.X_OK):
        say(f"no trace can be written to {folder}: name another file with --out")
        return FAILED
    remove_left_over(PREFIX, VARIABLE)
    return Launch(options).run()


def name_of(out: str, rank: int | None) -> str:
    """The name of a rank's trace: ``.rankN`` before the suffix."""
    if rank is None:
        return out
    suffix = next(suffix for suffix in SUFFIXES if out.endswith(suffix))
    return f"{out.removesuffix(suffix)}.rank{rank}{suffix}"


class Launch:
    """One run of the command."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self._signals = process.Signals(say)
        self._folder = ""

    def run(self) -> int:
        """Runs the script and prints the report. Returns the exit status."""
        folder = RunFolder(PREFIX)
        self._folder = folder.path
        with self._signals.blocked():
            try:
                status = self._follow()
                if status is None:
                    return FAILED
                traces = self._gather()
            finally:
                folder.close()
            # Only the report is left: from now on Ctrl-C may end this process.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        if not traces:
            return status or PROBLEM
        return status or self._print(traces)

    def _follow(self) -> int | None:
        """Runs the script and returns its exit status (128 + N after signal N, as in shells), or
        None if it could not be started."""
        options = self.options
        settings = {
            "out": options.out,
            "iterations": options.iterations,
            "skip": options.skip,
            "modules": not options.no_modules,
            "shapes": options.shapes,
        }
        with open(os.path.join(self._folder, "settings.json"), "w", encoding="utf-8") as file:
            json.dump(settings, file)
        environment = process.environment_with(VARIABLE, self._folder)
        command = process.Command(options.command, None, environment)
        bar = Bar("replay", self._progress, options.no_progress)
        return self._signals.run(command, bar, f"{VARIABLE}={self._folder}", options.json)

    def _progress(self) -> tuple[float | None, str]:
        done = any("recorded" in line for line in hello.read(self._folder))
        return (1.0, "recorded; training continues") if done else (0.0, "recording")

    def _gather(self) -> list[str]:
        """Names the traces of the processes that trained. Returns their paths."""
        lines = hello.read(self._folder)
        found = [json.loads(line["recorded"]) for line in lines if "recorded" in line]
        if not found:
            say(self._why_nothing(lines))
            return []
        return [self._name(one, one["rank"] if len(found) > 1 else None) for one in found]

    def _name(self, one: dict[str, Any], rank: int | None) -> str:
        name = name_of(self.options.out, rank)
        if name.endswith(".gz"):
            os.replace(one["path"], name)
            return name
        import gzip

        with gzip.open(one["path"]) as packed, open(name, "wb") as plain:
            shutil.copyfileobj(packed, plain)
        os.unlink(one["path"])
        return name

    def _why_nothing(self, lines: list[dict[str, Any]]) -> str:
        for line in lines:
            if "failed" in line:
                return f"the recording does not work with this script: {line['failed']}"
        if not any("hello" in line for line in lines):
            return ("no Python process of the command loaded the recorder: "
                    f"{why_no_python(self.options.command)}")
        steps = [int(line["stepped"]) for line in lines if "stepped" in line]
        if steps:
            return (f"nothing was recorded: the script made {max(steps)} steps of its optimizer, "
                    f"and {self.options.skip} come before the recorded ones: see --skip")
        return "nothing was recorded: no optimizer of torch.optim made a step"

    def _print(self, traces: list[str]) -> int:
        try:
            replay = Replay(traces)
            report = replay.report() if self.options.json else replay.text(columns=columns())
        except (OSError, ValueError) as error:
            say(f"no report: {error}")
            return FAILED
        print(json.dumps(report, indent=1) if self.options.json else report)
        for trace in traces:
            file = sys.stderr if self.options.json else None
            print(f"{short(trace)}: recorded", file=file, flush=True)
        return OK
