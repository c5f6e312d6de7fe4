#!/usr/bin/env python3
"""Trains on classes of very different sizes, each equally often, and validates every two epochs.

    python train_balanced.py --data PATH --cache 2GiB

A WeightedRandomSampler draws the photographs of small classes several times an epoch and some
of the large ones not at all. Training and validation share one cache, which keeps the files
that either uses next. Every epoch prints what was read from storage. Run it with --cache of
half of the folder's bytes, and with --first to keep what came first, for comparison.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import Subset, WeightedRandomSampler

from headrace import ImageFolder
from headrace import transforms as T
from headrace.torch import DataLoader


class Unknown:
    """Hides what a sampler is, so that the loader cannot draw it ahead."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        return iter(self.sampler)

    def __len__(self):
        return len(self.sampler)


def make_loaders(args):
    transform = T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(),
                           T.ToDtype(torch.float32, scale=True)])
    folder = ImageFolder(args.data, transform)
    held = range(0, len(folder), 10)  # every tenth photograph validates
    kept = [i for i in range(len(folder)) if i % 10]
    labels = torch.tensor([folder.targets[i] for i in kept])
    weights = 1.0 / torch.bincount(labels, minlength=len(folder.classes)).clamp(min=1)[labels]
    # A generator of its own: what it draws in coming epochs is known.
    sampler = WeightedRandomSampler(weights, len(kept), generator=torch.Generator().manual_seed(1))
    options = {"num_workers": args.workers, "cache_form": "encoded"}
    train = DataLoader(Subset(folder, kept), args.batch_size, cache=args.cache, epochs=args.epochs,
                       sampler=Unknown(sampler) if args.first else sampler, **options)
    val = DataLoader(Subset(folder, held), args.batch_size,
                     cache=None if args.first else train, **options)
    return train, val, len(folder.classes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="image folder: one folder for each class")
    parser.add_argument("--cache", required=True, help="memory for both loaders, such as 2GiB")
    parser.add_argument("--first", action="store_true", help="keep what came first, to compare")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int)
    args = parser.parse_args()
    train, val, classes = make_loaders(args)
    print(train.explain())
    network = nn.Sequential(nn.Conv2d(3, 16, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
                            nn.Flatten(), nn.Linear(64, classes))
    optimiser = torch.optim.SGD(network.parameters(), 0.05, momentum=0.9)
    read = 0
    for epoch in range(args.epochs):
        for images, labels in train:
            loss = nn.functional.cross_entropy(network(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        right = None
        if epoch % 2:
            with torch.no_grad():
                right = sum(int((network(images).argmax(1) == labels).sum())
                            for images, labels in val) / len(val.dataset)
        now = train.stats()["bytes_read"] + val.stats()["bytes_read"]
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, read {(now - read) / 1e6:.1f} MB"
              + ("" if right is None else f", right {right:.1%}"))
        read = now


if __name__ == "__main__":
    main()
