"""What tests/python/test_pipeline_2bw.py runs on four ranks: Schedule2BW on two to four
stages of a small transformer, compared with a plain simulation of its update rule on each rank.

Usage: torchrun --nproc-per-node 4 pipeline_ranks.py OUT. Each rank writes OUT/rankN.json.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from headrace.torch.pipeline import Schedule2BW

WORDS, LENGTH, WIDTH, MICROBATCHES, ROWS = 11, 6, 16, 4, 2

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.1),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 0.003),
}


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.words(x) + self.places


def network() -> nn.Sequential:
    """A transformer of six layers: words, four blocks, scores."""
    torch.manual_seed(0)
    blocks = [nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, 0.0, batch_first=True) for _ in range(4)]
    return nn.Sequential(Words(), *blocks, nn.Linear(WIDTH, WORDS))


def stages_of(model: nn.Sequential, count: int) -> list[nn.Sequential]:
    cuts = [round(i * len(model) / count) for i in range(count + 1)]
    return [model[cuts[i] : cuts[i + 1]] for i in range(count)]


def farthest(a: nn.Module, b: nn.Module) -> float:
    """The largest difference of their weights."""
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return max(float((x - y).detach().abs().max()) for x, y in pairs)


def loss_of(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())


def batch(number: int, rows: int = MICROBATCHES * ROWS) -> tuple[torch.Tensor, torch.Tensor]:
    """Each target follows from its word alone, which a network learns in a few batches."""
    made = torch.Generator().manual_seed(number)
    x = torch.randint(WORDS, (rows, LENGTH), generator=made)
    return x, (3 * x + 1) % WORDS


def simulate(batches: int, optimizer: str, rows: int = MICROBATCHES * ROWS) -> tuple[nn.Sequential, list[float]]:
    """Trains on one process by W(t+1) = W(t) - v grad f(W(t-1))."""
    newest = network()
    older = copy.deepcopy(newest)
    update = OPTIMIZERS[optimizer](newest.parameters())
    losses = []
    for number in range(batches):
        x, y = batch(number, rows)
        older.zero_grad()
        count = rows // ROWS
        parts = zip(x.tensor_split(count), y.tensor_split(count), strict=True)
        found = [loss_of(older(a), b) for a, b in parts]
        for loss in found:
            loss.backward()
        losses.append(sum(loss.item() for loss in found) / count)
        before = copy.deepcopy(newest)
        for new, old in zip(newest.parameters(), older.parameters(), strict=True):
            new.grad = old.grad / count
        update.step()
        older = before
    return newest, losses


class Rank:
    """This rank's stage of a pipeline over the first `count` ranks, and what it did."""

    def __init__(self, count: int, optimizer: str, group: dist.ProcessGroup, **options):
        rank = dist.get_rank(group)
        self.index, self.module = rank, stages_of(network(), count)[rank]
        self.stage = PipelineStage(self.module, rank, count, torch.device("cpu"), group=group)
        self.optimizer = OPTIMIZERS[optimizer](self.module.parameters())
        self.schedule = Schedule2BW(self.stage, MICROBATCHES, loss_of, self.optimizer, **options)
        self.order: list[str] = []
        self.memory: dict[str, set[int]] = {name: set() for name, _ in self.module.named_parameters()}
        self.losses: list[float] = []
        for name in ("forward", "backward"):
            self.watch(name)

    def watch(self, name: str) -> None:
        method = getattr(self.stage, f"{name}_one_chunk")

        def watched(chunk, *args, **kwargs):
            self.order.append(f"{name[0]}{chunk}")
            for key, parameter in self.module.named_parameters():
                self.memory[key].add(parameter.untyped_storage().data_ptr())
            return method(chunk, *args, **kwargs)

        setattr(self.stage, f"{name}_one_chunk", watched)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        losses: list[torch.Tensor] = []
        inputs = (x,) if self.stage.is_first else ()
        self.schedule.step(*inputs, target=y if self.stage.is_last else None, losses=losses)
        if self.stage.is_last:
            self.losses.append(sum(loss.item() for loss in losses) / len(losses))

    def train(self, first: int, last: int) -> None:
        for number in range(first, last):
            self.step(*batch(number))

    def differs(self, model: nn.Sequential, count: int) -> float:
        """The largest difference of this stage's weights from those of a whole model."""
        return farthest(self.module, stages_of(model, count)[self.index])


def follows_the_rule(count: int, optimizer: str, group: dist.ProcessGroup) -> dict[str, object]:
    run = Rank(count, optimizer, group)
    run.train(0, 6)
    updates = run.schedule.updates
    run.schedule.finish()
    model, losses = simulate(6, optimizer)
    return {
        "error": run.differs(model, count),
        "losses": run.losses,
        "simulated": losses,
        "order": run.order,
        "updates_before": updates,
        "updates": run.schedule.updates,
        "versions": max(len(seen) for seen in run.memory.values()),
    }


def resumes(group: dist.ProcessGroup) -> float:
    whole, first, second = (Rank(4, "adamw", group) for _ in range(3))
    whole.train(0, 5)
    whole.schedule.finish()
    first.train(0, 3)
    first.schedule.finish()
    states = [part.state_dict() for part in (first.module, first.optimizer, first.schedule)]
    for part, state in zip((second.module, second.optimizer, second.schedule), states, strict=True):
        part.load_state_dict(state)
    assert second.schedule.batches == 3
    second.train(3, 5)
    second.schedule.finish()
    return farthest(whole.module, second.module)


