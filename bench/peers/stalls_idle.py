"""A loop over a loader that has its batches at once and a step that does nothing: what is
left is what iterating costs, with the probe of `headrace stalls` or without.

For each line "pass" one loop, whose CPU time by this thread is told.
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
