"""Settings and findings of a measuring run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .. import _core

# Phases of a measuring run.
DEVICE, HOST, WARM, COLD, ALONE = _core.stalls_phases


class Inconclusive(RuntimeError):
    """A measurement would be meaningless."""


@dataclass
class Settings:
    """The launcher's settings (settings.json)."""

    batches: int = 0
    time_s: float = 150.0
    precision: float = 0.02
    device_replay: bool = True
    data: str | None = None


@dataclass
class Findings:
    """Findings for the record."""

    segments: list[dict[str, Any]] = field(default_factory=list)
    drains: list[dict[str, Any]] = field(default_factory=list)
    preparation: list[dict[str, Any]] = field(default_factory=list)
    phases: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # some files, for the storage probe
    filesystem: str = ""
    ended: str = "script"
    first_batch_s: float | None = None
    reads_files: bool = True  # False: the samples are in memory
    network: bool = False  # the samples come over the network
    epoch: dict[str, Any] = field(default_factory=dict)
    begun_s: float | None = None  # time.perf_counter() when the first segment began

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
