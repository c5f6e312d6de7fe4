#!/usr/bin/env python3
"""Trains on several hosts whose memcached servers keep the images between epochs.

    torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint hostA:29500 \\
        train_hosts.py --data PATH --cache 'memcached:hostA:11211,hostB:11211?size=64GiB'

    mpirun -n 2 --host hostA,hostB -x MASTER_ADDR=hostA -x MASTER_PORT=29500 \\
        python train_hosts.py --data PATH --cache 'memcached:hostA:11211,hostB:11211?size=64GiB'

Data-parallel training by PyTorch's own means: NCCL where there are GPUs, else gloo. The
first epoch reads each image from storage once, on one of the hosts; in later ones they come
from the servers' memory, nearly all from the host's own. The network has no batch norm, so
that it is the same which rank computes which images of a batch; one that has needs
--assignment exact, or SyncBatchNorm.

A checkpoint is written after every epoch, and after --stop-after batches; the next run with
the same --checkpoint goes on at the very next image, with any number of ranks.
"""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

from headrace import ImageFolder, transforms as T
from headrace.torch import DataLoader

# Where Open MPI, MPICH and Slurm say what torchrun says in RANK, WORLD_SIZE and LOCAL_RANK.
LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)


def start_ranks():
    """Joins the other ranks, whoever started them; returns the device of this one."""
    if "RANK" not in os.environ:
        for names in LAUNCHERS:
            if names[0] in os.environ:
                for torchs, its in zip(("RANK", "WORLD_SIZE", "LOCAL_RANK"), names):
                    os.environ[torchs] = os.environ[its]
                break
        else:
            os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="localhost",
                              MASTER_PORT="0")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        return torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group("gloo")
    return torch.device("cpu")


class Block(nn.Module):
    """Two 3x3 convolutions around a shortcut, with group norm (Wu and He, 2018)."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.GroupNorm(8, outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.GroupNorm(8, outputs))
        self.shortcut = nn.Conv2d(inputs, outputs, 1, 2)

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def make_network(classes):
    return nn.Sequential(nn.Conv2d(3, 32, 8, 8), Block(32, 32), Block(32, 64),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def make_loader(args, transform):
    dataset = ImageFolder(args.data, transform)
    loader = DataLoader(dataset, args.batch_size, shuffle=True, drop_last=True,
                        num_workers=args.workers, seed=args.seed, cache=args.cache,
                        assignment=args.assignment, pin_memory=torch.cuda.is_available())
    return loader, len(dataset.classes)


def save(args, network, optimiser, loader):
    """Every rank has the same weights and the same place in the data; one writes."""
    if dist.get_rank() == 0 and args.checkpoint:
        state = {"network": network.module.state_dict(), "optimiser": optimiser.state_dict(),
                 "loader": loader.state_dict()}
        torch.save(state, args.checkpoint + ".new")
        os.replace(args.checkpoint + ".new", args.checkpoint)
    dist.barrier()


def resume(args, network, optimiser, loader):
    if not args.checkpoint or not os.path.exists(args.checkpoint):
        return 0
    state = torch.load(args.checkpoint, map_location="cpu")
    network.module.load_state_dict(state["network"])
    optimiser.load_state_dict(state["optimiser"])
    loader.load_state_dict(state["loader"])
    return state["loader"]["epoch"]


def train_epoch(args, network, optimiser, loader, device):
    """One epoch, or what is left of it; False where --stop-after ended it."""
    for number, (images, labels) in enumerate(loader, 1):
        images, labels = images.to(device, non_blocking=True), labels.to(device)
        loss = nn.functional.cross_entropy(network(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if number == args.stop_after:
            return False
    return True


def figures(loader, before, seconds, device):
    """What the ranks did since `before`, added up."""
    now = loader.stats()
    names = ("batches", "bytes_read", "own_bytes", "peer_bytes", "wait_ns")
    sums = torch.tensor([now[name] - before.get(name, 0) for name in names],
                        dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    batches, read, own, peer, wait = sums.tolist()
    samples = batches * loader.batch_size
    return now, (f"{samples / seconds:.0f} samples/s; {read / 1e6:.1f} MB from storage, "
                 f"{own / 1e6:.1f} MB from the hosts' own memory, {peer / 1e6:.1f} MB from each "
                 f"other's; waited {wait / 1e9 / dist.get_world_size():.1f} s of {seconds:.1f} s")


def train(args, device):
    torch.manual_seed(args.seed)  # the same starting weights on all ranks
    transform = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(),
                           T.ToDtype("float32", scale=True),
                           T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
    loader, classes = make_loader(args, transform)
    network = nn.parallel.DistributedDataParallel(make_network(classes).to(device))
    optimiser = torch.optim.SGD(network.parameters(), args.lr, momentum=0.9)
    is_first = dist.get_rank() == 0
    stats = {}
    for epoch in range(resume(args, network, optimiser, loader), args.epochs):
        begun = time.perf_counter()
        is_whole = train_epoch(args, network, optimiser, loader, device)
        stats, line = figures(loader, stats, time.perf_counter() - begun, device)
        if is_first:
            print(f"epoch {epoch + 1}/{args.epochs}: {line}", flush=True)
        save(args, network, optimiser, loader)
        if not is_whole:
            return
    if is_first:
        for host in loader.hosts():
            print(f"{host['name']}: {host['planned_items']:,} images, "
                  f"{host['planned_bytes'] / 1e6:.1f} MB"
                  + ("" if host["is_up"] else f"; {host['problem']}"))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="image folder: one folder for each class")
    parser.add_argument("--cache", required=True, help="memcached:HOST:PORT,HOST:PORT?size=64GiB")
    parser.add_argument("--assignment", choices=("local", "exact"), default="local",
                        help="exact: for networks with batch norm that is not synchronised")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="of each rank")
    parser.add_argument("--workers", type=int, help="threads (the cores there are, less one)")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", help="a file that all hosts see")
    parser.add_argument("--stop-after", type=int, metavar="BATCHES", help="end early, to resume")
    return parser.parse_args()


def main():
    args = parse_arguments()
    device = start_ranks()
    try:
        train(args, device)
        dist.barrier()  # nobody takes its connections away from ranks that still use them
    except KeyboardInterrupt:
        return 130
    finally:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
