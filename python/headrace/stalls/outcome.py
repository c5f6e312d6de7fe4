"""Reads what a measuring run left in its folder."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import Any

from .._launch import hello
from .._launch.why import why_no_python


@dataclass
class Problem:
    """Why something could not be measured, and what to do about it."""

    code: str
    text: str
    remedy: str

    def line(self) -> str:
        text = self.text.strip()
        return f"{text}; {self.remedy}" if self.remedy else text


@dataclass
class Outcome:
    """What the probes of a run left."""

    records: dict[int, str] = field(default_factory=dict)  # texts by rank
    ended: list[str] = field(default_factory=list)  # why, by rank
    ranks: int = 0  # of this host, as the records say
    problems: list[Problem] = field(default_factory=list)
    hello: bool = False  # some Python of the run had the hook
    attached: bool = False  # and one of these imported a loader
    gave_up: bool = False  # the probe ended a process before all was measured
    failed: str = ""  # what kept the probe from working

    @property
    def complete(self) -> bool:
        """All ranks measured to the end."""
        whole = all(why in ("precise", "limit") for why in self.ended)
        return bool(self.records) and whole and len(self.records) >= self.ranks

    def add_turned_away(self, notes: list[str], written: list[str]) -> None:
        """Puts what the guard turned away on this host into its first rank's record."""
        if not self.records or not (notes or written):
            return
        rank = min(self.records)
        record = json.loads(self.records[rank])
        record["notes"] = [*record.get("notes", []), *notes]
        record["files_written"] = written
        self.records[rank] = json.dumps(record)

    def problem(self, code: str) -> Problem | None:
        return next((one for one in self.problems if one.code == code), None)


def read(folder: str) -> Outcome:
    """Reads a run's folder."""
    found = Outcome()
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if match := re.fullmatch(r"rank-(\d+)\.json", name):
            _take_record(found, int(match[1]), path)
        elif re.fullmatch(r"problem-.*\.json", name):
            _take_problem(found, path)
        elif re.fullmatch(r"gave-up-\d+", name):
            found.gave_up = True
    for line in hello.read(folder):
        found.hello = found.hello or line.get("hello") == "script"
        found.attached = found.attached or "attached" in line
        found.failed = found.failed or str(line.get("failed") or "")
    return found


def _take_record(found: Outcome, rank: int, path: str) -> None:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        record = json.loads(text)
        found.ended.append(str(record["ended"]))
        found.ranks = max(found.ranks, int(record.get("local_world_size") or 1))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        found.problems.append(Problem("internal", f"the record {path} is damaged: {error}", ""))
    else:
        found.records[rank] = text


def _take_problem(found: Outcome, path: str) -> None:
    try:
        with open(path, encoding="utf-8") as file:
            said: dict[str, Any] = json.load(file)
        problem = Problem(str(said["code"]), str(said["text"]), str(said.get("remedy") or ""))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        problem = Problem("internal", f"{path} cannot be read: {error}", "")
    if problem not in found.problems:
        found.problems.append(problem)


def why_nothing(found: Outcome, words: list[str]) -> str:
    """Why a script that ended by itself left nothing, by how far the probe came."""
    if found.failed:
        return f"the probe does not work with this script: {found.failed}"
    if not found.hello:
        return f"no Python of the command loaded the probe: {why_no_python(words)}"
    if not found.attached:
        return (
            "the script imported no loader: neither torch.utils.data nor headrace.torch nor "
            "nvidia.dali; a loop over something else is measured where it is written "
            "`for batch in headrace.watch(loader)`"
        )
    return (
        "the script ended without reading a batch from a loader; if it has a loop over something "
        "else, write `for batch in headrace.watch(loader)`"
    )
