"""One training process of bench/cache.py: epochs of a loader over a large folder.

--kind headrace: headrace.torch.DataLoader, small crops, with or without a cache.
--kind torch: torch's DataLoader over a dataset that reads a file and returns its number of
bytes. It decodes nothing, which is the least that a program can do with a file.

Runs an epoch for each line "pass". Answers like loader_common.serve, with the loader's own
counters.
"""

import argparse
import json
import os
import sys
import time

import torch

import loader_common as common

CROP = 16


class Lengths(torch.utils.data.Dataset):
    """Reads each file and drops its bytes."""

    def __init__(self, folder):
        self.paths = sorted(entry.path for label in os.scandir(folder) if label.is_dir()
                            for entry in os.scandir(label.path) if entry.name.endswith(".jpg"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb", buffering=0) as f:
            return len(f.readall()), 0


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=["headrace", "torch"], required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--samples", type=int, help="only so many")
    parser.add_argument("--cache", help="bytes, or as headrace.torch.DataLoader's cache")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", help="draw with replacement, by weight; write to this file what "
                        "five epochs draw")
    parser.add_argument("--unknown", action="store_true",
                        help="shuffle by a sampler, so that other jobs do not know the order")
    parser.add_argument("--validation", type=int, default=0,
                        help="so many samples are a second loader's in the same cache, after every "
                        "second pass")
    return parser.parse_args()


def part(dataset, samples):
    if samples is None or samples >= len(dataset):
        return dataset
    step = len(dataset) // samples
    return torch.utils.data.Subset(dataset, range(0, step * samples, step))


def torch_loader(args):
    return torch.utils.data.DataLoader(
        part(Lengths(args.data), args.samples), 64, shuffle=True, num_workers=args.workers,
        persistent_workers=True, generator=torch.Generator().manual_seed(args.seed))


def sampler(args, samples):
    """Returns the sampler that the arguments ask for. Of one that draws with replacement it also
    writes what that is going to draw."""
    if args.unknown:
        return torch.utils.data.RandomSampler(
            range(samples), generator=torch.Generator().manual_seed(args.seed))
    if not args.draws:
        return None
    made = [torch.utils.data.WeightedRandomSampler(
        torch.linspace(0.2, 5, samples), samples,
        generator=torch.Generator().manual_seed(args.seed)) for _ in range(2)]
    with open(args.draws, "w") as f:
        for _ in range(5):
            f.writelines(f"{index}\n" for index in made[0])
    return made[1]


def headrace_loaders(args):
    """Returns the loaders: of all samples, or of training and validation."""
    import headrace
    import headrace.torch
    from headrace import transforms as t

    transform = t.Compose([t.CenterCrop(CROP), t.ToDtype(torch.uint8)])
    dataset = part(headrace.ImageFolder(args.data, transform=transform), args.samples)
    cache = args.cache and (int(args.cache) if args.cache.isdigit() else args.cache)
    drawn = sampler(args, len(dataset))
    both = dataset, None
    if args.validation:
        ends = len(dataset) - args.validation
        both = (torch.utils.data.Subset(dataset, range(ends)),
                torch.utils.data.Subset(dataset, range(ends, len(dataset))))
    options = {"num_workers": args.workers, "cache_form": "encoded"}
    loaders = [headrace.torch.DataLoader(both[0], 64, shuffle=not drawn, sampler=drawn,
                                         seed=args.seed, cache=cache, **options)]
    if args.validation:
        loaders.append(headrace.torch.DataLoader(both[1], 64, cache=loaders[0], **options))
    return loaders


def serve(loaders, counters):
    print(json.dumps({"name": "ready"}), flush=True)
    for number, line in enumerate(sys.stdin):
        if line.strip() != "pass":
            break
        cpu, wall, samples = common.family_cpu_seconds(), time.perf_counter(), 0
        for loader in loaders[:1 + number % 2]:
            for _, labels in loader:
                samples += len(labels)
        wall, cpu = time.perf_counter() - wall, common.family_cpu_seconds() - cpu
        print(json.dumps({"seconds": wall, "cpu_seconds": cpu, "samples": samples,
                          **counters()}), flush=True)


def main():
    args = arguments()
    if args.kind == "torch":
        serve([torch_loader(args)], dict)
        return
    loaders = headrace_loaders(args)
    names = ("bytes_read", "cache_hits", "cache_bytes", "cache_source_bytes")

    def counters():
        stats = [loader.stats() for loader in loaders]
        return {name: sum(one[name] for one in stats) for name in names}

    serve(loaders, counters)
    for loader in loaders:
        loader.close()


if __name__ == "__main__":
    main()
