"""Runs a command with the probe, waits for its end, and reports where its time went.

A measuring run does not train to the end: the probe ends the script when enough is measured. Each
error is one line that begins with ``headrace stalls:``. The script's own output is not changed.

The launcher and the probe (:mod:`headrace.stalls.probe`) communicate through files in a temporary
folder: the launcher writes ``settings.json``, the probe writes ``hello-PID``,
``progress-RANK.json``, ``rank-RANK.json`` and ``problem-RANK.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import sys
from typing import Any

from .._launch import process
from .._launch.bar import Bar
from .._launch.folders import RunFolder, remove_left_over
from . import arguments, folders, guard, outcome, script
from .progress import progress_of

OK, PROBLEM, FAILED = 0, 1, 3


def say(text: str) -> None:
    """Prints one line to standard error."""
    print(f"headrace stalls: {text}", file=sys.stderr, flush=True)


def main(words: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = arguments.parse(words)
    remove_left_over(folders.PREFIX, script.FOLDER, guard.remove_made)
    if not options.unguarded:
        try:
            guard.check(options.command)
        except guard.Unguarded as error:
            say(f"the script's files cannot be guarded: {error}; with --unguarded it is measured "
                "anyway, and the files that it writes and deletes really change")
            return FAILED
    try:
        out = folders.choose_out(options.out)
    except OSError as error:
        say(f"no results can be written to {options.out}: {error.strerror}; name another folder "
            "with --out")
        return FAILED
    try:
        status, then = Launch(options, out).run()
    finally:
        folders.leave_no_empty(out)
    return then_run(options) if then else status


def then_run(options: argparse.Namespace) -> int:
    """Replaces this process by the command. Returns an exit status only if that fails."""
    say("running the command itself, without measuring")
    sys.stdout.flush()
    try:
        os.execvp(options.command[0], options.command)
    except OSError as error:
        say(f"{options.command[0]} cannot be started: {error.strerror}")
    return FAILED


class Launch:
    """One measurement. It runs the script again if that cannot replay batches from the device."""

    def __init__(self, options: argparse.Namespace, out: str) -> None:
        self.options, self.out = options, out
        self._signals = process.Signals(say)
        self._device_replay = not options.no_device

    def run(self) -> tuple[int, bool]:
        """Measures. Returns the exit status, and whether to run the command afterwards
        (--then-run)."""
        with self._signals.blocked():
            return self._run()

    def _run(self) -> tuple[int, bool]:
        found, status = self._once()
        problem = found.problem("device-replay")
        if problem is not None and self._device_replay and not self._signals.got:
            say(f"{problem.line()}; starting again without that: the time of copies to the device "
                "will not be measured separately")
            self._device_replay = False
            found, status = self._once()
        return self._conclude(found, status)

    def _once(self) -> tuple[outcome.Outcome, int | None]:
        """Runs the script. Returns its outcome and its exit status (128 + N after signal N, as in
        shells; None if it could not be started)."""
        folder = RunFolder(folders.PREFIX)
        try:
            self._write_settings(folder.path)
            guarded = None if self.options.unguarded else guard.Guard(folder.path)
            command = script.prepare(self.options.command, folder.path, guarded)
            bar = Bar("stalls", lambda: progress_of(folder.path), self.options.no_progress)
            mark = f"{script.FOLDER}={folder.path}"
            status = self._signals.run(command, bar, mark, self.options.json)
            if status is None:
                return outcome.Outcome(), None
            found = outcome.read(folder.path)
            if guarded is not None:
                self._note_redirected(found, guarded, status)
            return found, status
        finally:
            folder.close()

    def _write_settings(self, folder: str) -> None:
        options = self.options
        settings: dict[str, Any] = {
            "run": secrets.token_hex(8),
            "data": options.data,
            "batches": options.batches,
            "time_s": options.time,
            "precision": options.precision,
            "loader": options.loader,
            "warm_up": options.warm_up,
            "device_replay": self._device_replay,
            "channel": options.channel,
        }
        with open(os.path.join(folder, "settings.json"), "w", encoding="utf-8") as file:
            json.dump(settings, file)

    def _note_redirected(self, found: outcome.Outcome, guarded: guard.Guard, status: int) -> None:
        changes = guarded.redirected()
        found.add_redirected(changes.notes(), changes.written[: guard.MOST_PATHS])
        if status and guarded.is_full():
            say(f"the disk of {guarded.path}, to which the script's writes are redirected, is "
                "full: choose another one with TMPDIR=DIR")
        guarded.remove_made()

    # -- results --

    def _conclude(self, found: outcome.Outcome, status: int | None) -> tuple[int, bool]:
        if status is None:
            return FAILED, False
        if self._signals.got:
            self._after_interrupt(found)
            return 128 + self._signals.got[0], False
        if found.complete:
            if status:
                say(f"the measurement is complete; the command then ended with status {status}")
            return self._results(found), bool(self.options.then_run)
        internal = found.problem("internal")
        if internal is not None:
            say(internal.line())
            return FAILED, bool(self.options.then_run)
        if found.gave_up:
            return self._after_giving_up(found), bool(self.options.then_run)
        if status:
            self._after_failure(found, status)
            return status, False
        return self._after_early_end(found), False

    def _after_giving_up(self, found: outcome.Outcome) -> int:
        """Reports after the probe could not continue and ended the script."""
        if found.records:
            say("the measurement is incomplete; these are the results so far")
            self._results(found)
        else:
            self._say_problems(found)
        return PROBLEM

    def _after_interrupt(self, found: outcome.Outcome) -> None:
        if found.records:
            self._results(found)
        elif self._signals.got[0] == signal.SIGTERM:
            say(
                "ended by SIGTERM: anything measured so far is lost; "
                "an interrupt (Ctrl-C, SIGINT) keeps it"
            )
        else:
            say("interrupted before anything was measured")

    def _after_failure(self, found: outcome.Outcome, status: int) -> None:
        """Reports after the script failed; its traceback is on the screen already."""
        self._say_problems(found)
        when = "during the measurement" if found.records else "before anything was measured"
        how = f"with exit status {status}"
        if status > 128:
            how += f" ({process.signal_name(status - 128)})"
        say(f"the command itself failed {when}, {how}; there are no results")

    def _after_early_end(self, found: outcome.Outcome) -> int:
        """Reports after the script ended by itself, without an error."""
        if found.records:
            say("the script ended before the measurement was complete; these are the results so far")
            self._results(found)
        elif found.problems:
            self._say_problems(found)
        else:
            say(outcome.why_nothing(found, self.options.command))
        if self.options.then_run:
            say("--then-run: the command has already run to its end, so it is not run again")
        return PROBLEM

    def _results(self, found: outcome.Outcome) -> int:
        from . import results

        missing = found.ranks - len(found.records)
        if missing > 0:
            say(f"{missing} of {found.ranks} ranks left no record")
        self._say_problems(found)
        try:
            result, unwritten = results.write(self.out, found.records)
        except ValueError as error:
            say(f"no result: {error}; the measured records are in {self._place()}/records")
            return PROBLEM
        status = self._print(result, complete=not unwritten)
        for failure in unwritten:
            say(str(failure) if failure.filename else str(failure.strerror))
        return FAILED if unwritten else status

    def _print(self, result: Any, complete: bool) -> int:
        from . import results

        try:
            if self.options.json:
                results.print_json(result)
            else:
                results.print_text(result)
            if complete and not self.options.json:
                files = "report.html, stalls.json, trace.json, records/"
                print(f"\n{self._place()}/: {files}", flush=True)
        except OSError as error:
            say(f"the result cannot be printed ({error.strerror}): see {self._place()}")
            # Python would fail again when it flushes its buffer at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        return OK

    def _say_problems(self, found: outcome.Outcome) -> None:
        for problem in found.problems:
            say(problem.line())

    def _place(self) -> str:
        """Returns the results' folder, relative to the current folder if it lies inside it."""
        place = os.path.relpath(self.out)
        return self.out if place.startswith("..") else place
