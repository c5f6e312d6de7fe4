"""Measures the layers of a network for a profile of a pipeline; see headrace.pipeline.profile."""

from __future__ import annotations

import copy
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import memory


class _Clock:
    """Seconds of work on a device: what was started before is waited for."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def _wait(self) -> None:
        if self._device.type != "cpu":
            torch.accelerator.synchronize(self._device)

    def of(self, work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
        """The result of a call, and its seconds."""
        self._wait()
        begin = time.perf_counter()
        result = work(*arguments)
        self._wait()
        return result, time.perf_counter() - begin


def _check_tensor(value: object, label: str) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"layer {label} gives {type(value).__name__}: a profile needs layers that take one "
            "tensor and give one; put what belongs together into a module of its own"
        )
    return value


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


class _Layers:
    """The layers of a network with what one pass over each takes."""

    def __init__(self, model: torch.nn.Sequential, loss_fn: Any) -> None:
        self.modules = dict(model.named_children())
        self.loss_fn = loss_fn

    def run(self, x: torch.Tensor, clock: _Clock) -> list[tuple[float, float, int]]:
        """Runs each layer forward and backward; the seconds of each, and its output's bytes.
        A layer without a backward pass has 0."""
        found: list[tuple[float, float, int]] = []
        labels = list(self.modules)
        for label, module in self.modules.items():
            is_last = label == labels[-1]
            x = x.detach()
            if found and x.is_floating_point():
                x.requires_grad_()
            y, forward = clock.of(module, x)
            _check_tensor(y, label)
            bytes_out = _nbytes(y)
            root = y
            if is_last and self.loss_fn is not None:
                root, more = clock.of(self.loss_fn, y)
                forward += more
            backward = 0.0
            if root.requires_grad:
                _, backward = clock.of(root.backward, torch.ones_like(root))
            found.append((forward, backward, bytes_out))
            x = y
        return found


def _held(model: torch.nn.Sequential, x: torch.Tensor, loss_fn: Any) -> dict[str, int]:
    """The bytes of each layer that its backward pass needs, from a record of a step: blocks that
    it makes in the forward pass and that a backward pass reads."""
    with tempfile.TemporaryDirectory(prefix="headrace-profile-") as folder:
        path = os.path.join(folder, "step.hrm")
        with memory.record(path, batch_size=len(x)):
            y = model(x)
            (y.sum() if loss_fn is None else loss_fn(y)).backward()
        analysis = memory.analyse(path)
    held = dict.fromkeys(dict(model.named_children()), 0)
    for block in analysis["lifetimes"]["blocks"]:
        label = (block["part"] or "").split(".")[0]
        if block["category"] == "activation" and label in held:
            held[label] += block["bytes"]
    return held


def _update_s(module: torch.nn.Module, optimizer: Any, clock: _Clock, repeats: int) -> float:
    parameters = [p for p in module.parameters() if p.requires_grad]
    if optimizer is None or not parameters:
        return 0.0
    step = optimizer(parameters)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    step.step()  # the first one makes the state
    return statistics.median(clock.of(step.step)[1] for _ in range(repeats))


def _join(layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Joins layers without a backward pass with the next one; at the end, with the one before."""
    kept: list[dict[str, Any]] = []
    for layer in layers:
        waits = kept and not all(kept[-1]["backward_s"])
        if not kept or (not waits and all(layer["backward_s"])):
            kept.append(layer)
        elif waits or layer is layers[-1]:
            last = kept[-1]
            last["name"] += f" + {layer['name']}"
            for key in ("forward_s", "backward_s", "held_bytes"):
                last[key] = [a + b for a, b in zip(last[key], layer[key], strict=True)]
            for key in ("weight_bytes", "update_s"):
                last[key] += layer[key]
            last["output_bytes"] = layer["output_bytes"]
        else:
            kept.append(layer)
    return kept


def measure(
    model: torch.nn.Sequential,
    batch: torch.Tensor,
    sizes: Sequence[int],
    loss_fn: Any,
    optimizer: Any,
    repeats: int,
    name: str,
) -> dict[str, Any]:
    if not isinstance(model, torch.nn.Sequential) or not len(model):
        raise TypeError(
            f"the model is {type(model).__name__}: give a torch.nn.Sequential of its layers, "
            "between which a pipeline can be cut"
        )
    if not isinstance(batch, torch.Tensor):
        raise TypeError(f"the batch is {type(batch).__name__}: give the tensor that the model takes")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise ValueError(f"repeats is {repeats!r}: it must be a count of measurements, from 1 on")
    if not sizes or min(sizes) < 1 or max(sizes) > len(batch):
        raise ValueError(f"microbatches are {list(sizes)}: they must be from 1 to {len(batch)}")
    model = copy.deepcopy(model)  # its gradients, buffers and weights change
    clock = _Clock(batch.device)
    layers = _Layers(model, loss_fn)
    columns: list[list[tuple[float, float, int]]] = []
    held: list[dict[str, int]] = []
    for size in sizes:
        x = batch[:size]
        layers.run(x, clock)  # warms up
        runs = [layers.run(x, clock) for _ in range(repeats)]
        columns.append([
            (statistics.median(r[i][0] for r in runs), statistics.median(r[i][1] for r in runs),
             runs[0][i][2])
            for i in range(len(layers.modules))
        ])  # fmt: skip
        held.append(_held(model, x, loss_fn))
    made = []
    for i, (label, module) in enumerate(layers.modules.items()):
        made.append({
            "name": f"{label} {type(module).__name__}",
            "weight_bytes": sum(_nbytes(p) for p in module.parameters()),
            "update_s": _update_s(module, optimizer, clock, repeats),
            "forward_s": [column[i][0] for column in columns],
            "backward_s": [column[i][1] for column in columns],
            "held_bytes": [found[label] for found in held],
            "output_bytes": [column[i][2] for column in columns],
        })  # fmt: skip
    return {
        "headrace_pipeline_profile": 1,
        "name": name or type(model).__name__,
        "microbatches": list(sizes),
        "input_bytes": [_nbytes(batch[:size]) for size in sizes],
        "layers": _join(made),
    }
