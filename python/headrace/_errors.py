"""The exceptions of the package.

They are plain picklable Python classes, raised by the package and its C extension.
All other exceptions are builtins: OSError and its subclasses for files, ValueError
and TypeError for arguments, RuntimeError for misuse.
"""

from __future__ import annotations

from typing import Any

__all__ = ["SampleError", "TooManyBadSamples"]


class SampleError(RuntimeError):
    """A sample could not be read, decoded or transformed (``on_error="raise"``).

    Attributes:
        path: the sample's file.
        index: the sample's position in the dataset.
        reason: why it failed.
    """

    def __init__(self, path: str, index: int, reason: str) -> None:
        super().__init__(path, index, reason)
        self.path = path
        self.index = index
        self.reason = reason

    def __str__(self) -> str:
        return f"sample {self.index} ({_printable(self.path)}): {self.reason}"


class TooManyBadSamples(RuntimeError):
    """More samples were bad than ``max_bad_share`` allows (``on_error="skip"``).

    Attributes:
        skipped: the bad samples, as returned by ``DataLoader.skipped()``.
    """

    def __init__(self, message: str, skipped: tuple[Any, ...] = ()) -> None:
        super().__init__(message, skipped)
        self.skipped = skipped

    def __str__(self) -> str:
        return str(self.args[0])


def _printable(path: str) -> str:
    """Escapes names that are not UTF-8: printing the error must not raise another one."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
