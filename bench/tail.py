"""bench/run tail: what Python makes behind headrace.torch.DataLoader, against torch's DataLoader with
the same dataset, arguments and workers.

Both loaders run in this process, one epoch each in turn, in an order that is reversed every time;
ratios are medians of per-pass ratios, seconds of torch's over ours. Workers persist, so that starting
them does not count. Options: --data FOLDER, --workers N, --passes N, --parts NAME,...
"""

import argparse
import io
import os
import statistics
import sys
import time

import harness
from harness import log

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tools"))

import torch  # noqa: E402
import torch.utils.data  # noqa: E402
import torchvision_shim  # noqa: E402

torchvision_shim.prepare()

import torchvision  # noqa: E402
from PIL import Image  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

from headrace.torch import DataLoader  # noqa: E402

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
END = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]


def same(image):
    """A function of one's own, which ends the native head."""
    return image


class Decoding(torch.utils.data.Dataset):
    """Decodes and crops by itself."""

    def __init__(self, paths):
        self.files = [open(path, "rb").read() for path in paths]
        self.transform = v2.Compose([v2.RandomResizedCrop(224), *END])

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        return self.transform(image), index % 10


class Tensors(torch.utils.data.Dataset):
    """Makes tensors of `shape` at almost no cost, so that handing over decides."""

    def __init__(self, count, *shape):
        self.count, self.one = count, torch.rand(*shape)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.one, index


def paths_of(folder, count):
    return harness.choose_jpegs(folder, count, "name a folder of JPEG files with --data")


def images(args):
    steps = [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), same, *END]
    dataset = torchvision.datasets.ImageFolder(args.data, v2.Compose(steps))
    chosen = range(0, len(dataset), max(1, len(dataset) // 400))
    return torch.utils.data.Subset(dataset, list(chosen)), 32


PARTS = {
    # name: the dataset and the batch size
    "images": images,
    "decoding": lambda args: (Decoding(paths_of(args.data, 200)), 32),
    "tensors": lambda args: (Tensors(2000, 3, 224, 224), 32),
    "small": lambda args: (Tensors(20000, 3, 32, 32), 128),
    "tiny": lambda args: (Tensors(40000, 16), 64),
}


def epoch(loader):
    begin = time.perf_counter()
    samples = sum(len(batch[0]) for batch in loader)
    return (time.perf_counter() - begin) / samples


def measure(name, args):
    dataset, batch = PARTS[name](args)
    common = {"batch_size": batch, "shuffle": True, "num_workers": args.workers,
              "persistent_workers": args.workers > 0}
    loaders = {"ours": DataLoader(dataset, **common),
               "theirs": torch.utils.data.DataLoader(dataset, **common)}
    seconds = {"ours": [], "theirs": []}
    for n in range(args.passes + 1):
        for who in ("ours", "theirs") if n % 2 else ("theirs", "ours"):
            took = epoch(loaders[who])
            if n:
                seconds[who].append(took)
    ratios = [b / a for a, b in zip(seconds["ours"], seconds["theirs"])]
    ours, theirs = (1e6 * statistics.median(seconds[who]) for who in ("ours", "theirs"))
    log(f"{name:<10} {ours:>10.1f} us {theirs:>10.1f} us {statistics.median(ratios):>8.2f} x "
        f"({min(ratios):.2f} to {max(ratios):.2f})")
    loaders["ours"].close()
    return statistics.median(ratios)


def main():
    options = argparse.ArgumentParser(prog="bench/run tail", description=__doc__.splitlines()[0])
    options.add_argument("--data", default=os.path.join(ROOT, "data", "sample"))
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--passes", type=int, default=5)
    options.add_argument("--parts", default=",".join(PARTS))
    args = options.parse_args()
    log(harness.machine())
    log(f"{args.workers} workers; a sample with Headrace's loader, with torch's, ratio")
    ratios = {name: measure(name, args) for name in args.parts.split(",")}
    figures = {f"tail_{name}_vs_torch": ratio for name, ratio in ratios.items()}
    # The worst of all: what Headrace runs natively (images) is not the tail's merit.
    figures["python_tail_vs_torch"] = min(ratios.values())
    harness.finish("tail", figures)


if __name__ == "__main__":
    main()
