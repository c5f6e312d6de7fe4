"""Plans pipelines: profiles of networks, and the fastest way to divide them over GPUs.

    profile = headrace.pipeline.profile(model, batch)
    found = headrace.pipeline.plan(profile, gpus=8, batch=256, memory_bytes=40 << 30)
    print(found["plans"][0])

``headrace plan`` does the same on the command line; docs/pipelines.md describes profiles and plans.
:class:`headrace.torch.pipeline.Schedule2BW` trains by the schedule ``2bw``.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from . import _core

if TYPE_CHECKING:
    import torch

__all__ = ["from_pipedream", "plan", "profile"]

_Path = str | os.PathLike[str]
_SCHEDULES = ("gpipe", "1f1b", "interleaved", "2bw")


def plan(
    profile: dict[str, Any] | _Path,
    *,
    gpus: int,
    batch: int,
    memory_bytes: int = 0,
    gpus_per_server: int = 0,
    link_bytes_per_s: float = 0.0,
    network_bytes_per_s: float = 0.0,
    state_ratio: float = 2.0,
    gradient_ratio: float = 1.0,
    rows: int = 10,
    schedule: Literal["gpipe", "1f1b", "interleaved", "2bw"] | None = None,
    stages: int | None = None,
    replicas: int | None = None,
    microbatch: int | None = None,
    recompute: bool | None = None,
    chunks: int | None = None,
    page: _Path | None = None,
    trace: _Path | None = None,
) -> dict[str, Any]:
    """Finds the fastest ways to divide a network over GPUs.

    Args:
        profile: the profile, or the path of its JSON.
        gpus: GPUs at most.
        batch: samples of a batch at most, over all replicas.
        memory_bytes: of each GPU; 0: unlimited.
        gpus_per_server: 0: all are in one server.
        link_bytes_per_s, network_bytes_per_s: of each GPU's link within a server and between
            servers; 0: transfers take no time, and the network is like the link.
        state_ratio, gradient_ratio: bytes of the optimizer's state and of gradients over those of
            the weights.
        rows: plans in the result.
        schedule, stages, replicas, microbatch, recompute, chunks: what is given; None: what is
            fastest.
        page, trace: files to write: an HTML page, and the first plan's run for Perfetto.

    Returns the result (docs/pipelines.md). Raises ValueError for what a profile or an option cannot
    be, OSError for files.
    """
    if schedule is not None and schedule not in _SCHEDULES:
        raise ValueError(f"schedule is {schedule!r}: it must be one of {', '.join(_SCHEDULES)}")
    if isinstance(profile, dict):
        text = json.dumps(profile).encode()
    else:
        with open(profile, "rb") as file:
            text = file.read()
    found = _core.plan(
        text,
        page,
        trace,
        gpus=gpus,
        batch=batch,
        memory_bytes=memory_bytes,
        gpus_per_server=gpus_per_server,
        link_bytes_per_s=link_bytes_per_s,
        network_bytes_per_s=network_bytes_per_s,
        state_ratio=state_ratio,
        gradient_ratio=gradient_ratio,
        rows=rows,
        schedule=-1 if schedule is None else _SCHEDULES.index(schedule),
        stages=-1 if stages is None else stages,
        replicas=-1 if replicas is None else replicas,
        microbatch=-1 if microbatch is None else microbatch,
        recompute=-1 if recompute is None else int(recompute),
        chunks=-1 if chunks is None else chunks,
    )
    return cast("dict[str, Any]", json.loads(found))


def profile(
    model: torch.nn.Sequential,
    batch: torch.Tensor,
    *,
    microbatches: Sequence[int] | None = None,
    loss_fn: Callable[[torch.Tensor], torch.Tensor] | None = None,
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
    repeats: int = 5,
    name: str = "",
) -> dict[str, Any]:
    """Measures the layers of a network where it is (its device), for :func:`plan`.

    Args:
        model: its layers in their order. A pipeline can be cut between them only.
        batch: an input, of the largest microbatch at least.
        microbatches: samples of each microbatch to measure; None: that of `batch`.
        loss_fn: of the last layer's output; its time counts as that layer's.
        optimizer: makes an optimizer of a layer's parameters; the time of its step is measured.
        repeats: measurements, of which the medians count.
        name: of the network.

    Times are those of the passes of one layer after another; bytes come from a record of the
    network's forward pass by :mod:`headrace.memory`. The network's weights stay as they are.
    Layers without a backward pass of their own are joined with the next one.
    """
    from ._profile import measure

    sizes = [len(batch)] if microbatches is None else sorted(set(microbatches))
    return measure(model, batch, sizes, loss_fn, optimizer, repeats, name)


# ---- profiles of PipeDream ----

_NODE = re.compile(
    r"^(?P<id>\S+) -- (?P<what>.*) -- forward_compute_time=(?P<forward>\S+), "
    r"backward_compute_time=(?P<backward>\S+), activation_size=(?P<bytes>\[.*\]|\S+), "
    r"parameter_size=(?P<weights>\S+?)(?: -- stage_id=\S+)?$"
)
_EDGE = re.compile(r"^\t(?P<source>\S+) -- (?P<sink>\S+)$")


def _amount(text: str) -> float:
    """A time or size. ValueError: it is no number from 0."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError(f"{text} is no time or size: it must be 0 or more")
    return value


