#!/usr/bin/env python3
"""Logs what a loader does to TensorBoard, Weights & Biases or MLflow, once an epoch.

    python log_figures.py --data PATH --to tensorboard      # then: tensorboard --logdir runs
    python log_figures.py --data PATH --to wandb            # WANDB_MODE=offline without an account
    python log_figures.py --data PATH --to mlflow           # then: mlflow ui

Copy LoaderFigures and the callback of your tool into your script. A rank of several logs its own
figures: give each its own run, or log those of rank 0 only.
"""

import argparse
import time

import torch
from torch import nn

from headrace import ImageFolder, transforms as T
from headrace.torch import DataLoader


class LoaderFigures:
    """The figures of each epoch of a DataLoader, from the differences of its stats()."""

    def __init__(self, loader):
        self.loader = loader
        self.begin()

    def begin(self):
        self.before, self.began = self.loader.stats(), time.monotonic()

    def end(self):
        """Returns the figures since begin(), or since the last end()."""
        stats, seconds = self.loader.stats(), time.monotonic() - self.began
        change = {name: value - self.before[name] for name, value in stats.items()
                  if isinstance(value, int)}
        each = {name: stats[name]["sum_ns"] - self.before[name]["sum_ns"]
                for name in ("fetch", "prepare")}
        samples = max(1, change["samples"])
        self.begin()
        return {
            "loader/samples_per_s": change["samples"] / seconds,
            "loader/wait_share": change["wait_ns"] / 1e9 / seconds,
            "loader/read_mb_per_s": change["bytes_read"] / 1e6 / seconds,
            "loader/cache_hit_share": change["cache_hits"] / samples,
            "loader/fetch_ms_per_sample": each["fetch"] / 1e6 / samples,
            "loader/prepare_ms_per_sample": each["prepare"] / 1e6 / samples,
            "loader/bad_samples": stats["bad_samples"],
        }


# ---- callbacks: each takes the epoch's number and its figures ---------------------------------


def to_tensorboard():
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter()

    def log(epoch, figures):
        for name, value in figures.items():
            writer.add_scalar(name, value, epoch)
        writer.flush()

    return log


def to_wandb():
    import wandb

    run = wandb.init(project="headrace")
    return lambda epoch, figures: run.log(figures, step=epoch)


def to_mlflow():
    import mlflow

    mlflow.start_run()
    return lambda epoch, figures: mlflow.log_metrics(figures, step=epoch)


CALLBACKS = {"tensorboard": to_tensorboard, "wandb": to_wandb, "mlflow": to_mlflow}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="image folder: one folder for each class")
    parser.add_argument("--to", choices=CALLBACKS, default="tensorboard")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()
    transform = T.Compose([T.RandomResizedCrop(64), T.ToDtype("float32", scale=True)])
    dataset = ImageFolder(args.data, transform)
    loader = DataLoader(dataset, args.batch_size, shuffle=True, verbose=1)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, len(dataset.classes)))
    optimiser = torch.optim.SGD(network.parameters(), 0.01)
    log, loader_figures = CALLBACKS[args.to](), LoaderFigures(loader)
    for epoch in range(args.epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(network(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        figures = loader_figures.end()
        log(epoch, {"loss": loss.item(), **figures})


if __name__ == "__main__":
    main()
