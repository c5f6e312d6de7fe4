"""Pipelines without flushes: PipeDream-2BW as a schedule of torch.distributed.pipelining.

    from torch.distributed.pipelining import PipelineStage
    from headrace.torch.pipeline import Schedule2BW

    stage = PipelineStage(module, rank, world_size, device)
    optimizer = torch.optim.AdamW(module.parameters())
    schedule = Schedule2BW(stage, 8, loss_fn, optimizer)
    for images, targets in loader:
        if stage.is_first:
            schedule.step(images)
        elif stage.is_last:
            schedule.step(target=targets, losses=losses)
        else:
            schedule.step()
    schedule.finish()

Schedules with a flush (GPipe, 1F1B) run all backward passes of a batch before the first forward
pass of the next, so every GPU waits at each batch. Here the passes of the next batch follow at
once, and the pipeline fills once per run. A batch uses the weights of the batch before: each
stage has two versions of them, and updates them by W(t+1) = W(t) - v grad f(W(t-1)). "Memory-
Efficient Pipeline-Parallel DNN Training", Narayanan and others, ICML'21.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining.schedules import PipelineScheduleSingle
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

__all__ = ["Schedule2BW"]


class _Versions:
    """The newest weights of a stage and those before them.

    The module's parameters stay the same objects, so the optimizer knows them; what they point to
    is one of two sets of tensors. A graph of autograd that waits for its backward pass saved the
    parameters: for that pass they point again to the weights of its forward pass.
    """

    def __init__(self, parameters: dict[str, torch.nn.Parameter]) -> None:
        self.updates = 0
        self._parameters = parameters
        self._newest = [p.data for p in parameters.values()]
        self._older: list[torch.Tensor] | None = None  # none before the first update
        self._shown = 0  # the version that the parameters point to

    def use(self, version: int) -> None:
        """Makes the parameters those of `version`: the newest or the one before it."""
        if version == self._shown:
            return
        data = self._newest if version == self.updates else self._older
        if data is None or version not in (self.updates, self.updates - 1):
            raise RuntimeError(
                f"version {version} of the weights is gone: there were {self.updates} updates"
            )
        for parameter, tensor in zip(self._parameters.values(), data, strict=True):
            parameter.data = tensor
        self._shown = version

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Makes a new version of the newest one with the optimizer; it replaces the older one."""
        new = self._older
        if new is None:
            new = [torch.empty_like(tensor) for tensor in self._newest]
        with torch.no_grad():
            for ours, newest in zip(new, self._newest, strict=True):
                ours.copy_(newest)
        for parameter, tensor in zip(self._parameters.values(), new, strict=True):
            parameter.data = tensor
        # Microbatches in flight saved the parameters. Autograd would refuse their backward passes,
        # although the tensors that these use are not written.
        with _unsafe_preserve_version_counter(tuple(self._parameters.values())):
            optimizer.step()
        self._older, self._newest = self._newest, new
        self.updates += 1
        self._shown = self.updates

    def older(self) -> dict[str, torch.Tensor] | None:
        if self._older is None:
            return None
        named = zip(self._parameters, self._older, strict=True)
        return {name: tensor.detach().clone() for name, tensor in named}

    def restore(self, updates: int, older: dict[str, torch.Tensor] | None) -> None:
        """Takes the module's weights as the newest, after `updates` updates."""
        if older is None:
            self._older = None
        else:
            given = {name: (tuple(t.shape), t.dtype) for name, t in older.items()}
            ours = {name: (tuple(p.shape), p.dtype) for name, p in self._parameters.items()}
            if given != ours:
                wrong = sorted(name for name in {*given, *ours} if given.get(name) != ours.get(name))
                raise ValueError(
                    f"the state is of another stage: {', '.join(wrong[:5])} differ in name, shape "
                    "or type; load the state that this stage saved"
                )
            self._older = [
                torch.empty_like(p.data).copy_(older[name]) for name, p in self._parameters.items()
            ]
        self._newest = [p.data for p in self._parameters.values()]
        self.updates = self._shown = updates


