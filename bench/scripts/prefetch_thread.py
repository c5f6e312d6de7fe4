"""Batches go through a queue that a thread fills."""

import queue
import threading

from paced import BATCH, WORKERS, Points, Training
from torch.utils.data import DataLoader


class Prefetcher:
    def __init__(self, loader):
        self.queue = queue.Queue(2)
        threading.Thread(target=self.fill, args=(loader,), daemon=True).start()

    def fill(self, loader):
        for batch in loader:
            self.queue.put(batch)
        self.queue.put(None)

    def __iter__(self):
        while (batch := self.queue.get()) is not None:
            yield batch


training = Training()
loader = DataLoader(Points(), BATCH, shuffle=True, num_workers=WORKERS)
for epoch in range(1000):
    for x, y in Prefetcher(loader):
        training.step(x, y)
