"""Datasets that record the samples requested from them, in any process; they do not need torch."""

import os
from pathlib import Path

import numpy as np


def note(log, index):
    with open(log, "ab", buffering=0) as file:
        file.write(b"%d %d\n" % (os.getpid(), index))


def calls(dataset):
    """Returns the samples requested so far, sorted, without the second request for a process's
    first sample, by which CachedDataset looks for random numbers."""
    log, by_process = Path(dataset.log), {}
    for line in log.read_text().splitlines() if log.exists() else ():
        process, index = map(int, line.split())
        by_process.setdefault(process, []).append(index)
    made = [c[1:] if len(c) > 1 and c[0] == c[1] else c for c in by_process.values()]
    return sorted(i for c in made for i in c)


class Numbers:
    """Sample i is (an array, i)."""

    classes = ("even", "odd")

    def __init__(self, log, count=40, size=1000, offset=0):
        self.log = log
        self.count = count
        self.size = size
        self.offset = offset
        self.transform = None

    def image(self, index):
        return np.arange(self.size, dtype=np.int32) * index + self.offset

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if not -self.count <= index < self.count:
            raise IndexError("no such number")
        index %= self.count
        note(self.log, index)
        image = self.image(index)
        return (image if self.transform is None else self.transform(image)), index


def right(sample, dataset, index):
    image, label = sample
    return label == index and np.array_equal(np.asarray(image), dataset.image(index))


class Files:
    """Reads as torchvision's DatasetFolder does, with a loader function of its own."""

    def __init__(self, root, log):
        self.log = log
        self.root = root
        self.samples = [(str(path), i) for i, path in enumerate(sorted(Path(root).glob("*/*.*")))]
        self.loader = self.read
        self.reads = 0

    def read(self, path):
        note(self.log, self.reads)
        self.reads += 1
        return Path(path).read_bytes()

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, target = self.samples[index]
        return self.loader(path), target


def make_negative(sample):
    return -sample[0], sample[1]


def segments():
    """Returns the files of cache segments, without the status files of loaders."""
    files = [p for p in Path(os.environ["HEADRACE_SHM"]).rglob("*") if p.is_file()]
    return [p for p in files if not p.parent.name.endswith("-loaders")]