def _refuse_wrapped(module: torch.nn.Module) -> None:
    if isinstance(module, DistributedDataParallel | FSDPModule):
        raise TypeError(
            f"Schedule2BW keeps two versions of the weights, which {type(module).__name__} does not "
            "allow: give PipelineStage the plain module, and replicas= the process group of the "
            "stage's replicas"
        )
    if any(isinstance(p, DTensor) for p in module.parameters()):
        raise TypeError("Schedule2BW does not support sharded parameters (DTensor)")


def _of_optimizer(optimizer: torch.optim.Optimizer) -> Iterable[torch.nn.Parameter]:
    return (p for group in optimizer.param_groups for p in group["params"])


def _check_optimizer(
    optimizer: torch.optim.Optimizer, parameters: dict[str, torch.nn.Parameter]
) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer is {type(optimizer).__name__}; give one of torch.optim")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError("Schedule2BW cannot use LBFGS: it runs the network within its step")
    ours = {id(p) for p in parameters.values()}
    theirs = {id(p) for p in _of_optimizer(optimizer) if p.requires_grad}
    if ours != theirs:
        raise ValueError(
            f"the optimizer has {len(theirs - ours)} parameters that are not of the stage's module "
            f"and lacks {len(ours - theirs)} of its {len(ours)}: give it the module's parameters"
        )


def _check_state(state: Any) -> None:
    """Refuses what :meth:`Schedule2BW.state_dict` cannot have returned."""
    if not isinstance(state, Mapping) or set(state) != {"batches", "older_weights"}:
        raise ValueError("this is no state of Schedule2BW: it has batches and older_weights")
    batches, older = state["batches"], state["older_weights"]
    if not isinstance(batches, int) or isinstance(batches, bool) or batches < 0:
        raise ValueError(f"the state's batches are {batches!r}: they must be a count, from 0 on")
    if older is None:
        if batches:
            raise ValueError(
                f"the state lacks older_weights, which exist after {batches} batches: load what "
                "state_dict() returned"
            )
        return
    if not batches:
        raise ValueError("the state has older_weights and no batches: load what state_dict() returned")
    if not isinstance(older, Mapping) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in older.items()
    ):
        raise ValueError("the state's older_weights must be tensors by the names of the parameters")


