"""Parses the command line of ``headrace replay record`` (``python -m headrace.replay``)."""

from __future__ import annotations

import argparse
import os

from .._launch.arguments import Parser, count, count_or_none

VERB = "headrace replay record"


def parser() -> Parser:
    found = Parser(
        prog=VERB,
        usage="%(prog)s [options] -- COMMAND [arguments]",
        description="Records a trace of some iterations of a training script with torch.profiler. "
        "Neither the script nor its results change.",
        allow_abbrev=False,
    )
    add = found.add_argument
    add("--out", default="headrace-trace.json.gz", metavar="FILE", help="the trace")
    add("--iterations", type=count, default=5, metavar="N", help="iterations to record")
    add("--skip", type=count_or_none, default=10, metavar="N", help="iterations before them")
    add("--no-modules", action="store_true", help="do not mark the modules of the model")
    add("--shapes", action="store_true", help="record the shapes of operators' inputs")
    add("--json", action="store_true", help="print the report as JSON")
    add("--no-progress", action="store_true", help="show no progress bar")
    add("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return found


def parse(words: list[str]) -> argparse.Namespace:
    """Parses the arguments. On an error, prints it and exits with status 2."""
    options = parser().parse_command(words, "record")
    options.out = os.path.abspath(options.out)
    return options
