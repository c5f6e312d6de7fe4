"""Shared by the training scripts of bench/stalls.py: arguments, a step of a given length, a
small network, and the two ways to run.

Each script is an ordinary PyTorch script: it makes a loader and a step and trains some
epochs. `headrace stalls -- python SCRIPT ...` runs it unchanged. With --serve the same loop
runs an epoch for each line "pass" on standard input and answers like the workers of
bench/harness.py; this measures the speed without a probe.
"""

import argparse
import ctypes
import json
import os
import sys
import time

import torch

from loader_common import family_cpu_seconds

# Batches at the beginning and end of an epoch that are not steady: loaders have some ready before
# the first, and prepare none during the last.
SETTLE = 4
AHEAD = 4
PR_SET_TIMERSLACK = 29


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--samples", type=int, help="only so many samples, evenly spread")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, help="Headrace's loader has a default")
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--step-ms", type=float, help="how long a step sleeps")
    parser.add_argument("--serve", action="store_true", help="run epochs on request of the harness")
    return parser


def exact_timers():
    """Forbids the kernel to wake a sleeper 50 us late to save wake-ups. Children inherit this."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


class Pace:
    """Sleeps that have a given length on average: waking up late, as on a busy machine, shortens
    the next sleep."""

    def __init__(self):
        self.late_s = 0.0

    def sleep(self, seconds):
        seconds -= self.late_s
        begun = time.perf_counter()
        if seconds > 0:
            time.sleep(seconds)
        self.late_s = time.perf_counter() - begun - seconds


def sleeping_step(step_ms):
    """A stand-in for an accelerator: takes its time and no CPU."""
    pace, step_s = Pace(), step_ms / 1e3

    def step(*batch):
        pace.sleep(step_s)

    return step


def network_step(classes):
    """Training on the CPU: forward, backward and update of a small convolutional network."""
    from torch import nn

    torch.manual_seed(0)
    layers, inputs = [], 3
    for outputs in (16, 32, 64, 128):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs),
                   nn.ReLU(inplace=True), nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
                   nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        inputs = outputs
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                            nn.Linear(inputs, classes))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()

    def step(images, labels):
        optimizer.zero_grad(set_to_none=True)
        loss_of(network(images), labels).backward()
        optimizer.step()

    return step


def part(dataset, samples):
    """Returns evenly spread samples of a dataset."""
    if samples is None or samples >= len(dataset):
        return dataset
    return torch.utils.data.Subset(dataset, [i * len(dataset) // samples for i in range(samples)])


def epoch(loader, step, ends, synchronize=None):
    """Trains one epoch; notes when each step ended and how many samples it had. Waits for the
    device at both ends of the steady part."""
    edges = (SETTLE, len(loader) - AHEAD, len(loader)) if synchronize else ()
    for batch in loader:
        step(*batch)
        if len(ends) + 1 in edges:
            synchronize()
        ends.append((time.perf_counter(), len(batch[-1])))


def answer(begun, ends, cpu):
    """Runs an epoch. Returns the figures of all of it, and of its steady part."""
    last = len(ends) - AHEAD if len(ends) > SETTLE + AHEAD else len(ends)
    first = min(SETTLE, last - 1)
    return {"seconds": ends[-1][0] - begun, "cpu_seconds": cpu,
            "samples": sum(n for _, n in ends),
            "steady_seconds": ends[last - 1][0] - (ends[first - 1][0] if first else begun),
            "steady_samples": sum(n for _, n in ends[first:last])}


def serve(loader, step, synchronize):
    """Runs epochs when the harness asks for them; the first answer describes this script. "pass 8":
    from now on a step takes 8 ms."""
    print(json.dumps({"name": os.path.basename(sys.argv[0]), "threads": torch.get_num_threads(),
                      "batches": len(loader)}), flush=True)
    for line in sys.stdin:
        words = line.split()
        if not words or words[0] != "pass":
            break
        if len(words) > 1:
            step = sleeping_step(float(words[1]))
        ends, cpu, begun = [], family_cpu_seconds(), time.perf_counter()
        epoch(loader, step, ends, synchronize)
        print(json.dumps(answer(begun, ends, family_cpu_seconds() - cpu)), flush=True)


def run(args, loader, step, synchronize=None):
    """Runs the script's main loop in either way."""
    if args.serve:
        serve(loader, step, synchronize)
        return
    for number in range(args.epochs):
        ends, begun = [], time.perf_counter()
        epoch(loader, step, ends, synchronize)
        done = answer(begun, ends, 0)
        print(f"epoch {number}: {done['samples'] / done['seconds']:.1f} samples/s", flush=True)
