#!/usr/bin/env python3
r"""Trains on an image folder in a bucket, with all ranks of a host sharing one cache.

    torchrun --nproc-per-node 2 train_bucket.py --data s3://bucket/train \
        --cache 'shm:birds?size=64GiB'

Each object is asked for once: by the rank that needs it first. The others, and all later epochs,
take it from the host's shared memory. What does not fit there can go to a local disk:
--cache 'shm:birds?size=64GiB,disk:/nvme/birds?size=1TiB'. The cache outlives the run; `headrace
cache drop shm:birds` frees it. Credentials are found where AWS's tools find them. Every epoch
prints the objects that each rank asked the store for.
"""

import argparse

import torch
from torch import distributed, nn

from headrace import ImageFolder
from headrace import transforms as T
from headrace.torch import DataLoader


def make_loader(args):
    transform = T.Compose([T.RandomResizedCrop(args.side), T.RandomHorizontalFlip(),
                           T.ToDtype(torch.float32, scale=True)])
    folder = ImageFolder(args.data, transform)
    # shares each epoch among the ranks by itself
    loader = DataLoader(folder, args.batch_size, shuffle=True, drop_last=True,
                        num_workers=args.workers, cache=args.cache)
    return loader, len(folder.classes)


def requests_of_ranks(loader, before):
    """Returns the objects that each rank asked for since, and this rank's count."""
    stats = loader.stats()
    now = stats["object_requests"] - stats["object_lists"]
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(distributed.get_world_size())]
    distributed.all_gather(counts, torch.tensor([now - before]))
    return [int(count) for count in counts], now


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="such as s3://bucket/train")
    parser.add_argument("--cache", required=True, help="such as 'shm:birds?size=64GiB'")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--side", type=int, default=64, help="of the images, in pixels")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    loader, classes = make_loader(args)
    network = nn.parallel.DistributedDataParallel(nn.Sequential(
        nn.Conv2d(3, 16, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(256, classes)))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    asked = loader.stats()["object_requests"] - loader.stats()["object_lists"]
    for epoch in range(args.epochs):
        loader.set_epoch(epoch)
        samples = torch.zeros(1)
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images), labels).backward()
            optimizer.step()
            samples += len(labels)
        distributed.all_reduce(samples)
        counts, asked = requests_of_ranks(loader, asked)
        if distributed.get_rank() == 0:
            print(f"epoch {epoch + 1}/{args.epochs}  {int(samples)} samples, objects asked for: "
                  f"{' + '.join(map(str, counts))}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
