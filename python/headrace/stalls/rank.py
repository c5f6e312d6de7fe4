"""State of this process in a measuring run: the run's folder, its rank, and its end."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from multiprocessing import util
from typing import Any, NoReturn

from . import work
from .channel import Channel, RanksApart, default_address
from .findings import Inconclusive

EXIT_INTERNAL = 70
WAY_OUT = (
    "where the training loop goes through something else, write `for batch in "
    "headrace.watch(...)` there; of several loaders, choose one by its number with --loader N"
)


class Rank:
    """This process as one rank of the run. A process has one."""

    def __init__(self) -> None:
        self.folder = os.environ["HEADRACE_STALLS_DIR"]
        with open(os.path.join(self.folder, "settings.json"), encoding="utf-8") as file:
            self.settings: dict[str, Any] = json.load(file)
        self.pid = os.getpid()
        self.over = False  # nothing more is measured in this process
        self.close_source: Callable[[], None] = lambda: None  # ends the loader's workers
        self._channel: Channel | None = None

    def ranks(self) -> dict[str, Any]:
        import torch.distributed

        def number(name: str, otherwise: int) -> int:
            try:
                return int(os.environ[name])
            except (KeyError, ValueError):
                return otherwise

        rank, size = number("RANK", 0), number("WORLD_SIZE", 1)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank = torch.distributed.get_rank()
            size = torch.distributed.get_world_size()
        return {
            "run": self.settings["run"],
            "rank": rank,
            "world_size": size,
            "local_rank": number("LOCAL_RANK", rank),
            "local_world_size": number("LOCAL_WORLD_SIZE", size),
            "host": os.uname().nodename,
        }

    def channel(self) -> Any:
        if self._channel is None:
            ranks = self.ranks()
            size = ranks["world_size"]
            address = self.settings.get("channel") or default_address(
                size, ranks["local_world_size"]
            )
            self._channel = Channel(ranks["rank"], size, self.folder, address)
        return self._channel

    def problem(self, code: str, text: str, remedy: str) -> None:
        rank = self.ranks()["rank"] if "torch.distributed" in sys.modules else 0
        path = os.path.join(self.folder, f"problem-{rank}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"code": code, "text": text, "remedy": remedy}, file)

    def give_up(self, error: Exception) -> NoReturn:
        """Reports an error of the measurement and ends the process, since the script must not
        continue with a loop that the probe has partly taken over."""
        if isinstance(error, RanksApart):
            self.problem("ranks", str(error), "see docs/stalls.md, several ranks")
        elif isinstance(error, Inconclusive):
            self.problem("thread", str(error), WAY_OUT)
        elif isinstance(error, RuntimeError) and "too few" in str(error):
            self.problem("few-batches", str(error), "measure with more data")
        else:
            trace = "".join(traceback.format_exception(error))
            self.problem("internal", trace, "please report this")
        self.end(EXIT_INTERNAL)

    def end(self, status: int) -> NoReturn:
        """Ends the process at once: no except, finally or exit handler of the script runs."""
        self.over = True
        try:
            if status:  # launchers of ranks have an exit status of their own
                with open(os.path.join(self.folder, f"gave-up-{self.pid}"), "w", encoding="ascii"):
                    pass
            self.close_source()
            work.record(False)
            for child in multiprocessing.active_children():
                if child.daemon:
                    child.terminate()
            # Only multiprocessing's finalizers: otherwise it reports its semaphores as leaked.
            util._run_finalizers(0)  # type: ignore[attr-defined]
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        finally:
            os._exit(status)
