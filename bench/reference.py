"""Measures the machine's present speed: decodes and transforms the same photographs repeatedly,
on one core and on all. The speed of a virtual machine drifts by ten per cent within minutes,
which no benchmark can prevent. With such readings, measurements at different times can be
compared.
"""

import statistics
import threading
import time
from dataclasses import dataclass

PHOTOGRAPHS = 12
PASSES = 12  # of each reading, on one core and on all


@dataclass(frozen=True)
class Speed:
    """Photographs per second: of one thread alone, and of all together."""

    one: float
    all: float

    def of(self, cores):
        return self.one if cores == 1 else self.all

    def __str__(self):
        return f"{self.one:.0f} and {self.all:.0f} photographs/s on one core and on all"


def mean(speeds):
    """Returns the mean of two or more readings: the speed while something ran between them."""
    return Speed(statistics.mean(s.one for s in speeds), statistics.mean(s.all for s in speeds))


class Reference:
    """Takes readings; each takes about 0.3 s."""

    def __init__(self, paths, cores):
        from headrace.prepare import Preparer
        from headrace import transforms

        self.images = []
        for path in paths[::max(1, len(paths) // PHOTOGRAPHS)][:PHOTOGRAPHS]:
            with open(path, "rb") as f:
                self.images.append(f.read())
        recipe = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(),
                  transforms.ToDtype("float32", scale=True),
                  transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
        self.preparers = [Preparer(recipe) for _ in range(cores)]
        self.read()  # after this, memory no longer grows

    def _passes(self, preparer, rates, start):
        start.wait()
        for epoch in range(PASSES):
            begun = time.perf_counter()
            for index, image in enumerate(self.images):
                preparer(image, epoch=epoch, index=index)
            rates.append(len(self.images) / (time.perf_counter() - begun))

    def _together(self, preparers):
        """Adds up the median pass of each thread, so an interrupted pass counts little."""
        rates, start = [[] for _ in preparers], threading.Barrier(len(preparers))
        threads = [threading.Thread(target=self._passes, args=(preparer, found, start))
                   for preparer, found in zip(preparers, rates)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(statistics.median(found) for found in rates)

    def read(self):
        return Speed(self._together(self.preparers[:1]), self._together(self.preparers))
