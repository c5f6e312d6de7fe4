"""The Python side of bench/handover.c: CPU time of a thread that takes a batch from an agent as
torch tensors and drops it; also of its two halves: the native loader's batch, and the tensors
around its memory.

Usage: share_handover.py SOCKET DATA BATCHES PAUSE_MS. Prints one line of JSON, microseconds.
"""

import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import headrace
import headrace.torch
import share_jobs
import torch
from headrace import transforms

WARM_UP = 20
BURST = 5  # batches between pauses, fewer than the window of a stream
WAITED_NS = 50_000  # a batch that took longer was not ready


class Taker:
    """Takes batches more slowly than the agent makes them, so that they are ready."""

    def __init__(self, loader, pause_s):
        self.loader, self.pause_s = loader, pause_s
        self.iterator = iter(loader)
        self.waited = 0

    def waited_ns(self):
        return self.loader.stats()["wait_ns"]

    def whole(self):
        """Takes a batch like a training loop. Returns microseconds; None at an epoch's end."""
        begin = time.thread_time_ns()
        batch = next(self.iterator, None)
        is_end = batch is None
        del batch
        took = time.thread_time_ns() - begin
        if is_end:
            self.iterator = iter(self.loader)
            return None
        return (took / 1e3,)

    def halves(self):
        """Returns (native, wrapping), or None at the end of an epoch. The release belongs to the
        native half."""
        begin = time.thread_time_ns()
        batch = self.loader._core.next()
        middle = time.thread_time_ns()
        if batch is None:
            self.iterator = iter(self.loader)
            return None
        tensors = self.loader._tensors(batch)
        wrapped = time.thread_time_ns()
        del tensors
        unwrapped = time.thread_time_ns()
        del batch
        end = time.thread_time_ns()
        return (middle - begin + end - unwrapped) / 1e3, (unwrapped - middle) / 1e3

    def collect(self, take, count):
        """Returns about `count` results of batches that were ready, and those of them that were the
        first after a pause."""
        found, first = [], []
        while len(found) < count:
            time.sleep(self.pause_s * BURST)
            for i in range(BURST):
                before = self.waited_ns()
                took = take()
                if took is None:
                    continue
                if self.waited_ns() - before > WAITED_NS:
                    self.waited += 1
                    if self.waited > 2 * count:
                        sys.exit("the agent is slower than this job: pause for longer")
                    continue
                found.append(took)
                if i == 0:
                    first.append(took)
        return list(zip(*found)), list(zip(*first))


def main():
    path, data, count, pause_ms = sys.argv[1:]
    torch.set_num_threads(1)
    dataset = headrace.ImageFolder(data, transform=share_jobs.training_transform(transforms, []))
    loader = headrace.torch.DataLoader(dataset, share_jobs.BATCH, shuffle=True, drop_last=True,
                                       agent=path)
    taker = Taker(loader, float(pause_ms) / 1e3)
    taker.collect(taker.whole, WARM_UP)
    (whole,), (first,) = taker.collect(taker.whole, int(count))
    (native, wrapping), _ = taker.collect(taker.halves, int(count))
    print(json.dumps({
        "median_us": statistics.median(whole),
        "p99_us": sorted(whole)[(len(whole) - 1) * 99 // 100],
        "first_us": statistics.median(first),
        "native_us": statistics.median(native), "wrapping_us": statistics.median(wrapping),
        "batches": len(whole), "waited": taker.waited}))


if __name__ == "__main__":
    main()
