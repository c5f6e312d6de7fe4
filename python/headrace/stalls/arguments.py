"""Parses the command line of ``headrace stalls`` (``python -m headrace.stalls``)."""

from __future__ import annotations

import argparse
import os

from .._launch.arguments import Parser, count


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e9:
        raise ValueError
    return number


def _share(text: str) -> float:
    number = float(text)
    if not 0 < number < 1:
        raise ValueError
    return number


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not host or not colon or not 0 < int(port) < 65536:
        raise ValueError
    return text


# argparse names a type by its __name__ in error messages.
_positive.__name__ = "number above 0"
_share.__name__, _address.__name__ = "number between 0 and 1", "HOST:PORT"


def parser() -> Parser:
    found = Parser(
        prog="headrace stalls",
        usage="%(prog)s [options] -- COMMAND [arguments]",
        description="Measures where the time of a training script goes. The script is not "
        "changed; what it trains meanwhile is thrown away.",
        allow_abbrev=False,
    )
    add = found.add_argument
    add("--data", metavar="DIR", help="the dataset's files, if they cannot be detected")
    add("--batches", type=count, metavar="N", help="measure at most N batches")
    add("--time", type=_positive, default=150.0, metavar="S", help="measure at most S seconds")
    add("--precision", type=_share, default=0.02, metavar="P",
        help="measure until the shares are known to +- P")
    add("--out", default="headrace-stalls", metavar="DIR", help="folder for the results")
    add("--loader", type=count, metavar="N", help="measure the script's N-th loader")
    add("--warm-up", type=count, metavar="N", help="batches before the measurement starts")
    add("--no-device", action="store_true", help="do not replay batches from the device's memory")
    add("--unguarded", action="store_true", help="let the script change files")
    add("--then-run", action="store_true", help="afterwards run the command without measuring")
    add("--channel", type=_address, metavar="HOST:PORT",
        help="address through which the ranks of several hosts communicate")
    add("--json", action="store_true", help="print stalls.json")
    add("--no-progress", action="store_true", help="draw no progress bar")
    add("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return found


def parse(words: list[str]) -> argparse.Namespace:
    """Parses the arguments. On an error, prints it and exits with status 2."""
    found = parser()
    options = found.parse_command(words, "measure")
    if options.data is not None:
        options.data = os.path.abspath(options.data)
        if not os.path.isdir(options.data):
            found.error(f"--data {options.data}: no such directory")
    options.out = os.path.abspath(options.out)
    return options
