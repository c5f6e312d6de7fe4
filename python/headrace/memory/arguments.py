"""Parses the command line of ``headrace memory record`` (``python -m headrace.memory``)."""

from __future__ import annotations

import argparse
import os
import re

from .._launch.arguments import Parser, count, count_or_none

VERB = "headrace memory record"


def _size(text: str) -> int:
    """Converts a size to bytes: "4GiB", "500 MB", "100000"."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(?:([KMGTP]?)(i?)B)?", text, re.IGNORECASE)
    if match is None or (match[3] and not match[2]):
        raise ValueError
    power = " KMGTP".index(match[2].upper()) if match[2] else 0
    size = float(match[1]) * (1024 if match[3] else 1000) ** power
    if not size < 1e18:
        raise ValueError
    return int(size)


# argparse names a type by its __name__ in error messages.
_size.__name__ = "size (4GiB)"


def parser() -> Parser:
    found = Parser(
        prog=VERB,
        usage="%(prog)s [options] -- COMMAND [arguments]",
        description="Records the use of every memory block while a training script runs. Neither "
        "the script nor its results change.",
        allow_abbrev=False,
    )
    add = found.add_argument
    add("--out", default="headrace-memory.hrm", metavar="FILE", help="the record")
    add("--iterations", type=count_or_none, default=20, metavar="N",
        help="iterations to record; 0: all")
    add("--stacks", action="store_true", help="record the Python call stacks, too")
    add("--batch-size", type=count, metavar="N", help="samples in a batch of one process")
    add("--limit", type=_size, default=0, metavar="SIZE", help="largest size of a process' record")
    add("--least", type=_size, metavar="BYTES",
        help="smallest block of other libraries to record")
    add("--no-tap", action="store_true", help="do not record the allocators themselves")
    add("--json", action="store_true", help="print the analysis as JSON")
    add("--no-progress", action="store_true", help="show no progress bar")
    add("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return found


def parse(words: list[str]) -> argparse.Namespace:
    """Parses the arguments. On an error, prints it and exits with status 2."""
    found = parser()
    options = found.parse_command(words, "record")
    options.out = os.path.abspath(options.out)
    return options
