"""Reads the files that the probes of a measuring run left in the run's folder."""

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
    """Records and reports of the probes of a run."""

    records: dict[int, str] = field(default_factory=dict)  # texts by rank
    ended: list[str] = field(default_factory=list)  # why each record ended
    ranks: int = 0  # number of ranks on this host, from the records
    problems: list[Problem] = field(default_factory=list)
    hello: bool = False  # a Python process of the run loaded the hook
    attached: bool = False  # such a process imported a loader
    gave_up: bool = False  # the probe ended a process before the measurement was complete
    failed: str = ""  # why the probe does not work

    @property
    def complete(self) -> bool:
        """Whether all ranks completed their measurement."""
        whole = all(why in ("precise", "limit") for why in self.ended)
        return bool(self.records) and whole and len(self.records) >= self.ranks

    def add_redirected(self, notes: list[str], written: list[str]) -> None:
        """Adds what the guard redirected on this host to the record of the host's first rank."""
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
            given: dict[str, Any] = json.load(file)
        problem = Problem(str(given["code"]), str(given["text"]), str(given.get("remedy") or ""))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        problem = Problem("internal", f"{path} cannot be read: {error}", "")
    if problem not in found.problems:
        found.problems.append(problem)


def why_nothing(found: Outcome, words: list[str]) -> str:
    """Explains why a script that ended by itself left no record, by how far the probe got."""
    if found.failed:
        return f"the probe does not work with this script: {found.failed}"
    if not found.hello:
        return f"no Python process of the command loaded the probe: {why_no_python(words)}"
    if not found.attached:
        return (
            "the script imported no loader: neither torch.utils.data nor headrace.torch nor "
            "nvidia.dali; to measure a loop over another iterable, write "
            "`for batch in headrace.watch(loader)`"
        )
    return (
        "the script ended without reading a batch from a loader; to measure a loop over another "
        "iterable, write `for batch in headrace.watch(loader)`"
    )
