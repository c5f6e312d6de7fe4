"""Runs an agent: ``python -m headrace.agent``.

``DataLoader(agent="auto")`` starts this module, so that it does not depend on a ``headrace``
command in the PATH. The options are those of ``headrace agent``. Needs no torch.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading

from . import _core

_WATCH_S = 1.0  # longest delay until a message of the library is logged
_FAILED = 3


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m headrace.agent",
        description="Prepares batches for the jobs and ranks of this user on this host.",
    )
    parser.add_argument("--socket", metavar="PATH", help=f"default: {_core.agent_socket()}")
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="default: the cores it may use, less one"
    )
    parser.add_argument("--cache", metavar="TEXT", help="of all datasets, as docs/cache.md says")
    parser.add_argument(
        "--idle", type=float, metavar="SECONDS", help="end after so long without a job"
    )
    parser.add_argument(
        "--metrics", metavar="ADDRESS:PORT", help="figures in Prometheus's format over HTTP"
    )
    parser.add_argument(
        "--listener", type=int, default=-1, metavar="FD", help="a listening socket to serve"
    )
    return parser.parse_args()


def _serve(agent: _core.Agent) -> BaseException | None:
    """Serves until a signal or the idle limit ends it. Returns the exception if it failed."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            agent.run()
        except BaseException as error:  # the main thread reports it
            failure.append(error)

    thread = threading.Thread(target=run, name="agent")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: agent.stop())
    thread.start()
    while thread.is_alive():
        thread.join(_WATCH_S)
        _core.drain_log()
    return failure[0] if failure else None


def main() -> int:
    """Runs an agent in the foreground until SIGINT, SIGTERM or SIGHUP. Returns its exit status."""
    wanted = _arguments()
    logging.basicConfig(format="headrace agent: %(message)s", level=logging.WARNING)
    try:
        agent = _core.Agent(
            socket=wanted.socket,
            listener=wanted.listener,
            threads=wanted.threads,
            cache=wanted.cache,
            idle_ms=-1 if wanted.idle is None else max(0, round(wanted.idle * 1000)),
            metrics=wanted.metrics,
        )
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        print(f"headrace agent: {_words(error)}", file=sys.stderr)
        return _FAILED
    if wanted.listener < 0:
        print(f"serving at {wanted.socket or _core.agent_socket()}", flush=True)
    failure = _serve(agent)
    agent.close()
    if failure is None:
        return 0
    print(f"headrace agent: {_words(failure)}", file=sys.stderr)
    return _FAILED


def _words(error: BaseException) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


if __name__ == "__main__":
    sys.exit(main())
