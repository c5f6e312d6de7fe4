"""Hands over batches of 32 images with 7 boxes each, as torch targets, and such batches with one label
for each image. Prints microseconds of the consumer's CPU, medians: `rows` and `labels`, to take a batch
that is ready; `dicts`, to make all of its dicts."""

import json
import statistics
import sys
import time

import numpy

import headrace
import headrace.torch
import headrace.transforms as t

BATCH, BOXES, BATCHES = 32, 7, 200


def loader_of(dataset):
    return headrace.torch.DataLoader(dataset, BATCH, num_workers=1, transform=[
        t.CenterCrop(64), t.ToDtype("float32", scale=True)])


def take(batches):
    """Returns the next batch's targets, and the nanoseconds."""
    begun = time.thread_time_ns()
    images, targets = next(batches)
    done = time.thread_time_ns()
    assert len(images) == len(targets) == BATCH
    return targets, done - begun


path = sys.argv[1]
draw = numpy.random.default_rng(0)
rows = []
for _ in range(BATCH * BATCHES):
    corner = draw.uniform(0, 50, (BOXES, 2))
    rows.append({"boxes": numpy.hstack([corner, corner + 20]).astype("float32"),
                 "labels": numpy.arange(BOXES)})
with_rows = iter(loader_of(headrace.ImageList([path] * len(rows), rows=rows)))
with_labels = iter(loader_of(headrace.ImageList([(path, 0)] * len(rows))))
found = {"rows": [], "labels": [], "dicts": []}
for _ in range(BATCHES):
    time.sleep(0.01)  # both batches are ready
    found["labels"].append(take(with_labels)[1])
    time.sleep(0.01)
    targets, taken = take(with_rows)
    found["rows"].append(taken)
    begun = time.thread_time_ns()
    every = list(targets)
    found["dicts"].append(time.thread_time_ns() - begun)
    assert every[-1]["boxes"].shape == (BOXES, 4)
print(json.dumps({name: statistics.median(times) / 1e3 for name, times in found.items()}))