class _Node:
    def __init__(self, found: re.Match[str]) -> None:
        sizes = re.split(r"[;,]", found["bytes"].strip("[]"))
        self.name = found["what"].split("(")[0]
        self.is_input = self.name.startswith("Input")
        self.forward_s = _amount(found["forward"]) / 1000
        self.backward_s = _amount(found["backward"]) / 1000
        self.bytes = sum(_amount(size) for size in sizes)
        self.weight_bytes = _amount(found["weights"])
        self.sinks: list[str] = []
        self.sources = 0


def _read_graph(path: _Path) -> dict[str, _Node]:
    nodes: dict[str, _Node] = {}
    edges = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.rstrip("\n")
            try:
                node = _NODE.match(line)
                if node:
                    nodes[node["id"]] = _Node(node)
            except ValueError as error:
                raise ValueError(f"{os.fspath(path)}, line {number}: {error}") from None
            edge = _EDGE.match(line)
            if edge:
                edges.append((edge["source"], edge["sink"]))
            elif line and not node:
                raise ValueError(f"{os.fspath(path)}, line {number} is no node or edge of a graph")
    for source, sink in edges:
        if source not in nodes or sink not in nodes:
            raise ValueError(f"{os.fspath(path)}: the edge {source} -- {sink} has no such nodes")
        nodes[source].sinks.append(sink)
        nodes[sink].sources += 1
    if not nodes:
        raise ValueError(f"{os.fspath(path)} has no nodes: give a graph.txt of PipeDream's profiler")
    return nodes


def _in_order(nodes: dict[str, _Node], path: _Path) -> list[str]:
    """The nodes, each after its sources; of several the one that comes first in the file."""
    waits = {key: node.sources for key, node in nodes.items()}
    ready = [key for key in nodes if not waits[key]]
    order = []
    while ready:
        key = ready.pop()
        order.append(key)
        for sink in reversed(nodes[key].sinks):
            waits[sink] -= 1
            if not waits[sink]:
                ready.append(sink)
    if len(order) < len(nodes):
        raise ValueError(f"{os.fspath(path)} has a circle: a network's layers cannot")
    return order


def _joined(layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Joins layers without a time with the one before, or the first ones with the next."""
    kept: list[dict[str, Any]] = []
    for layer in layers:
        if kept and not (
            layer["forward_s"][0] > 0
            and layer["backward_s"][0] > 0
            and kept[-1]["forward_s"][0] > 0
            and kept[-1]["backward_s"][0] > 0
        ):
            last = kept[-1]
            for key in ("forward_s", "backward_s", "held_bytes"):
                last[key] = [last[key][0] + layer[key][0]]
            last["weight_bytes"] += layer["weight_bytes"]
            last["output_bytes"] = layer["output_bytes"]
        else:
            kept.append(layer)
    return kept


def from_pipedream(path: _Path, samples: int, *, name: str = "") -> dict[str, Any]:
    """Makes a profile of a graph.txt of PipeDream's profiler (github.com/msr-fiddle/pipedream).

    Args:
        path: the file.
        samples: of the minibatch that was profiled, which the file does not have.
        name: of the network.

    Branches are put in a row; what a cut sends is every output that is needed behind it. Layers
    hold their outputs for the backward pass. Layers whose times are 0 are joined with the one
    before. The time of the node "Input" is that of loading, and left out.
    """
    nodes = _read_graph(path)
    order = [key for key in _in_order(nodes, path) if not nodes[key].is_input]
    inputs = sum(node.bytes for node in nodes.values() if node.is_input)
    place = {key: i for i, key in enumerate(order)}
    last = [max([place[sink] for sink in nodes[key].sinks], default=i) for i, key in enumerate(order)]
    layers = []
    for i, key in enumerate(order):
        node = nodes[key]
        crossing = sum(nodes[k].bytes for at, k in enumerate(order[: i + 1]) if last[at] > i)
        layers.append(
            {
                "name": f"{key} {node.name}",
                "forward_s": [node.forward_s],
                "backward_s": [node.backward_s],
                "held_bytes": [node.bytes],
                "output_bytes": [crossing],
                "weight_bytes": node.weight_bytes,
            }
        )
    return {
        "headrace_pipeline_profile": 1,
        "name": name,
        "microbatches": [samples],
        "input_bytes": [inputs],
        "layers": _joined(layers),
    }