class Schedule2BW(PipelineScheduleSingle):
    """Trains without flushes: one forward, one backward pass by turns over batches (see above).

    Args:
        stage: this rank's ``PipelineStage``.
        n_microbatches: of a batch; not fewer than stages.
        loss_fn: of an output and a target.
        optimizer: of the stage's parameters. The schedule calls its ``step`` and ``zero_grad``,
            because a batch ends on each stage at another time. What belongs to an update (learning
            rate schedules, clipping of a stage's gradients) is registered with its
            ``register_step_pre_hook`` and ``register_step_post_hook``.
        replicas: the process group of the ranks with replicas of this stage, whose gradients are
            averaged; None: there are none.
        args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads: as of torch's
            schedules.

    A batch has ``n_microbatches`` microbatches of the same size, always. Between calls of
    :meth:`step` the module has its newest weights. ``eval`` and ``state_dict`` need
    :meth:`finish` first.
    """

    def __init__(
        self,
        stage: Any,
        n_microbatches: int,
        loss_fn: Callable[..., torch.Tensor],
        optimizer: torch.optim.Optimizer,
        *,
        replicas: dist.ProcessGroup | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        if "loss_kwargs" not in inspect.signature(PipelineScheduleSingle._initialize_stage).parameters:
            raise RuntimeError(f"Schedule2BW needs torch 2.13 or newer; this is {torch.__version__}")
        if not callable(loss_fn):
            raise TypeError("Schedule2BW trains: it needs a loss_fn(output, target)")
        if n_microbatches < stage.num_stages:
            raise ValueError(
                f"{n_microbatches} microbatches are fewer than the {stage.num_stages} stages: they "
                "would need more than two versions of the weights; give at least one per stage"
            )
        _refuse_wrapped(stage.submod)
        parameters = {n: p for n, p in stage.submod.named_parameters() if p.requires_grad}
        _check_optimizer(optimizer, parameters)
        super().__init__(
            stage,
            n_microbatches,
            loss_fn,
            args_chunk_spec,
            kwargs_chunk_spec,
            output_merge_spec,
            scale_grads,
        )
        self._optimizer = optimizer
        self._replicas = replicas
        self._parameters = parameters
        self._weights = _Versions(parameters)
        self._warm_up = stage.num_stages - stage.stage_index  # microbatches in flight
        self._forwards = self._backwards = 0  # passes so far
        self._losses: dict[int, torch.Tensor] = {}  # by number of the microbatch in its batch
        self._unsent: list[dist.P2POp] = []
        self._sending: deque[tuple[dist.Work, list[dist.P2POp]]] = deque()

    @property
    def batches(self) -> int:
        """The batches that training has begun with."""
        return self._forwards // self._n_microbatches

    @property
    def updates(self) -> int:
        """The updates of this stage's weights so far."""
        return self._weights.updates

    def step(
        self,
        *args: Any,
        target: torch.Tensor | None = None,
        losses: list[torch.Tensor] | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Runs the forward passes of a batch, and those backward passes whose turn it is: on the
        last stage all of this batch, on the others also some of the batch before.

        Arguments and result are those of torch's schedules. `losses` gets the loss of each
        microbatch of this batch, on the last stage.
        """
        if self._has_backward and not torch.is_grad_enabled():
            raise RuntimeError("step() trains, which needs gradients: call eval() under no_grad")
        if not self._has_backward and self._forwards != self._backwards:
            raise RuntimeError(
                "microbatches are in flight: call finish() on all ranks before eval()"
            )
        self._stage.has_backward = self._has_backward
        self._stage.output_chunks.clear()
        arg_mbs, kwarg_mbs = self._split_inputs(args, kwargs)
        self._step_microbatches(
            arg_mbs, kwarg_mbs, self._split_target(target), losses, return_outputs, loss_kwargs
        )
        if self._stage.is_last and return_outputs:
            return self._merge_outputs(self._stage.output_chunks)
        return None

    def finish(self) -> None:
        """Runs the backward passes that are left, and the last update. All ranks call it at the end
        of training, and before they evaluate or save. Training may go on after it; the pipeline
        then fills anew."""
        while self._backwards < self._forwards:
            self._backward()
        self._wait_sends()
        self._weights.use(self._weights.updates)

    # ---- resuming ----

    def state_dict(self) -> dict[str, Any]:
        """What this rank needs to go on, beside the state of its module and its optimizer: the
        number of batches, and the weights before the newest."""
        if self._forwards != self._backwards:
            raise RuntimeError(
                f"{self._forwards - self._backwards} microbatches are in flight, which cannot be "
                "saved: call finish() on all ranks first"
            )
        return {"batches": self.batches, "older_weights": self._weights.older()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on after :meth:`state_dict`. Load the module and the optimizer first."""
        if self._forwards != self._backwards:
            raise RuntimeError("microbatches are in flight: load a state before the first step")
        _check_state(state)
        self._weights.restore(state["batches"], state["older_weights"])
        self._forwards = self._backwards = state["batches"] * self._n_microbatches

    # ---- passes ----

    def _split_target(self, target: torch.Tensor | None) -> list[torch.Tensor] | None:
        if target is None:
            return None
        if len(target) % self._n_microbatches:
            raise ValueError(
                f"a target of {len(target)} rows cannot be split into {self._n_microbatches} equal "
                "microbatches: drop the last, smaller batch (drop_last=True)"
            )
        return list(target.tensor_split(self._n_microbatches))

    def _step_microbatches(
        self,
        arg_mbs: list[Any] | None = None,
        kwarg_mbs: list[Any] | None = None,
        target_mbs: list[torch.Tensor] | None = None,
        losses: list[torch.Tensor] | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,
    ) -> None:
        arg_mbs, kwarg_mbs = self._check_inputs(arg_mbs, kwarg_mbs, target_mbs, losses)
        if self._stage.is_last and self._has_backward and target_mbs is None:
            raise ValueError("the last stage needs target=")
        first = target_mbs[0] if target_mbs else None
        base: Any = self  # what torch's schedules share has no types
        base._initialize_stage(arg_mbs[0], kwarg_mbs[0], first, loss_kwargs)
        self._losses.clear()
        kept: list[torch.Tensor] = []
        for i in range(self._n_microbatches):
            output = self._forward(i, arg_mbs[i], kwarg_mbs[i], return_outputs)
            if self._stage.is_last and target_mbs is not None:
                self._losses[i] = base._compute_loss(output, target_mbs[i], loss_kwargs)
                kept.append(self._losses[i])
            if self._has_backward and self._forwards - self._backwards == self._warm_up:
                self._backward()
        self._exchange([])
        if losses is not None and self._stage.is_last:
            losses[:] = kept
        if not self._has_backward:
            self._wait_sends()
            self._stage.fwd_cache.clear()
        self._weights.use(self._weights.updates)

    def _version(self, microbatch: int) -> int:
        """The version of the weights for both passes of a microbatch, counted over the run."""
        return max(microbatch // self._n_microbatches - 1, 0)

    def _forward(self, i: int, args: Any, kwargs: Any, keep: bool) -> Any:
        self._exchange(self._stage.get_fwd_recv_ops(i))
        if self._has_backward:
            self._weights.use(self._version(self._forwards))
            self._forwards += 1
        output = self._stage.forward_one_chunk(i, args, kwargs, save_forward_output=keep)
        self._unsent = self._stage.get_fwd_send_ops(i)
        return output

    def _backward(self) -> None:
        i = self._backwards % self._n_microbatches
        self._exchange(self._stage.get_bwd_recv_ops(i))
        self._weights.use(self._version(self._backwards))
        self._stage.backward_one_chunk(i, loss=self._losses.pop(i, None))
        self._unsent = self._stage.get_bwd_send_ops(i)
        self._backwards += 1
        if self._backwards % self._n_microbatches == 0:
            self._exchange([])
            self._update()

    def _update(self) -> None:
        """Ends a batch: its gradients, which all its microbatches were added to, make a version."""
        if self.scale_grads:
            for parameter in self._parameters.values():
                if parameter.grad is not None:
                    parameter.grad.div_(self._n_microbatches)
        if self._replicas is not None:
            self._average()
        self._weights.update(self._optimizer)
        self._optimizer.zero_grad()

    def _average(self) -> None:
        count = dist.get_world_size(self._replicas)
        grads = []
        for parameter in self._parameters.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            grads.append(parameter.grad)
        works = [dist.all_reduce(g, group=self._replicas, async_op=True) for g in grads]
        for grad, work in zip(grads, works, strict=True):
            cast(dist.Work, work).wait()
            grad.div_(count)

    # ---- sending and receiving ----

    def _exchange(self, receives: list[dist.P2POp]) -> None:
        """Sends the result of the last pass and waits for what the next one needs. Both are started
        together: two neighbours that each sent first could wait for each other."""
        sends, self._unsent = self._unsent, []
        while self._sending and self._sending[0][0].is_completed():
            self._sending.popleft()[0].wait()
        if not sends and not receives:
            return
        works = dist.batch_isend_irecv(sends + receives)
        separate = len(works) == len(sends) + len(receives)
        for number, work in enumerate(works):
            if separate and number < len(sends):
                self._sending.append((work, sends))
            else:
                work.wait()

    def _wait_sends(self) -> None:
        self._exchange([])
        while self._sending:
            self._sending.popleft()[0].wait()
