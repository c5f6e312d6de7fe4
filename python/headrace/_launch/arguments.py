"""Shared by the command lines of launchers: errors in the form of the headrace command, and types
of arguments."""

from __future__ import annotations

import argparse
from typing import NoReturn

USAGE = 2


class Parser(argparse.ArgumentParser):
    """``prog``: the verb, "headrace stalls"."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")

    def parse_command(self, words: list[str], purpose: str) -> argparse.Namespace:
        """The options, and behind them the command that is to be run: ``options.command``.
        Exits with status 2 and a complaint where something is wrong."""
        options = self.parse_args(words)
        if options.command[:1] == ["--"]:
            del options.command[0]
        if not options.command:
            self.error(f"a command to {purpose} is missing: {self.prog} -- python train.py")
        return options


def count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def count_or_none(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError
    return number


# How argparse calls them in its complaints.
count.__name__ = "number, 1 or more"
count_or_none.__name__ = "number, 0 or more"
