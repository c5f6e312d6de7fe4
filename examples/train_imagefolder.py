#!/usr/bin/env python3
"""Trains a small residual network on an image folder, with either loader.

    python train_imagefolder.py --data PATH --loader torch
    python train_imagefolder.py --data PATH --loader headrace
    torchrun --nproc-per-node 2 train_imagefolder.py --data PATH --loader headrace

The two runs differ in library() and make_loader() and in nothing else: the
same transforms, network, optimiser and starting weights. The network is small
on purpose, so that on a machine without a GPU the loader is what training
waits for, as it is with a large network on a fast GPU.

Every epoch prints samples per second and the seconds spent waiting for data;
--json FILE writes the whole result.
"""

import argparse
import json
import os
import resource
import signal
import sys
import threading
import time

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the imports ends at once

import torch
from torch import nn
from torch.utils.data import Subset

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


# ---- the loader -------------------------------------------------------------


def library(name):
    """ImageFolder, transforms and DataLoader of one of the two."""
    if name == "headrace":
        from headrace import ImageFolder, transforms
        from headrace.torch import DataLoader
    else:
        from torch.utils.data import DataLoader
        from torchvision.datasets import ImageFolder
        from torchvision.transforms import v2 as transforms
    return ImageFolder, transforms, DataLoader


