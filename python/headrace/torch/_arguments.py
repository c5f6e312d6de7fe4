"""Checks the DataLoader's arguments.

Errors name the argument and what to do instead. If torch refuses the same, the
message is torch's.
"""

from __future__ import annotations

import operator
import os
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import torch
import torch.utils.data

from .. import _core
from . import _surroundings
from ._hosts import is_hosts

_SEEDS = 1 << 64
LONG = _SEEDS - 1
_LARGEST = (1 << 31) - 1  # of the library's int options


def count(what: str, value: Any, least: int, most: int = _LARGEST) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be a whole number, got {value!r}") from None
    if number < least:
        raise ValueError(f"{what} must be at least {least}, got {value!r}")
    if number > most:
        raise ValueError(f"{what} must be at most {most}, got {value!r}")
    return number


def workers(value: Any, many: bool) -> int:
    """Returns the number of threads, or of worker processes where Python makes samples; ``many``: all
    cores but one, if none is given."""
    if value is not None:
        return count("num_workers", value, 0)
    if many:
        return max(1, _core.machine()["cores"] // _surroundings.local_ranks() - 1)
    return 0  # torch's default: some datasets cannot be used by other processes


def epoch(value: Any) -> int:
    return count("epoch", value, 0, LONG)


def cache(value: Any) -> str | None:
    """Converts bytes or a text to the library's text; None and 0 mean no cache."""
    if value is None or isinstance(value, str):
        if value == "":
            raise ValueError("cache is an empty text: write a size such as '64GiB', or leave it out")
        return value
    number = count("cache", value, 0, LONG)
    return str(number) if number else None


# Options of the native loader that shared() returns.
SHARED = frozenset(("agent", "agent_command", "stream", "join", "lag", "window"))

_WINDOW = 8  # the library's default
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _agent_command() -> dict[str, str]:
    """Returns the command that "auto" starts: this package's agent in this Python, unless
    HEADRACE_AGENT_COMMAND names another. It imports nothing from the working directory (-P), and
    finds the package at this one's location, however that came to be on the path."""
    if os.environ.get("HEADRACE_AGENT_COMMAND") or not sys.executable:
        return {}
    start = os.path.join(_PACKAGE, "_start.py")
    return {"agent_command": "\x1f".join((sys.executable, "-P", start, "headrace.agent"))}


def shared(
    agent: Any,
    stream: Any,
    join: Any,
    lag: Any,
    window: Any,
    *,
    batches_ahead: int,
    has_sampler: bool,
    in_python: bool = False,
) -> dict[str, Any]:
    """Returns the native loader's options for an agent; empty without one."""
    for what, value, words in (("join", join, ("epoch", "now")), ("lag", lag, ("alone", "wait"))):
        if value not in words:
            raise ValueError(f"{what} must be {words[0]!r} or {words[1]!r}, got {value!r}")
    if window is not None:
        count("window", window, batches_ahead + 2)
    if agent is None:
        if stream is not None:
            raise ValueError(
                f"stream {stream!r} needs an agent, which prepares for all of its jobs: add "
                "agent='auto', or leave stream out"
            )
        return {}
    path = os.fspath(agent)
    if in_python and has_sampler:
        raise ValueError(
            "with an agent, samples that Python makes come in the loader's own order, which its jobs "
            "share: leave the sampler or the agent out (shuffle=True is a new order every epoch, "
            "dealt to the ranks as by a DistributedSampler)"
        )
    if not path:
        raise ValueError("agent is an empty text: give 'auto' or a socket's path, or leave it out")
    if stream is not None and not (isinstance(stream, str) and stream):
        raise ValueError(f"stream must be a name, got {stream!r}: leave it out for one of its own")
    if has_sampler and stream is not None:
        raise ValueError(
            f"stream {stream!r} does not go with a sampler, whose order is this loader's alone: the "
            "agent prepares it for this loader only. Leave stream out, or the sampler: jobs of a "
            "stream share the loader's own order (shuffle=True, seed)"
        )
    options = {
        "agent": os.path.join(".", path) if path == "auto" and path is not agent else path,
        **_agent_command(),
        "join": join,
        "lag": lag,
        "window": max(_WINDOW, batches_ahead + 2) if window is None else window,
    }
    return options if stream is None else {**options, "stream": stream}


def check_join(join: Any, stream: Any, world_size: int) -> None:
    if join == "now" and stream is not None and world_size > 1:
        raise ValueError(
            "join='now' is for one rank: of several, each would begin at another place and have "
            "another number of batches. Use join='epoch'"
        )


def hosts(cache: str | None, assignment: Any, *, agent: Any, has_sampler: bool) -> None:
    """Refuses arguments that exclude a cache on several hosts, or that require one."""
    if assignment not in (None, "local", "exact"):
        raise ValueError(f"assignment must be 'local', 'exact' or None, got {assignment!r}")
    if not is_hosts(cache):
        if assignment == "local":
            raise ValueError(
                "assignment='local' deals samples to the hosts that keep them, which needs "
                "cache='memcached:HOST,HOST?size=...': add that, or leave assignment out"
            )
        return
    if has_sampler:
        raise ValueError(
            "a sampler does not go with a cache on several hosts, which plan by an order that all of "
            "them know: leave sampler and batch_sampler out. shuffle=True is a new order every "
            "epoch, shared among the ranks, as a DistributedSampler's"
        )
    if agent is not None:
        raise ValueError(
            "an agent does not go with a cache on several hosts, because it does not know the "
            "batches of other hosts: leave agent and stream out. The ranks of a machine share its "
            "memcached server"
        )


def check_order(
    batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: Any
) -> None:
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (
        batch_size != 1 or shuffle or sampler is not None or drop_last
    ):
        raise ValueError(
            "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and "
            "drop_last"
        )
    if batch_size is None and drop_last and batch_sampler is None:
        raise ValueError(
            "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
        )


def names(given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise TypeError(f"names must be texts, one for each field of a batch, got {given!r}")
    out = tuple(given)
    if len(set(out)) != len(out) or not out:
        raise ValueError(f"names must be different texts, at least one, got {given!r}")
    return out


def named(names: tuple[str, ...] | None, batch: Any) -> Any:
    """Returns a batch as a dict of ``names``, if they are given."""
    if names is None:
        return batch
    if not isinstance(batch, (tuple, list)):
        if isinstance(batch, Mapping):
            raise ValueError(
                f"names={names!r}, but the batches are dicts already, with {list(batch)!r}: leave it out"
            )
        batch = (batch,)
    if len(batch) != len(names):
        raise ValueError(f"names={names!r}, but a batch has {len(batch)} fields: name each")
    return dict(zip(names, batch))


def with_field(batch: Any, name: str, value: Any) -> Any:
    """Adds a field to a batch of any kind."""
    if isinstance(batch, dict):
        if name in batch:
            raise ValueError(
                f"return_{name}=True adds a field {name!r}, but the batches have one: leave it out"
            )
        return {**batch, name: value}
    return (*batch, value) if isinstance(batch, (tuple, list)) else (batch, value)


def can_pin(wanted: bool) -> bool:
    """Returns whether batches are page-locked; warns as torch where they cannot be."""
    if not wanted or torch.cuda.is_available():
        return bool(wanted)
    warnings.warn(
        "'pin_memory' argument is set as true but no accelerator is found, then device "
        "pinned memory won't be used.",
        stacklevel=3,
    )
    return False


def seed(seed: Any, generator: torch.Generator | None) -> int:
    number = operator.index(seed)
    if not 0 <= number < _SEEDS:
        raise ValueError(f"seed must be between 0 and 2**64 - 1, got {seed!r}")
    if generator is None:
        return number
    if number:
        raise ValueError("give seed or generator, not both: the generator's seed would be used")
    return generator.initial_seed() % _SEEDS


def part(rank: int | None, world_size: int | None, gather: Any) -> _surroundings.Part:
    """Returns the part given by rank= and world_size=, or by the environment. A ``gather`` function
    implies that the ranks train together."""
    if (rank is None) != (world_size is None):
        raise ValueError("give rank and world_size both, or neither")
    if rank is None or world_size is None:
        return _surroundings.Part(None, callable(gather))
    given = count("rank", rank, 0), count("world_size", world_size, 1)
    if given[0] >= given[1]:
        raise ValueError(f"rank {rank} must be less than world_size {world_size}")
    return _surroundings.Part(given, True)


def first_capacity(batch_sampler: Any) -> int:
    """Returns the batch size that a batch sampler declares."""
    size = getattr(batch_sampler, "batch_size", None)
    return size if isinstance(size, int) and size > 0 else 1
