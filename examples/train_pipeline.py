"""Trains a small transformer as a pipeline, one stage on each rank, with or without flushes.

    torchrun --nproc-per-node 4 examples/train_pipeline.py
    torchrun --nproc-per-node 4 examples/train_pipeline.py --schedule 1f1b

The task: after each letter of a made-up alphabet comes another one, always the same. Runs on the
CPU with gloo, or on one GPU per rank with --device cuda.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from headrace.torch.pipeline import Schedule2BW

LETTERS, LENGTH = 32, 16


class Letters(nn.Module):
    """Vectors of letters and of their places."""

    def __init__(self, width):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        self.places = nn.Parameter(torch.randn(LENGTH, width))

    def forward(self, x):
        return self.letters(x) + self.places


def stage_of(rank, ranks, width, blocks):
    """This rank's layers of the network, which all ranks make alike."""
    torch.manual_seed(0)
    layers = [Letters(width)]
    layers += [nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
               for _ in range(blocks)]
    layers += [nn.Linear(width, LETTERS)]
    cuts = [round(i * len(layers) / ranks) for i in range(ranks + 1)]
    return nn.Sequential(*layers[cuts[rank]:cuts[rank + 1]])


def loss_of(scores, targets):
    return nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def batches(count, rows):
    made = torch.Generator().manual_seed(1)
    follows = torch.randperm(LETTERS, generator=made)
    for _ in range(count):
        x = torch.randint(LETTERS, (rows, LENGTH), generator=made)
        yield x, follows[x]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--schedule", choices=("2bw", "1f1b"), default="2bw")
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    dist.init_process_group("gloo" if args.device == "cpu" else "nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device(args.device, rank if args.device == "cuda" else None)
    torch.set_num_threads(1)
    module = stage_of(rank, ranks, args.width, args.blocks).to(device)
    stage = PipelineStage(module, rank, ranks, device)
    optimizer = torch.optim.AdamW(module.parameters(), 1e-3)
    if args.schedule == "2bw":
        schedule = Schedule2BW(stage, args.microbatches, loss_of, optimizer)
    else:
        schedule = Schedule1F1B(stage, args.microbatches, loss_of)
    begin = time.perf_counter()
    for number, (x, y) in enumerate(batches(args.batches, args.batch_size)):
        losses = []
        inputs = (x.to(device),) if stage.is_first else ()
        targets = y.to(device) if stage.is_last else None
        schedule.step(*inputs, target=targets, losses=losses, return_outputs=False)
        if args.schedule == "1f1b":
            optimizer.step()
            optimizer.zero_grad()
        if losses and number % 10 == 9:
            print(f"batch {number + 1}: loss {torch.stack(losses).mean().item():.4f}", flush=True)
    if args.schedule == "2bw":
        schedule.finish()
    if stage.is_last:
        print(f"{args.batches / (time.perf_counter() - begin):.2f} batches/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