def make_datasets(args, ImageFolder, T):
    """The training and the validation part (None without --val-share)."""
    to_tensor = [T.ToImage(), T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)]
    train = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), *to_tensor])
    test = T.Compose([T.Resize(256), T.CenterCrop(224), *to_tensor])
    folder = ImageFolder(args.data, transform=train)
    classes = len(folder.classes)
    # Every so-manyth file, so that all classes keep their shares.
    count = min(args.samples or len(folder), len(folder))
    chosen = [i * len(folder) // count for i in range(count)]
    held = round(count * args.val_share)
    if held == 0:
        return folder if count == len(folder) else Subset(folder, chosen), None, classes
    order = torch.randperm(count, generator=torch.Generator().manual_seed(args.seed)).tolist()
    validation = Subset(ImageFolder(args.data, transform=test), [chosen[i] for i in order[:held]])
    return Subset(folder, [chosen[i] for i in order[held:]]), validation, classes


def make_loader(args, DataLoader, dataset, train):
    options = dict(batch_size=args.batch_size, num_workers=args.workers, drop_last=train,
                   pin_memory=args.device.type == "cuda")
    if args.loader == "headrace":  # shares each epoch among the ranks by itself
        return DataLoader(dataset, shuffle=train, seed=args.seed, **options)
    sampler = None
    if args.world_size > 1:
        sampler = torch.utils.data.DistributedSampler(dataset, shuffle=train, seed=args.seed,
                                                      drop_last=train)
    return DataLoader(dataset, shuffle=train and sampler is None, sampler=sampler,
                      persistent_workers=args.workers > 0, **options)


def set_epoch(loader, epoch):
    """Tells who shuffles which epoch it is: Headrace's loader, or torch's sampler."""
    for shuffles in (loader, getattr(loader, "sampler", None)):
        if hasattr(shuffles, "set_epoch"):
            shuffles.set_epoch(epoch)
            return


# ---- the network ------------------------------------------------------------


class Block(nn.Module):
    """Two 3x3 convolutions around a shortcut (He et al., Deep Residual Learning, 2015)."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                      nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def make_network(classes):
    """224x224 to `classes`, with about a hundredth of a ResNet-18's multiplications."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 11, 8, 5, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
        Block(32, 32, 2), Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


# ---- measuring --------------------------------------------------------------


def cpu_seconds():
    """Of this process and of those children that have ended and been waited for."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in usages)


def process_tree():
    """This process and its children and theirs."""
    found, waiting = [], [os.getpid()]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as children:
                    waiting.extend(int(child) for child in children.read().split())
        except OSError:  # ended meanwhile, or a kernel without this file
            continue
    return found


def memory_bytes():
    """Memory of the whole tree; what processes share counts once (proportional set size)."""
    total = 0
    for pid in process_tree():
        try:
            with open(f"/proc/{pid}/smaps_rollup") as rollup:
                total += sum(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
        except OSError:
            continue
    return total * 1024


class MemoryWatch(threading.Thread):
    """Looks at the memory of process and workers twice a second and keeps the largest."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self.ended = threading.Event()

    def run(self):
        while True:
            self.peak_bytes = max(self.peak_bytes, memory_bytes())
            if self.ended.wait(0.5):
                return

    def stop(self):
        self.ended.set()
        self.join()
        return self.peak_bytes


class Progress:
    """One line that is kept up to date on a terminal; a plain one every five seconds elsewhere."""

    def __init__(self, shown):
        self.shown = shown
        self.terminal = sys.stdout.isatty()
        self.last = time.monotonic()

    def update(self, line):
        if not self.shown or time.monotonic() - self.last < (0.2 if self.terminal else 5.0):
            return
        self.last = time.monotonic()
        print(f"\r{line}\x1b[K" if self.terminal else line, end="" if self.terminal else "\n",
              flush=True)

    def say(self, line):
        if self.shown:
            print(f"\r{line}\x1b[K" if self.terminal else line, flush=True)


def total(args, *values):
    """Sums over the ranks."""
    if args.world_size == 1:
        return values
    sums = torch.tensor(values, dtype=torch.float64, device=args.device)
    torch.distributed.all_reduce(sums)
    # Gloo's thread releases the tensor a moment later, for which it needs the interpreter. If
    # Python is shutting down by then, that aborts the process with torch 2.13 (SIGABRT).
    patience = time.monotonic() + 1.0
    while sys.getrefcount(sums) > 2 and time.monotonic() < patience:
        time.sleep(0.0005)
    return tuple(sums.tolist())


# ---- training ---------------------------------------------------------------


def train_epoch(args, epoch, network, optimiser, loader, progress):
    """One pass; returns its figures."""
    network.train()
    set_epoch(loader, epoch)
    loss_sum = torch.zeros((), device=args.device)
    right = torch.zeros((), device=args.device)
    seen, waited = 0, 0.0
    begun = time.perf_counter()
    batches = None
    while True:
        asked = time.perf_counter()
        if batches is None:
            batches = iter(loader)  # starts torch's workers, which is waiting too
        batch = next(batches, None)
        waited += time.perf_counter() - asked
        if batch is None:
            break
        images = batch[0].to(args.device, non_blocking=True)
        labels = batch[1].to(args.device, non_blocking=True)
        scores = network(images)
        loss = nn.functional.cross_entropy(scores, labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        loss_sum += loss.detach() * len(labels)
        right += (scores.detach().argmax(1) == labels).sum()
        seen += len(labels)
        seconds = time.perf_counter() - begun
        progress.update(f"{args.loader}: epoch {epoch + 1}/{args.epochs}, sample {seen}, "
                        f"{seen * args.world_size / seconds:.0f} samples/s, "
                        f"waited {waited:.1f} s of {seconds:.1f} s")
    if args.device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    seen, loss_total, right_total, waited_total = total(args, seen, loss_sum.item(), right.item(),
                                                        waited)
    if seen == 0:
        raise SystemExit("no batch came: fewer samples than --batch-size on each rank")
    return {"epoch": epoch, "samples": int(seen), "seconds": seconds,
            "samples_per_s": seen / seconds, "wait_s": waited_total / args.world_size,
            "loss": loss_total / seen, "accuracy": right_total / seen}


@torch.no_grad()
def validate(args, network, loader):
    """Share of the validation part that is labelled right."""
    network.eval()
    seen, right = 0, 0
    for batch in loader:
        images, labels = batch[0].to(args.device), batch[1].to(args.device)
        right += int((network(images).argmax(1) == labels).sum())
        seen += len(labels)
    seen, right = total(args, seen, right)
    return right / seen


def warm(args, dataset):
    """Reads the chosen files once, so that the page cache holds them for either loader."""
    folder, chosen = dataset, range(len(dataset))
    if isinstance(dataset, Subset):
        folder, chosen = dataset.dataset, dataset.indices
    read = 0
    begun = time.perf_counter()
    for index in chosen:
        with open(folder.samples[index][0], "rb", buffering=0) as file:
            read += len(file.read())
    return read, time.perf_counter() - begun


def train(args):
    ImageFolder, transforms, DataLoader = library(args.loader)
    torch.manual_seed(args.seed)  # the same starting weights every time
    train_set, validation_set, classes = make_datasets(args, ImageFolder, transforms)
    network = make_network(classes).to(args.device)
    if args.world_size > 1:
        network = nn.parallel.DistributedDataParallel(network)
    optimiser = torch.optim.SGD(network.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    progress = Progress(args.rank == 0)
    if args.warm:
        read, seconds = warm(args, train_set)
        progress.say(f"{args.loader}: read {read / 1e6:.0f} MB in {seconds:.1f} s, so that all "
                     "files are in memory")
    watch = MemoryWatch()
    watch.start()
    cpu_before = cpu_seconds()
    loader = make_loader(args, DataLoader, train_set, train=True)
    epochs = []
    for epoch in range(args.epochs):
        epochs.append(train_epoch(args, epoch, network, optimiser, loader, progress))
        progress.say("{loader}: epoch {n}/{of}: {samples_per_s:.0f} samples/s, waited {wait_s:.1f} s "
                     "of {seconds:.1f} s, loss {loss:.3f}, accuracy {accuracy:.1%}".format(
                         loader=args.loader, n=epoch + 1, of=args.epochs, **epochs[-1]))
    del loader  # ends the workers, so that their CPU time is known
    cpu_s, peak = total(args, cpu_seconds() - cpu_before, watch.stop())
    samples = sum(e["samples"] for e in epochs)
    seconds = sum(e["seconds"] for e in epochs)
    result = {"loader": args.loader, "workers": args.workers, "world_size": args.world_size,
              "compute_threads": torch.get_num_threads(), "batch_size": args.batch_size, "device": str(args.device), "samples": samples,
              "seconds": seconds, "samples_per_s": samples / seconds,
              "wait_s": sum(e["wait_s"] for e in epochs),
              "cpu_s_per_1000_samples": cpu_s / samples * 1000, "peak_memory_bytes": int(peak),
              "final_loss": epochs[-1]["loss"], "final_accuracy": epochs[-1]["accuracy"],
              "epochs": epochs, "torch": torch.__version__}
    if validation_set is not None:
        accuracy = validate(args, network, make_loader(args, DataLoader, validation_set, False))
        result["validation_accuracy"] = accuracy
        progress.say(f"{args.loader}: validation accuracy {accuracy:.1%}")
    return result


def default_workers():
    """The cores this process may use, shared among the ranks of this host, less one."""
    cores = len(os.sched_getaffinity(0))
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", 1)) - 1)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="image folder: one folder for each class")
    parser.add_argument("--loader", choices=("torch", "headrace"), default="headrace")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64, help="of each rank")
    parser.add_argument("--workers", type=int, default=default_workers(),
                        help="processes of torch's loader, threads of Headrace's (%(default)s)")
    parser.add_argument("--compute-threads", type=int, metavar="N",
                        help="threads of the network itself on the CPU (torch's choice)")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", help="cuda where there is one, else cpu")
    parser.add_argument("--val-share", type=float, default=0.0,
                        help="share of the samples held back to validate on (%(default)s)")
    parser.add_argument("--samples", type=int, help="take only so many, evenly over the classes")
    parser.add_argument("--warm", action="store_true",
                        help="read all files once before, for comparisons without the disk")
    parser.add_argument("--json", help="write the result to this file")
    args = parser.parse_args()
    if args.epochs < 1 or args.batch_size < 1 or not 0 <= args.val_share < 1:
        parser.error("--epochs and --batch-size are at least 1, --val-share is in [0, 1)")
    args.rank = int(os.environ.get("RANK", 0))
    args.world_size = int(os.environ.get("WORLD_SIZE", 1))
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        torch.cuda.set_device(device)
    args.device = torch.device(device)
    if args.compute_threads:
        torch.set_num_threads(args.compute_threads)
    return args


def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    args = parse_arguments()
    if args.world_size > 1:
        torch.distributed.init_process_group("nccl" if args.device.type == "cuda" else "gloo")
    try:
        result = train(args)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    finally:
        if args.world_size > 1:
            torch.distributed.destroy_process_group()
    if args.json and args.rank == 0:
        with open(args.json, "w") as file:
            json.dump(result, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
