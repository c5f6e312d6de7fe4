"""A loop over a loader whose batches are ready at once, with a step that does nothing. It
measures the cost of iterating, with the probe of `headrace stalls` or without.

Runs a loop for each line "pass" and prints this thread's CPU time.
"""

import argparse
import itertools
import json
import sys
import time

import torch


class Instant(torch.utils.data.DataLoader):
    """The same batch again and again."""

    def __init__(self, batches):
        super().__init__(range(batches))
        self.batch, self.batches = (torch.zeros(64, 3, 8, 8), torch.zeros(64)), batches

    def __iter__(self):
        return itertools.repeat(self.batch, self.batches)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=50000)
    loader = Instant(parser.parse_args().batches)
    print(json.dumps({"name": "idle", "iterator": type(iter(loader)).__name__}), flush=True)
    for line in sys.stdin:
        if line.strip() != "pass":
            break
        wall, cpu, count = time.perf_counter(), time.thread_time(), 0
        for _ in loader:
            count += 1
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        print(json.dumps({"seconds": wall, "cpu_seconds": cpu, "samples": count}), flush=True)


if __name__ == "__main__":
    main()