def evaluates(group: dist.ProcessGroup) -> float:
    """Evaluates between batches: the newest weights, and training goes on as if it had not."""
    run = Rank(4, "sgd", group)
    run.train(0, 2)
    run.schedule.finish()
    x, y = batch(100)
    with torch.no_grad():
        out = run.schedule.eval(*((x,) if run.stage.is_first else ()))
    model, _ = simulate(2, "sgd")
    error = float((out - model(x)).abs().max()) if run.stage.is_last else 0.0
    run.train(2, 4)
    run.schedule.finish()
    return max(error, run.differs(simulate(4, "sgd")[0], 4))


def replicated(pipelines: list[dist.ProcessGroup], replicas: list[dist.ProcessGroup]) -> float:
    """Two stages on two replicas, which together train as one with batches twice as large."""
    rank = dist.get_rank()
    run = Rank(2, "sgd", pipelines[rank // 2], replicas=replicas[rank % 2])
    for number in range(4):
        x, y = batch(number, 2 * MICROBATCHES * ROWS)
        half = rank // 2
        run.step(x.chunk(2)[half], y.chunk(2)[half])
    run.schedule.finish()
    return run.differs(simulate(4, "sgd", 2 * MICROBATCHES * ROWS)[0], 2)


def with_flushes(group: dist.ProcessGroup, batches: int) -> list[float]:
    """The losses of torch's 1F1B, which has no stale weights."""
    rank = dist.get_rank()
    module = stages_of(network(), 4)[rank]
    stage = PipelineStage(module, rank, 4, torch.device("cpu"), group=group)
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_of)
    optimizer = OPTIMIZERS["adamw"](module.parameters())
    found = []
    for number in range(batches):
        x, y = batch(number)
        losses: list[torch.Tensor] = []
        inputs = (x,) if stage.is_first else ()
        schedule.step(*inputs, target=y if stage.is_last else None, losses=losses)
        optimizer.step()
        optimizer.zero_grad()
        if losses:
            found.append(sum(loss.item() for loss in losses) / len(losses))
    return found


def without_flushes(group: dist.ProcessGroup, batches: int) -> list[float]:
    run = Rank(4, "adamw", group)
    run.train(0, batches)
    run.schedule.finish()
    return run.losses


def refusals(group: dist.ProcessGroup) -> dict[str, str]:
    """The messages of what is refused."""
    run = Rank(4, "sgd", group)
    told = {}

    def expect(name, kind, call):
        try:
            call()
        except kind as error:
            told[name] = str(error)

    def make(stage=run.stage, microbatches=MICROBATCHES, loss=loss_of, optimizer=run.optimizer):
        Schedule2BW(stage, microbatches, loss, optimizer)

    other = torch.optim.SGD([next(run.module.parameters())], 0.1)
    expect("few", ValueError, lambda: make(microbatches=3))
    expect("optimizer", ValueError, lambda: make(optimizer=other))
    expect("lbfgs", TypeError, lambda: make(optimizer=torch.optim.LBFGS(run.module.parameters())))
    expect("kind", TypeError, lambda: make(optimizer="sgd"))
    expect("loss", TypeError, lambda: make(loss=None))
    wrapped = copy.copy(run.stage)
    wrapped.submod = nn.parallel.DistributedDataParallel(
        nn.Linear(2, 2), process_group=dist.new_group([dist.get_rank()], use_local_synchronization=True)
    )
    expect("ddp", TypeError, lambda: make(stage=wrapped))
    run.train(0, 1)
    if not run.stage.is_last:
        expect("state", RuntimeError, run.schedule.state_dict)
        expect("eval", RuntimeError, lambda: run.schedule.eval())
    run.schedule.finish()
    expect("other", ValueError, lambda: run.schedule.load_state_dict({"batches": 1}))
    wrong = {"batches": 1, "older_weights": {"a": torch.zeros(1)}}
    expect("shapes", ValueError, lambda: run.schedule.load_state_dict(wrong))
    older = {n: torch.zeros_like(p) for n, p in run.module.named_parameters()}
    for name, state in {
        "text": "batches",
        "count": {"batches": "1", "older_weights": older},
        "negative": {"batches": -1, "older_weights": None},
        "lacking": {"batches": 1, "older_weights": None},
        "early": {"batches": 0, "older_weights": older},
        "list": {"batches": 1, "older_weights": list(older.values())},
        "type": {"batches": 1, "older_weights": {n: t.double() for n, t in older.items()}},
    }.items():
        expect(f"state {name}", ValueError, lambda state=state: run.schedule.load_state_dict(state))
    if run.stage.is_last:
        expect("target", ValueError, lambda: run.schedule.step())
        expect("uneven", ValueError, lambda: run.schedule.step(target=torch.zeros(7)))
    return told


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    groups = {count: dist.new_group(list(range(count))) for count in (2, 3, 4)}
    pipelines = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    replicas = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
    told: dict[str, object] = {}
    for count, group in groups.items():
        for optimizer in OPTIMIZERS:
            if rank < count:
                told[f"rule-{count}-{optimizer}"] = follows_the_rule(count, optimizer, group)
    told["resume"] = resumes(groups[4])
    told["eval"] = evaluates(groups[4])
    told["replicas"] = replicated(pipelines, replicas)
    told["1f1b"] = with_flushes(groups[4], 40)
    told["2bw"] = without_flushes(groups[4], 40)
    told["refused"] = refusals(groups[4])
    Path(sys.argv[1], f"rank{rank}.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
